"""What the load test compares with: the same model in eager and in ONNX Runtime.

Both get the same batches, padded to their longest text and not to a gear. SERVE_MODEL names them.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor

from examples.serve.batches import Tokenizer, batches, padded
from examples.serve.model import Encoder, Timed


class _Embedder:
    def __init__(self, timed: Timed = nullcontext) -> None:
        self._tokenizer, self._timed = Tokenizer(), timed

    def call(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The vectors of a batch."""
        raise NotImplementedError

    def warm_up(self) -> None:
        """Call twice."""
        for _ in range(2):
            self.embed(["warm", "a little longer than warm"])

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """As `CompiledEmbedder.embed`."""
        ids = self._tokenizer(texts)
        vectors: dict[int, list[float]] = {}
        for numbers in batches(ids):
            rows = [ids[number] for number in numbers]
            arguments = padded(rows, len(rows[-1]))
            with self._timed("call"):
                found = self.call(*arguments)
            vectors.update(zip(numbers, found.tolist(), strict=True))
        return [vectors[number] for number in range(len(texts))]

    def report(self) -> Mapping[str, Mapping[str, int]]:
        """Nothing is counted."""
        return {}


class EagerEmbedder(_Embedder):
    """torch without a compiler."""

    def __init__(self, timed: Timed = nullcontext) -> None:
        super().__init__(timed)
        self._encoder = Encoder().eval()

    def call(self, ids: Tensor, mask: Tensor) -> Tensor:
        with torch.inference_mode():
            return self._encoder(ids, mask)


class OnnxEmbedder(_Embedder):
    """ONNX Runtime on the exported model, in float32 as the others."""

    def __init__(self, timed: Timed = nullcontext) -> None:
        import onnxruntime

        super().__init__(timed)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        # Threads that wait in a loop would take the other worker's time.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            export(path)
            self._session = onnxruntime.InferenceSession(os.fspath(path), options)

    def call(self, ids: Tensor, mask: Tensor) -> Tensor:
        feeds = {"ids": ids.numpy(), "mask": mask.numpy()}
        return torch.from_numpy(self._session.run(None, feeds)[0])


def export(path: Path) -> None:
    """Write the encoder for all batches and lengths."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    ids = torch.ones(3, 20, dtype=torch.int64)
    dims = {0: torch.export.Dim("batch", max=512), 1: torch.export.Dim("length", max=512)}
    program = torch.onnx.export(
        Encoder().eval(), (ids, torch.ones_like(ids)), input_names=["ids", "mask"],
        dynamic_shapes={"ids": dims, "mask": dims}, dynamo=True, optimize=True, verbose=False,
    )  # fmt: skip
    assert program is not None
    program.save(os.fspath(path))
