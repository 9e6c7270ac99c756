"""Random programs of torch operators: what makes, runs, compares and minimises them can be relied
on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.programs import values
from tests.programs.check import Verdict, by_name, check
from tests.programs.generator import LAYERS_FROM, generate
from tests.programs.minimise import minimise, runs
from tests.programs.modes import Made, Mode, Subject
from tests.programs.norms import CENTRED
from tests.programs.program import Program, Ref, Seed, Step, module_text
from tests.programs.rounding import EITHER_ZERO
from tests.programs.sums import SPREADS


def program(
    *steps: Step, results: tuple[str, ...] = ("v0",), dtype: Any = torch.float32
) -> Program:
    """A program of one argument `a0` of shape [n, 3]."""
    made = Step(("a0",), "values.make", (torch.float32, (Ref("n"), 3), "whole", Seed(0)))
    return Program((made,), ("a0",), (), (), steps, results, (3, 5))


DOUBLED = Step(("v0",), "torch.mul", (Ref("a0"), 2))
ROWS = Step(("v1",), "operator.getitem", (Ref("v0"), (0,)))


def test_a_seed_gives_the_same_program_and_eager_takes_it() -> None:
    texts = [module_text(generate(seed)) for seed in range(40)]
    assert texts == [module_text(generate(seed)) for seed in range(40)]
    assert len(set(texts)) == 40
    assert sum(runs(generate(seed)) for seed in range(40)) >= 36  # other seeds may be out of range


def test_only_later_seeds_have_the_operators_of_layers() -> None:
    def found(first: int) -> bool:
        texts = [module_text(generate(seed)) for seed in range(first, first + 40)]
        names = ("F.embedding", "F.one_hot", "torch.bucketize", "F.batch_norm", "torch.topk")
        return any(name in text for text in texts for name in names)

    assert (found(30000), found(LAYERS_FROM)) == (False, True)


@pytest.mark.parametrize("fill", sorted(values.FILLS))
def test_a_tensor_from_outside_has_memory_of_its_own(fill: str) -> None:
    for dtype in (torch.float64, torch.float32, torch.int64):
        one = values.make(dtype, (), fill)
        assert one.untyped_storage().nbytes() == one.element_size()


def spoiled(spoil: Callable[[Tensor], Tensor]) -> Mode:
    """A mode that runs eager and spoils its first result."""

    def make(subject: Subject) -> Made:
        model = subject.model()

        def run(*args: Any) -> Any:
            first, *others = model(*args)
            return spoil(first), *others

        return model, run

    plain = by_name("default").reference
    return Mode("default", make, plain)


def test_what_is_planted_is_seen() -> None:
    def kind(spoil: Callable[[Tensor], Tensor], *steps: Step) -> str:
        found = check(program(*steps, results=(steps[-1].names[0],)), spoiled(spoil))
        assert found.status == ("wrong" if found.kind else "right")
        return found.kind

    view = Step(("v0",), "torch.transpose", (Ref("a0"), 0, 1))
    assert kind(lambda t: t, DOUBLED) == ""
    assert kind(lambda t: t + 1, DOUBLED) == "values"
    assert kind(lambda t: t.double(), DOUBLED) == "values"
    assert kind(torch.neg, replace(DOUBLED, args=(Ref("a0"), 0.0))) == "values"
    assert kind(lambda t: t.t().contiguous().t(), DOUBLED) == "strides"
    assert kind(lambda t: t.clone(), view) == "aliasing"
    assert kind(lambda t: t.add_(1).sub(1).t().contiguous().t(), view) == "mutation"


def test_strides_that_torch_traces_are_torchs_and_others_are_wrong() -> None:
    rows = Step(("v0",), "Tensor.unfold", (Ref("a0"), 0, 1, 1))
    wanted = program(rows, Step(("v1",), "torch.nan_to_num", (Ref("v0"),)), results=("v1",))
    flat = Step(("a0",), "values.make", (torch.float32, (1, 2), "whole", Seed(0)))
    wanted = replace(wanted, inputs=(flat,))
    assert check(wanted, by_name("default")).status == "torch"
    other = spoiled(lambda t: t.as_strided(t.shape, (7, *t.stride()[1:])))
    assert check(wanted, other).kind == "strides" and check(wanted, other).status == "wrong"


def test_the_shape_that_torch_traces_of_nothing_is_torchs_and_another_is_wrong() -> None:
    """Eager leaves a tensor without elements in the shape that it has."""
    wanted = program(Step(("v0",), "F.pixel_unshuffle", (Ref("a0"), 2)))
    empty = Step(("a0",), "values.make", (torch.float32, (0, 2, 0), "whole", Seed(0)))
    wanted = replace(wanted, inputs=(empty,))
    assert check(wanted, by_name("default")).status == "torch"
    other = check(wanted, spoiled(lambda t: t.reshape(0, 3, 0)))
    assert (other.status, other.kind) == ("wrong", "values")
    assert check(wanted, spoiled(lambda t: t.reshape(0, 1, 0).double())).status == "wrong"


def test_strides_that_torch_traces_for_symbols_are_torchs_where_sizes_vary() -> None:
    turned = Step(("v0",), "torch.permute", (Ref("a0"), (1, 0, 3, 2)))
    wanted = program(turned, Step(("v1",), "torch.floor_divide", (Ref("v0"), 7)), results=("v1",))
    flat = Step(("a0",), "values.make", (torch.int64, (1, 1, 2, 1), "whole", Seed(0)))
    wanted = replace(wanted, inputs=(flat,))
    assert check(wanted, by_name("default")).status == "right"
    assert check(wanted, by_name("dynamic")).status == "torch"
    other = spoiled(lambda t: t.as_strided(t.shape, (2, 2, 2, 1)))
    assert check(wanted, other).status == "wrong"
    assert check(wanted, replace(other, varies=True)).status == "torch"


def test_rounding_is_no_fault_and_an_error_is() -> None:
    rounded = Step(("v0",), "torch.exp", (Ref("a0"),), rounds=True)
    near = check(program(rounded), spoiled(lambda t: t * (1 + 1e-7)))
    far = check(program(rounded), spoiled(lambda t: t * (1 + 1e-3)))
    assert (near.status, far.status) == ("right", "wrong")

    def fails(tensor: Tensor) -> Tensor:
        raise IndexError("planted")

    assert check(program(DOUBLED), spoiled(fails)).kind == "IndexError"


def test_numbers_of_float32_in_float64_are_near_by_the_measure_of_float32() -> None:
    """Four roundings of other kinds may all have given what eager has."""
    norm = Step(("v0",), "F.group_norm", (Ref("a0"), 3), rounds=True)
    made = Step(("a0",), "torch.tensor", ((((-3.0, 5.0, 1.0, 2.0, -7.0),) * 3,),))
    wide = Step(("v1",), "torch.mul", (Ref("v0"), Ref("a1")))
    one = Step(("a1",), "torch.ones", ((1,),), (("dtype", torch.float64),))
    wanted = Program((made, one), ("a0", "a1"), (), (), (norm, wide), ("v1",), (3, 5))

    def next_of_float32(tensor: Tensor) -> Tensor:
        return tensor.float().nextafter(torch.tensor(math.inf)).double()

    assert check(wanted, spoiled(next_of_float32)).status == "right"
    assert check(wanted, spoiled(lambda t: t * (1 + 1e-5))).status == "wrong"


@pytest.mark.parametrize("function", sorted(EITHER_ZERO))
def test_eager_itself_takes_one_zero_here_and_another_there(function: str) -> None:
    """Nobody can be asked for its zeros; for those of `torch.clamp` and `torch.fmin` one can."""
    name = function.partition(".")[2]
    signs: set[bool] = set()
    if name in ("minimum", "maximum"):
        one, other = torch.zeros(67), torch.full((67,), -0.0)
        signs.update(torch.signbit(getattr(torch, name)(one, other)).tolist())
    else:
        plain = name.removeprefix("a")
        for found in (getattr(torch, plain), getattr(torch, f"a{plain}")):
            for length in (2, 99):
                zeros = torch.full((1, length), -0.0)
                zeros[0, 0] = 0.0
                made = found(zeros, -1)
                signs.add(bool(torch.signbit(made if isinstance(made, Tensor) else made[0])))
    assert signs == {False, True}


def test_eager_clamps_to_one_zero_in_a_vector_and_to_another_behind_it() -> None:
    zeros, bound = torch.full((67,), -0.0), torch.zeros(67)
    assert set(torch.signbit(torch.clamp(zeros, bound, None)).tolist()) == {False, True}
    assert set(torch.signbit(torch.clamp(zeros, 0.0, None)).tolist()) == {True}


def test_zeros_that_eager_leaves_open_are_right_with_either_sign() -> None:
    def either(function: str, turned: bool, bound: float | None = None) -> str:
        zeros = [Step((n,), "values.make", (torch.float32, (40,), "special", Seed(k)))
                 for k, n in enumerate(("a0", "a1"))]  # fmt: skip
        step = Step(("v0",), function, (Ref("a0"), Ref("a1") if bound is None else bound))
        wanted = Program(tuple(zeros), ("a0", "a1"), (), (), (step,), ("v0",), (3, 5))
        return check(wanted, spoiled(lambda t: torch.where(t == 0, -t, t) if turned else t)).status

    assert either("torch.maximum", True) == "right"
    assert either("torch.fmax", True) == "wrong" and either("torch.fmax", False) == "right"
    assert either("torch.clamp", True) == "right"
    assert (
        either("torch.clamp", True, -1) == "wrong" and either("torch.clamp", False, -1) == "right"
    )


def made_of(step: Step, *numbers: float) -> Program:
    """A program of one step on these numbers, which rounds."""
    fixed = Step(("a0",), "torch.tensor", ((numbers,),))
    return Program((fixed,), ("a0",), (), (), (replace(step, rounds=True),), ("v0",), (3, 5))


def test_a_sum_that_overflows_in_some_order_may_and_others_may_not() -> None:
    def status(numbers: tuple[float, ...], found: float, function: str = "sum") -> str:
        step = Step(("v0",), f"torch.{function}", (Ref("a0"), -1))
        return check(made_of(step, *numbers), spoiled(lambda t: torch.full_like(t, found))).status

    assert status((3e38, -3e38, 3e38), math.inf) == "right"
    assert status((-3e38, 3e38, -3e38), -math.inf, "mean") == "right"
    assert status((3e38, -3e38, -3e38, 3e38), math.nan) == "right"
    assert status((3e38, -3e38), math.inf) == "wrong"
    assert status((3e38,), math.inf) == "wrong"
    assert status((1.0, 2.0), math.inf) == "wrong"


def test_a_product_that_overflows_in_some_order_may_and_others_may_not() -> None:
    def status(numbers: tuple[float, ...], found: float) -> str:
        ones = Step(("a1",), "torch.tensor", (((1.0, -1.0, 1.0),),))
        wanted = made_of(Step(("v0",), "F.linear", (Ref("a0"), Ref("a1"))), *numbers)
        wanted = replace(wanted, inputs=(*wanted.inputs, ones), arguments=("a0", "a1"))
        return check(wanted, spoiled(lambda t: torch.full_like(t, found))).status

    assert status((3e38, 3e38, 3e38), math.inf) == "right"
    assert status((-3e38, -3e38, -3e38), -math.inf) == "right"
    assert status((3e38, 3e38, 0.0), math.inf) == "wrong"
    assert status((1.0, 2.0, 3.0), math.nan) == "wrong"


def test_a_small_term_among_large_ones_may_be_swallowed_and_others_may_not() -> None:
    """Of -5e18 + 0.5 + 5e18 every order makes 0 or 0.5, in float64 too."""
    made = Step(("a0",), "values.make", (torch.float32, (1, 3), "huge", Seed(1)))
    summed = Step(("v0",), "torch.sum", (Ref("a0"), 1), rounds=True)
    wanted = Program((made,), ("a0",), (), (), (summed,), ("v0",), (3, 5))
    assert check(wanted, spoiled(lambda t: t + 0.5)).status == "right"
    assert check(wanted, spoiled(lambda t: t + 1e14)).status == "wrong"
    whole = replace(made, args=(torch.float32, (1, 3), "whole", Seed(1)))
    assert check(replace(wanted, inputs=(whole,)), spoiled(lambda t: t + 0.5)).status == "wrong"


def test_the_largest_number_is_no_rounded_infinity() -> None:
    step = Step(("v0",), "torch.nan_to_num", (Ref("a0"),))
    wanted = replace(made_of(step, *[math.inf, -math.inf] * 20), steps=(step,))
    assert check(wanted, spoiled(lambda t: t)).status == "right"
    first = torch.arange(40) == 0
    assert check(wanted, spoiled(lambda t: torch.where(first, 2 * t, t))).status == "wrong"


@pytest.mark.parametrize("function", sorted(CENTRED))
def test_a_norm_whose_variance_overflows_may_be_nan_and_others_may_not(function: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {
        "F.layer_norm": ((4,),),
        "F.group_norm": (2,),
        "F.batch_norm": (None, None, None, None, True),
    }

    def status(one: float, other: float) -> str:
        rows = ((one, other, one, other), (other, one, other, one))
        norm = Step(("v0",), function, (Ref("a0"), *arguments[function]), rounds=True)
        wanted = replace(made_of(norm), inputs=(Step(("a0",), "torch.tensor", (rows,)),))
        return check(wanted, spoiled(lambda t: torch.full_like(t, math.nan))).status

    assert status(1e20, -1e20) == "right"
    assert status(1e18, -1e18) == "wrong"
    assert status(1.0, 2.0) == "wrong"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_norm_of_its_mean_may_lie_on_either_side_of_zero(dtype: torch.dtype) -> None:
    """Eager gives x * s - mean * s, in one rounding or two: 2e-16 is one of its zeros."""

    def status(number: float, mean: float) -> str:
        names = "a0", "a1", "a2"
        fixed = [
            Step((name,), "torch.tensor", (row,), (("dtype", dtype),))
            for name, row in zip(names, (((number,),), (mean,), (1.0,)), strict=True)
        ]
        args = *map(Ref, names), None, None, False
        norm = Step(("v",), "F.batch_norm", args, rounds=True)
        above = Step(("v0",), "torch.gt", (Ref("v"), 0))
        wanted = Program(tuple(fixed), names, (), (), (norm, above), ("v0",), (3, 5))
        return check(wanted, spoiled(torch.logical_not)).status

    assert status(-1.0, -1.0) == "right"
    assert status(3.0, 3.0) == "right"
    assert status(3.001, 3.0) == "wrong"
    assert status(-1.0, 1.0) == "wrong"


def test_denormals_in_products_of_bfloat16_may_be_zeros() -> None:
    def status(dtype: torch.dtype, found: float) -> str:
        numbers = [Step((name,), "torch.tensor", ((row,),), (("dtype", dtype),))
                   for name, row in (("a0", (math.inf, 1.0)), ("a1", (1e-39, 1.0)))]  # fmt: skip
        step = Step(("v0",), "F.linear", (Ref("a0"), Ref("a1")), rounds=True)
        wanted = Program(tuple(numbers), ("a0", "a1"), (), (), (step,), ("v0",), (3, 5))
        return check(wanted, spoiled(lambda t: torch.full_like(t, found))).status

    assert status(torch.bfloat16, math.nan) == "right"
    assert status(torch.float32, math.nan) == "wrong"


def test_a_mean_beside_a_variance_may_be_what_mean_gives() -> None:
    def status(found: float, *numbers: float) -> str:
        step = Step(("w", "v0"), "torch.var_mean", (Ref("a0"), -1), (("correction", 0),))
        return check(made_of(step, *numbers), spoiled(lambda t: torch.full_like(t, found))).status

    assert status(-math.inf, -math.inf, 1.0) == "right"  # eager: NaN
    assert status(math.nan, 1.0, -math.inf) == "wrong"  # eager: -inf
    assert status(math.inf, 1.0, 2.0) == "wrong"


def test_integers_found_from_a_number_that_is_open_are_open_too() -> None:
    def status(*numbers: float) -> str:
        step = Step(("w", "v"), "torch.var_mean", (Ref("a0"), -1), (("correction", 0),), True)
        wanted = made_of(Step(("v0",), "torch.isnan", (Ref("v"),)), *numbers)
        wanted = replace(wanted, steps=(step, *wanted.steps))
        return check(wanted, spoiled(torch.logical_not)).status

    assert status(-math.inf, 1.0) == "right"
    assert status(2.0, 1.0) == "wrong"


def test_a_failing_program_is_minimised() -> None:
    full = generate(3)
    full = replace(full, steps=(*full.steps, Step(("z",), "torch.neg", (Ref(full.arguments[0]),))))
    smallest = minimise(
        replace(full, results=(*full.results, "z")),
        lambda p: any(step.function == "torch.neg" for step in p.steps) and "z" in p.results,
    )
    assert [step.function for step in smallest.steps] == ["torch.neg"]
    assert len(smallest.inputs) == 1 and smallest.results == ("z",)


@pytest.mark.parametrize(
    "mode", ["default", "dynamic", "gears", "super-kernel", "cache-load", "aot"]
)
def test_modes_run_a_plain_program(mode: str) -> None:
    wanted = program(DOUBLED, replace(ROWS, args=(Ref("v0"), (0,))), results=("v0",))
    assert check(wanted, by_name(mode)) == Verdict(mode, "right")


@pytest.mark.parametrize("mode", ["default", "dynamic", "cache-load", "gears-padded"])
def test_random_programs(mode: str) -> None:
    chosen = by_name(mode)
    programs = [made for made in map(generate, range(300, 316)) if chosen.takes(made)]
    assert programs
    for made in programs:
        verdict = check(made, chosen)
        assert verdict.status != "wrong", f"{verdict.detail}\n{module_text(made)}"


# ---- gradients ----------------------------------------------------------------------------------


def with_gradient(inputs: dict[str, tuple[tuple[float, ...], ...]], *steps: Step) -> Program:
    """A program that wants the gradients of these tensors, and returns what the last step makes."""
    given = tuple(
        Step((name,), "torch.tensor", (rows,), (("requires_grad", True),))
        for name, rows in inputs.items()
    )
    return Program(given, tuple(inputs), (), (), steps, steps[-1].names, (3, 5), True)


def changed_gradient(change: Callable[[Tensor], Tensor]) -> Mode:
    """Eager, with the gradient of the first argument changed on its way."""

    def spoil(model: Any, first: Tensor, *others: Tensor) -> Any:
        passed = first.view_as(first)
        passed.register_hook(change)
        return model(passed, *others)

    def make(subject: Subject) -> Made:
        model = subject.model()
        return model, lambda *args: spoil(model, *args)

    return Mode("default", make, by_name("default").reference)


def test_eager_itself_sums_products_so_here_and_otherwise_there() -> None:
    """What overflows in one order of the terms and not in another: more columns, another order."""
    column = torch.tensor([[-2.6e38], [-1e38]])
    grad = torch.tensor([[4.0], [-4.0]])
    few, many = column.T @ grad, column.repeat(1, 16).T @ grad.repeat(1, 17)
    assert few.isnan().all() and (many == -math.inf).all()


def test_a_gradient_that_overflows_in_some_order_may_and_others_may_not() -> None:
    def status(weights: tuple[tuple[float, ...], ...], found: float) -> str:
        # The gradient is the sum of 3 x the first row's and -1 x the second's: see `_backward`.
        product = Step(("v0",), "torch.matmul", (Ref("a1"), Ref("a0")), rounds=True)
        wanted = with_gradient({"a0": ((1.0,), (1.0,)), "a1": weights}, product)
        return check(wanted, changed_gradient(lambda g: torch.full_like(g, found))).status

    huge = ((3.3e38, 3.3e38), (3.3e38, 3.3e38), (-3.3e38, -3.3e38))
    tame = ((3.0, 3.0), (2.0, 2.0), (1.0, 1.0))
    assert {status(huge, found) for found in (math.inf, -math.inf, math.nan)} == {"right"}
    assert {status(tame, found) for found in (math.inf, -math.inf, math.nan)} == {"wrong"}


@pytest.mark.parametrize("function", sorted(SPREADS))
def test_means_in_gradients_of_variances_may_overflow_and_others_may_not(
    function: str,
) -> None:
    def status(large: float, found: float) -> str:
        names = ("v0", "v1") if function == "torch.var_mean" else ("v0",)
        rows = tuple((sign * large, 1.0 + sign) for sign in (1, 1, -1, -1, -1))
        step = Step(names, function, (Ref("a0"), 0), (("correction", 0),), rounds=True)
        spoil = changed_gradient(lambda g: g.index_fill(1, torch.tensor(0), found))
        wanted = replace(with_gradient({"a0": rows}, step), results=("v0",))
        return check(wanted, spoil).status

    assert status(2e38, math.inf) == status(2e38, -math.inf) == "right"
    assert status(2.0, math.inf) == status(2.0, -math.inf) == "wrong"


def test_a_gradient_through_an_infinity_is_compared() -> None:
    first = Step(("v0",), "torch.add", (Ref("a0"), 3e38), rounds=True)
    wanted = with_gradient({"a0": ((3e38, 1.0),)}, first, Step(("v1",), "torch.amax", (Ref("v0"),)))
    assert check(wanted, changed_gradient(lambda g: g)).status == "right"
    assert check(wanted, changed_gradient(lambda g: g * 2)).status == "wrong"


# ---- norms --------------------------------------------------------------------------------------


def test_eagers_own_norms_round_a_mean_otherwise() -> None:
    """All of a row is moved by that, also what no rounding of the row itself would move."""
    row = torch.tensor([[-4.5765533447265625, -4.67837381362915, -4.010208606719971]])
    one, other = (f(row, 3) for f in (_layer_norm, _group_norm))
    true = _layer_norm(row.double(), 3)
    assert not torch.equal(one, other)
    assert (one - true).abs().max() > 2 * torch.finfo(torch.float32).eps


def _layer_norm(x: Tensor, size: int) -> Tensor:
    return torch.nn.functional.layer_norm(x, (size,))


def _group_norm(x: Tensor, size: int) -> Tensor:
    return torch.nn.functional.group_norm(x, 1)


def test_a_norm_may_be_as_far_from_eagers_as_eager_is_from_exact() -> None:
    rows = ((-4.5765533447265625, -4.67837381362915, -4.010208606719971),)
    norm = Step(("v0",), "F.layer_norm", (Ref("a0"), (3,)), rounds=True)
    made = Step(("a0",), "torch.tensor", (rows,))
    wanted = Program((made,), ("a0",), (), (), (norm,), ("v0",), (3, 5))
    assert check(wanted, spoiled(lambda t: t * (1 - 1.4e-6))).status == "right"
    assert check(wanted, spoiled(lambda t: t * (1 - 1e-4))).status == "wrong"


def test_eagers_own_norms_are_zero_here_and_nan_there_where_the_variance_overflows() -> None:
    for dtype in (torch.float32, torch.float64):
        row = torch.zeros(1, 8, dtype=dtype)
        row[0, 1] = -torch.finfo(dtype).max / 1.05
        other = row.clone()
        other[0, ::2] = row[0, 1]
        assert (_layer_norm(row, 8) == 0).all() and _layer_norm(other, 8).isnan().all()


def test_a_norm_whose_variance_overflows_may_be_zero_and_others_may_not() -> None:
    def status(large: float) -> str:
        made = Step(("a0",), "torch.tensor", (((large, 0.0, large, 1.0),),),
                    (("dtype", torch.float64),))  # fmt: skip
        norm = Step(("v0",), "F.layer_norm", (Ref("a0"), (4,)), rounds=True)
        wanted = Program((made,), ("a0",), (), (), (norm,), ("v0",), (3, 5))
        return check(wanted, spoiled(torch.zeros_like)).status

    assert (status(-1.7e308), status(-1.7), status(math.inf)) == ("right", "wrong", "wrong")


def test_the_trace_of_the_first_call_gives_the_strides_of_later_ones_where_it_serves_them() -> None:
    made = Step(("a0",), "values.make", (torch.float32, (1, Ref("n"), 2), "whole", Seed(0)))
    turned = Step(("a1",), "torch.permute", (Ref("a0"), (2, 1, 0)))
    step = Step(("v0",), "torch.neg", (Ref("a1"),))
    wanted = Program((made, turned), ("a1",), (), (), (step,), ("v0",), (13, 1))
    assert check(wanted, by_name("gears")).status == "torch"
    other = spoiled(lambda t: t.as_strided(t.shape, (1, 9, 9)))
    gears = replace(other, varies=True, one_trace=True)
    assert check(wanted, gears).status == "wrong"
