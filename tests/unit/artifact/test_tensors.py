"""Tensors to bytes and back: layouts, shared memory, and what is refused."""

import pytest
import torch

from kernelmill.artifact.manifest import StoredTensor
from kernelmill.artifact.tensors import HeldTensor, WeightLayout, tensors_over
from kernelmill.core.errors import StoreError, UnsupportedError
from kernelmill.store.sealed import FileKind, SealedFile, write_sealed

KIND = FileKind(b"weights\n", "make it again")


def round_trip(tmp_path, tensors):
    layout = WeightLayout(
        [HeldTensor(name, "parameter", tensor) for name, tensor in tensors.items()]
    )
    write_sealed(tmp_path / "w", KIND, {"weights": layout.pieces})
    file = SealedFile(tmp_path / "w", KIND, writable=True)
    start, size, _ = file.sections["weights"]
    assert size == layout.bytes
    return dict(zip(tensors, tensors_over(file.mapping, start, size, layout.weights), strict=True))


DTYPES = [torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_layout_comes_back(tmp_path, dtype):
    base = (torch.randn(4, 6, 8) * 3).to(dtype)
    tensors = {
        "plain": base.clone(),
        "turned": base.clone().permute(2, 0, 1),
        "part": base.clone()[1:3, ::2],
        "scalar": base[0, 0, 0].clone(),
        "none": torch.empty(0, 3, dtype=dtype),
    }
    got = round_trip(tmp_path, tensors)
    for name, tensor in tensors.items():
        assert got[name].stride() == tensor.stride() and got[name].dtype == dtype
        assert got[name].data_ptr() % 2 == 0 or tensor.numel() == 0
        # Through bytes: some dtypes cannot be compared.
        assert bytes(got[name].contiguous().view(torch.uint8).numpy() if tensor.dim() else b"") == (
            bytes(tensor.contiguous().view(torch.uint8).numpy() if tensor.dim() else b"")
        )


def test_shared_memory_is_shared_again_and_stored_once(tmp_path):
    base = torch.arange(100.0)
    tensors = {"whole": base, "again": base, "tail": base[50:], "grid": base.view(10, 10).t()}
    got = round_trip(tmp_path, tensors)
    assert (tmp_path / "w").stat().st_size == 2 * 4096
    assert got["whole"] is got["again"]
    got["whole"].zero_()
    assert got["tail"].sum() == got["grid"].sum() == 0


def test_a_storage_is_as_long_as_what_lies_in_it(tmp_path):
    base = torch.arange(100.0)
    tensors = {"head": base[:20], "tail": base[50:60], "other": torch.ones(8)}
    got = round_trip(tmp_path, tensors)
    assert {name: t.storage_offset() for name, t in got.items()} == {
        "head": 0, "tail": 50, "other": 0
    }  # fmt: skip
    assert torch.equal(got["tail"].as_strided((5,), (11,), 0), base[:55:11])
    assert got["other"].untyped_storage().nbytes() == 32
    with pytest.raises(RuntimeError, match="out of bounds"):
        got["tail"].as_strided((60,), (1,), 1)


def test_only_the_part_of_a_storage_that_is_used_is_stored(tmp_path):
    layout = WeightLayout([HeldTensor("part", "constant", torch.arange(1000.0)[10:20])])
    assert layout.bytes == 40


class Wrapped(torch.Tensor):
    pass


def test_what_is_more_than_its_memory_is_refused():
    with pytest.raises(UnsupportedError, match="odd is a Wrapped"):
        WeightLayout([HeldTensor("odd", "buffer", torch.ones(2).as_subclass(Wrapped))])
    with pytest.raises(UnsupportedError, match="odd is on meta"):
        WeightLayout([HeldTensor("odd", "buffer", torch.ones(2, device="meta"))])
    with pytest.raises(UnsupportedError, match="sparse"):
        WeightLayout([HeldTensor("odd", "buffer", torch.ones(2).to_sparse())])


@pytest.mark.parametrize(
    ("dtype", "shape", "strides", "offset"),
    [
        ("float32", (4,), (1,), 8), ("float32", (4,), (-1,), 0), ("float32", (2,), (1,), -4),
        ("float32", (2,), (1,), 1), ("float32", (2, 9), (1, 1), 0), ("load", (2,), (1,), 0),
        ("float32", (-1, 0), (1, 1), 0), ("float32", (2**70,), (1,), 0),
        ("float32", (2.0,), (1,), 0),
    ],
)  # fmt: skip
def test_a_weight_that_would_lie_outside_is_refused(tmp_path, dtype, shape, strides, offset):
    write_sealed(tmp_path / "w", KIND, {"weights": [bytes(16)]})
    file = SealedFile(tmp_path / "w", KIND, writable=True)
    weight = StoredTensor("w", "buffer", dtype, shape, strides, offset, (min(offset, 0), 16))
    with pytest.raises(StoreError, match="weight w"):
        tensors_over(file.mapping, file.sections["weights"][0], 16, [weight])
