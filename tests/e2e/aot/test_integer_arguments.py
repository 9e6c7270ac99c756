"""Compiled files of functions that cut tensors at an integer argument."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import kernelmill
from kernelmill.core.errors import InputError

CUTS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "slice, times k": lambda x, k: x[:, :k] * k,
    "slice": lambda x, k: x[:, :k] + 1,
    "view": lambda x, k: x[:, :k],
    "turned": lambda x, k: (x[:, :k] * 2).t(),
    "from": lambda x, k: x[:, k:] + 1,
    "both": lambda x, k: x[:, k : 2 * k] * 2,
    "narrow": lambda x, k: x.narrow(1, 0, k) + 1,
    "all but the last": lambda x, k: x[:, :-k] + 1,
    "the last": lambda x, k: x[:, -k:] * 2,
    "view of the last": lambda x, k: x[:, -k:],
    "every second of the last": lambda x, k: x[:, -k::2] + 1,
    "both ends": lambda x, k: (x[-k:, :-k].t() @ x[-k:, :-k]).softmax(0),
    "written to": lambda x, k: _zeroed(x, k),
    "one": lambda x, k: x[:, -k] + 1,
    "of the same length but for 0": lambda x, k: x[:, :-k] + x[:, k:],
    "part of a size": lambda x, k: x[:, : torch.sym_int(k * 0.75)] + 1,
}


def _zeroed(x: Tensor, k: int) -> Tensor:
    copy = x.clone()
    copy[:, -k:] = 0
    return copy


@pytest.mark.parametrize("name", CUTS)
def test_a_cut_at_an_integer_is_eagers_or_refused(name, tmp_path):
    cut, x = CUTS[name], torch.randn(6, 20)
    shapes = None, Dim.DYNAMIC
    path = str(tmp_path / "cut.kmill")
    file = kernelmill.aot.compile(cut, (x, 4), path=path, dynamic_shapes=shapes)
    program = kernelmill.aot.load(file)
    for k in (4, 7, 1, 0, 20, 25):
        try:
            expected = cut(x, k)
        except (IndexError, RuntimeError):
            with pytest.raises((InputError, IndexError)):
                program(x, k)
            continue
        found = program(x, k)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
    with pytest.raises(InputError, match="is -2, and has to be at least 0"):
        program(x, -2)
