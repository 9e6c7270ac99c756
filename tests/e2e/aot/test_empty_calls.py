"""Sizes of 0: what the code asks about them, and what torch has no result for."""

import pytest
import torch
from torch import nn
from torch.export import Dim

import kernelmill
from kernelmill.core.errors import InputError

ANY = [Dim("rows"), Dim.DYNAMIC, Dim.AUTO]
pytestmark = pytest.mark.needs_internal("export.oblivious_sizes", "sizes.functions")
ZERO_IS_TAKEN = pytest.mark.needs_internal("export.size_questions")


def compiled(folder, function, x, **options):
    path = folder / f"{len(list(folder.iterdir()))}.kmill"
    return kernelmill.aot.load(kernelmill.aot.compile(function, (x,), path=path, **options))


def positive(x):
    return x + 1 if x.shape[0] > 0 else x.new_zeros(3)


def not_zero(x):
    return x.new_zeros(3) if x.shape[0] == 0 else x + 1


def true(x):
    return x + 1 if x.shape[0] else x.new_zeros(3)


def elements(x):
    return x.new_zeros(3) if x.numel() <= 0 else x + 1


def part_of_rows(x):
    return x / max(x.shape[0], 1)


def several(x):
    return x.new_zeros(3) if 0 in x.shape else x + 1


ASKING = [positive, not_zero, true, elements, part_of_rows, several]


@pytest.mark.parametrize("dim", ANY, ids=str)
@pytest.mark.parametrize("function", ASKING)
def test_a_size_that_the_code_asks_about_is_not_zero(tmp_path, function, dim):
    call = compiled(tmp_path, function, torch.randn(3, 4), dynamic_shapes={"x": {0: dim}})
    for rows in (1, 2, 7):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(call(x), function(x))
    with pytest.raises(InputError, match="dim 0 of argument 'x' is 0, and has to be at least 1"):
        call(torch.randn(0, 4))


@pytest.mark.needs_internal("export.size_questions")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1,
        nn.functional.relu,
        lambda x: (x if x.shape[0] >= 0 else -x) * max(x.shape[0], 0),
    ],
)
def test_others_may_be(tmp_path, function):
    call = compiled(tmp_path, function, torch.randn(3, 4), dynamic_shapes=({0: Dim("rows")},))
    for rows in (0, 1, 5):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(call(x), function(x))


def test_what_is_asked_about_several_sizes_is_asked_of_a_call(tmp_path):
    def function(x):
        return x + 1 if x.shape[0] + x.shape[1] > 0 else x - 1

    dims = {"x": {0: Dim("rows"), 1: Dim("columns")}}
    call = compiled(tmp_path, function, torch.randn(3, 4), dynamic_shapes=dims)
    for shape in ((2, 5), (1, 1)):
        x = torch.randn(shape)
        torch.testing.assert_close(call(x), function(x))
    with pytest.raises(InputError):
        call(torch.randn(0, 0))


@pytest.mark.parametrize(
    "function", [lambda x: x[:-1] * 2, lambda x: x.narrow(0, 1, x.shape[0] - 1).mean(1)]
)
def test_no_size_may_be_negative(tmp_path, function):
    call = compiled(tmp_path, function, torch.randn(7, 4), dynamic_shapes=({0: Dim("rows")},))
    for rows in (1, 2, 9):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(call(x), function(x))
    with pytest.raises(InputError, match="dim 0 of argument 'x' is 0, and has to be at least 1"):
        call(torch.randn(0, 4))


@ZERO_IS_TAKEN
def test_sizes_that_end_at_zero_are_for_all_calls(tmp_path):
    function = lambda x: (x[:-3] * 2, x[2:-2].mean(1))  # noqa: E731
    call = compiled(tmp_path, function, torch.randn(7, 4), dynamic_shapes=({0: Dim("rows")},))
    for rows in (0, 1, 3, 9):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(call(x), function(x))


def test_what_is_only_traced_from_two_rows_on_says_so(tmp_path):
    function = lambda x: torch.outer(x[:, 0], x[:, 1])  # noqa: E731
    call = compiled(tmp_path, function, torch.randn(3, 4), dynamic_shapes=({0: Dim("rows")},))
    with pytest.raises(InputError, match="dim 0 of argument 'x' is 1, and has to be at least 2"):
        call(torch.randn(1, 4))


LARGEST = [
    lambda x: x.amax(0), lambda x: x.amin((0, 1)), torch.max, torch.min, torch.argmax,
    lambda x: x.argmin(0), lambda x: x.max(0), lambda x: x.min(0, keepdim=True)[1],
    lambda x: torch.aminmax(x, dim=0),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(LARGEST)))
def test_the_largest_of_nothing_is_refused(tmp_path, number):
    function = lambda x: LARGEST[number](x)  # noqa: E731
    call = compiled(tmp_path, function, torch.randn(3, 4), dynamic_shapes=({0: Dim("rows")},))
    for rows in (1, 6):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(call(x), function(x))
    with pytest.raises((IndexError, RuntimeError)):
        function(torch.randn(0, 4))
    with pytest.raises(InputError, match="dim 0 of argument 'x' is 0, and has to be at least 1"):
        call(torch.randn(0, 4))


@ZERO_IS_TAKEN
def test_rows_of_nothing_have_no_largest_but_nothing_has_rows(tmp_path):
    call = compiled(
        tmp_path, lambda x: x.amax(1), torch.randn(3, 4), dynamic_shapes=({0: Dim("rows")},)
    )
    assert call(torch.randn(0, 4)).shape == (0,)


@pytest.mark.parametrize("number", range(len(LARGEST)))
def test_nothing_that_was_selected_has_no_largest(tmp_path, number):
    def function(x):
        return LARGEST[number](x[x[:, 0] > 0])

    program = compiled(tmp_path, function, torch.randn(5, 4).abs())
    traced = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}
    with torch._dynamo.config.patch(**traced):
        torch._dynamo.reset()
        call = torch.compile(function, backend="kernelmill")
        x = torch.randn(5, 4)
        x[2] = x[2].abs()
        for run in (program, call):
            torch.testing.assert_close(run(x), function(x))
            with pytest.raises((InputError, RuntimeError)):
                run(-x.abs())


@ZERO_IS_TAKEN
def test_what_torch_asks_for_its_own_purposes_does_not_count(tmp_path):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Softmax(-1))

        def forward(self, x):
            return self.layers(x).flatten()

    model = Model().eval()
    call = compiled(tmp_path, model, torch.randn(3, 4), dynamic_shapes={"x": {0: Dim("rows")}})
    with torch.no_grad():
        for rows in (0, 1, 2):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(call(x), model(x))
