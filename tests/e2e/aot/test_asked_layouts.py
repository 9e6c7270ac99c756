"""Compiled files of code that asks how its arguments lie in memory."""

import pytest
import torch
from torch.export import Dim

import kernelmill
from kernelmill.core.errors import InputError, UnsupportedError

VARYING = Dim("rows", min=1, max=16), Dim("columns", min=1, max=16)


def compiled(folder, function, *args, **options):
    path = kernelmill.aot.compile(function, args, path=folder / "program.kmill", **options)
    return kernelmill.aot.load(path)


def branching(x):
    return x + 1 if x.t().is_contiguous() else x - 1


def scaled(x):
    return x * x.stride(0)


def last(x):
    return x - 1 if x.is_contiguous(memory_format=torch.channels_last) else x + 1


@pytest.mark.parametrize("function", [branching, scaled])
@pytest.mark.parametrize("dims", [{}, {0: VARYING[0]}, dict(enumerate(VARYING))], ids=len)
def test_other_strides_than_those_asked_for_are_refused(tmp_path, function, dims):
    program = compiled(tmp_path, function, torch.randn(3, 4), dynamic_shapes=({**dims},))
    shapes = [(3, 4), (7, 4), (5, 9)][: len(dims) + 1]
    for shape in shapes:
        x = torch.randn(shape)
        for _ in range(2):
            with torch.no_grad():
                torch.testing.assert_close(program(x), function(x))
        for other in (torch.randn(shape[::-1]).t(), torch.randn(shape[0], 20)[:, : shape[1]]):
            for mode in (torch.no_grad, torch.enable_grad):
                with mode(), pytest.raises(InputError, match="argument 'x': expected strides"):
                    program(other)


def test_strides_follow_from_sizes_as_in_the_trace(tmp_path):
    x = torch.randn(4, 3).t()
    program = compiled(tmp_path, branching, x, dynamic_shapes=(dict(enumerate(VARYING)),))
    for columns, rows in ((4, 3), (9, 5)):
        x = torch.randn(columns, rows).t()
        torch.testing.assert_close(program(x), branching(x))
        with pytest.raises(InputError, match="expected strides"):
            program(x.contiguous())


def test_a_format_that_is_asked_for(tmp_path):
    x = torch.randn(2, 3, 4, 4)
    program = compiled(tmp_path, last, x)
    torch.testing.assert_close(program(x), last(x))
    with pytest.raises(InputError, match="expected strides 48, 16, 4, 1, got strides 48, 1, 12, 3"):
        program(x.to(memory_format=torch.channels_last))


def test_an_offset_that_is_asked_for_is_refused(tmp_path):
    with pytest.raises(UnsupportedError, match=r"asks for storage_offset\(\)"):
        compiled(tmp_path, lambda x: x + x.storage_offset(), torch.randn(3, 4))


def test_code_that_does_not_ask_takes_any_strides(tmp_path):
    program = compiled(tmp_path, lambda x: x.contiguous() + x.reshape(-1)[:4], torch.randn(4, 4))
    x = torch.randn(4, 4)
    torch.testing.assert_close(program(x.t()), x.t() + x.t().reshape(-1)[:4])
