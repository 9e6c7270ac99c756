"""The torch.compile entry: graphs from Dynamo in, programs out."""

from kernelmill.backend.entry import Backend, get_backend, get_npu_backend
from kernelmill.backend.explain import Explanation, explain
from kernelmill.backend.report import Capture

__all__ = ["Backend", "Capture", "Explanation", "explain", "get_backend", "get_npu_backend"]
