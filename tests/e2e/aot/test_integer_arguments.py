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
}


@pytest.mark.parametrize("name", CUTS)
def test_a_cut_at_an_integer_is_eagers_or_refused(name, tmp_path):
    cut, x = CUTS[name], torch.randn(6, 20)
    shapes = None, Dim.DYNAMIC
    path = str(tmp_path / "cut.kmill")
    file = kernelmill.aot.compile(cut, (x, 4), path=path, dynamic_shapes=shapes)
    program = kernelmill.aot.load(file)
    for k in (4, 7, 1, 0, 20):
        found, expected = program(x, k), cut(x, k)
        assert torch.equal(found, expected)
        assert found.stride() == expected.stride()
    if name == "narrow":
        with pytest.raises(InputError, match="is 25, and has to be"):
            program(x, 25)
    else:
        assert torch.equal(program(x, 25), cut(x, 25))
    with pytest.raises(InputError, match="is -2, and has to be at least 0"):
        program(x, -2)
