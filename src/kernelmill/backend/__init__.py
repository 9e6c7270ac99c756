"""The torch.compile entry: graphs from Dynamo in, programs out."""

from kernelmill.backend.entry import Backend, get_backend, get_npu_backend
from kernelmill.backend.report import Capture

__all__ = ["Backend", "Capture", "get_backend", "get_npu_backend"]
