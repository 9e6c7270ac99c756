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


class Classifier(torch.nn.Module):
    """How its result lies depends on no argument, and what it returns of one is a view."""

    def __init__(self):
        super().__init__()
        self.features = torch.nn.Conv2d(3, 4, 3)
        self.head = torch.nn.Linear(4, 5)

    def forward(self, images, table):
        found = self.features(images).relu().mean((2, 3))
        return self.head(found), table.sum(1).sum(), table.t()


@pytest.mark.needs_internal("tracing.fake_mode")  # else no other order is taken
def test_results_that_do_not_follow_arguments_take_any_strides(tmp_path):
    model = Classifier()
    batch = {0: Dim("batch", max=9)}
    shapes = {"images": batch, "table": None}
    args = torch.randn(2, 3, 6, 8), torch.randn(4, 6)
    program = compiled(tmp_path, model, *args, dynamic_shapes=shapes)
    for images in (args[0], torch.randn(5, 6, 8, 3).permute(0, 3, 1, 2)):
        for table in (torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(1, 6).expand(4, 6)):
            with torch.no_grad():
                found, expected = program(images, table), model(images, table)
            torch.testing.assert_close(found, expected)
            assert [x.stride() for x in found] == [x.stride() for x in expected]
            assert found[2].data_ptr() == table.data_ptr()


FOLLOWING = [
    lambda x: x * 2.0,
    lambda x: torch.empty_like(x).fill_(1.0),
    lambda x: torch.nn.functional.max_pool2d(x, 2),
    lambda x: x.reshape(-1),
    lambda x: x.flip(1),
]
ORDERS = [
    lambda *shape: torch.randn(shape),
    lambda *shape: torch.randn(shape).to(memory_format=torch.channels_last),
]


@pytest.mark.parametrize("function", FOLLOWING)
@pytest.mark.parametrize("traced", [0, 1])
def test_results_that_follow_arguments_refuse_another_order(tmp_path, function, traced):
    """Gaps between rows are no other order."""
    make, other = ORDERS[traced], ORDERS[1 - traced]
    varying = ({0: Dim("batch", min=2, max=16)},)
    program = compiled(tmp_path, function, make(2, 3, 4, 4), dynamic_shapes=varying)
    for x in (make(5, 3, 4, 4), make(8, 3, 4, 4)[::2]):
        found, expected = program(x), function(x)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
    with pytest.raises(InputError, match=r"'x'.*strides in the order of .*pass a tensor that"):
        program(other(5, 3, 4, 4))
