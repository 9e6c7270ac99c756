"""Gears through torch.compile: one trace, a static program for each gear, an error for the rest."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import kernelmill
from kernelmill import CompilerConfig, GearError, get_backend
from kernelmill.backend.gear_calls import GearedCalls
from kernelmill.compiler.pipeline import Compiler, GraphReport
from kernelmill.core.errors import UnsupportedError
from kernelmill.inference import set_dim_gears
from kernelmill.runtime.gears import padded_calls
from kernelmill.runtime.program import Program
from tests.compiled import reported
from tests.tolerances import assert_close

pytestmark = pytest.mark.usefixtures("strict")
Golden = Callable[[str, str], None]


def config(**options: Any) -> CompilerConfig:
    made = CompilerConfig()
    for name, value in options.items():
        setattr(made.inference_config, name, value)
    return made


def small_bert() -> Any:
    from transformers import BertConfig, BertModel

    size: dict[str, int] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    return BertModel(BertConfig(vocab_size=50, intermediate_size=64, **size)).eval()


def compiled(model: Any, made: CompilerConfig | None = None, **options: Any) -> Any:
    counters.clear()
    options.setdefault("fullgraph", True)
    return torch.compile(model, backend=get_backend(compiler_config=made), **options)


def compiled_with_reports(
    model: Any, made: CompilerConfig | None = None, **options: Any
) -> tuple[Any, list[GraphReport]]:
    """The compiled model, and the reports of what is compiled for its calls."""
    counters.clear()
    options.setdefault("fullgraph", True)
    backend, reports = reported(config=made)
    return torch.compile(model, backend=backend, **options), reports


def traces() -> int:
    return counters["stats"]["unique_graphs"]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).eval()


class Add(nn.Module):
    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return x1 + x2


@pytest.mark.parametrize("dynamic", [None, True])
def test_the_example_of_the_documentation(
    dynamic: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    input1, input2 = torch.ones(2, 2), torch.ones(2, 2)
    set_dim_gears(input1, {0: [2, 4]})
    set_dim_gears(input2, dim_gears={0: [2, 4]})
    model = compiled(Add(), dynamic=dynamic)
    logger = logging.getLogger("kernelmill")
    before, logger.propagate = (logger.level, logger.propagate), True
    try:
        with caplog.at_level(logging.INFO, "kernelmill.backend"):
            assert torch.equal(model(input1, input2), torch.full((2, 2), 2.0))
    finally:
        logger.propagate = before[1]
    assert torch.equal(model(torch.ones(4, 2), torch.ones(4, 2)), torch.full((4, 2), 2.0))
    assert traces() == 1
    lines = [record.getMessage() for record in caplog.records]
    start = lines.index("Compiling concrete graph 0 with options:")
    assert lines[start + 1 : start + 4] == [
        "    ge.dynamicDims = 2,2;4,4",
        "    ge.dynamicNodeType = 1",
        "    ge.inputShape = arg1_1:-1,2;arg2_1:-1,2",
    ]


def test_many_mixed_calls_are_one_trace() -> None:
    reference = mlp()
    model = compiled(copy.deepcopy(reference))
    sizes = [2, 4, 8, 16, 3]
    x = torch.randn(4, 8)
    set_dim_gears(x, {0: sizes})
    with torch.no_grad():
        assert_close(model(x), reference(x))
        for n in sizes * 40:
            x = torch.randn(n, 8)
            assert_close(model(x), reference(x))
    assert traces() == 1


def test_every_gear_is_static_and_weights_are_packed_once() -> None:
    net = mlp()
    model, reports = compiled_with_reports(net)
    x = torch.randn(2, 8)
    set_dim_gears(x, {0: [2, 4, 16]})
    with torch.no_grad():
        model(x)
    assert [report.name.rpartition("_gear_")[2] for report in reports] == ["2", "4", "16"]
    assert all(report.arena_bytes.isdigit() and not report.fallbacks for report in reports)


def test_gears_share_kernels_where_that_costs_little() -> None:
    torch.manual_seed(0)
    reference = nn.Sequential(
        nn.Linear(512, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 512)
    )
    model, reports = compiled_with_reports(copy.deepcopy(reference))
    sizes = [1024, 768, 512, 250]
    inputs = [torch.randn(size, 512) for size in sizes]
    set_dim_gears(inputs[0], {0: sizes})
    with torch.no_grad():
        for x in inputs * 2:
            assert_close(model(x), reference(x))
    assert traces() == 1
    kernels = [{kernel.name for kernel in report.kernels} for report in reports]
    assert kernels[0] == kernels[1] == kernels[2] == kernels[3]
    assert any(kernel.kind == "dynamic" for kernel in reports[0].kernels)
    with pytest.raises(GearError):
        model(torch.randn(5, 512))


def test_product_over_two_arguments() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return a.sum(0) * b.amax(0)

    model = compiled(function, config(dynamic_gears_merge_policy="product"))
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    set_dim_gears(a, {0: [2, 4]})
    set_dim_gears(b, {0: [2, 4]})
    assert_close(model(a, b), function(a, b))
    for n, m in ((2, 4), (4, 2), (4, 4)):
        a, b = torch.randn(n, 3), torch.randn(m, 3)
        assert_close(model(a, b), function(a, b))
    assert traces() == 1


def test_combinations_that_the_model_cannot_take_are_left_out() -> None:
    made = config(dynamic_gears_merge_policy="product")
    model, reports = compiled_with_reports(Add(), made)
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    set_dim_gears(a, {0: [2, 4]})
    set_dim_gears(b, {0: [2, 4]})
    assert torch.equal(model(a, b), a + b)
    assert len(reports) == 2
    with pytest.raises(GearError, match=r"\(x1\[0\]=4, x2\[0\]=2\) does not fit the model"):
        model(torch.randn(4, 3), torch.randn(2, 3))


def test_nested_and_keyword_arguments() -> None:
    def function(batch: dict[str, Any], *, scale: Tensor) -> Tensor:
        first, second = batch["pair"]
        return torch.cat([first, second], 1) * scale

    model = compiled(function)
    pair = [torch.randn(2, 3), torch.randn(2, 5)]
    scale = torch.randn(2, 1)
    for tensor in (*pair, scale):
        set_dim_gears(tensor, {0: [2, 6]})
    assert torch.equal(model({"pair": pair}, scale=scale), function({"pair": pair}, scale=scale))
    pair, scale = [torch.randn(6, 3), torch.randn(6, 5)], torch.randn(6, 1)
    assert torch.equal(model({"pair": pair}, scale=scale), function({"pair": pair}, scale=scale))
    assert traces() == 1
    with pytest.raises(GearError, match=r"batch.pair.0\[0\]=3"):
        model({"pair": [torch.randn(3, 3), torch.randn(3, 5)]}, scale=torch.randn(3, 1))


def test_integer_arguments_stay_free() -> None:
    def function(x: Tensor, n: int) -> Tensor:
        return x * n + x.shape[0]

    model = compiled(function, dynamic=True)
    x = torch.randn(2, 8)
    set_dim_gears(x, {0: [2, 4]})
    assert torch.equal(model(x, 2), function(x, 2))
    for rows, n in ((4, 7), (2, 3), (4, 2), (2, 4)):
        x = torch.randn(rows, 8)
        assert torch.equal(model(x, n), function(x, n))


def test_zero_and_one_from_the_same_trace() -> None:
    reference = mlp()
    model = compiled(copy.deepcopy(reference), config(allow_small_gears=True))
    x = torch.randn(1, 8)
    set_dim_gears(x, {0: [0, 1, 2, 5]})
    with torch.no_grad():
        model(x)
        for n in (1, 5, 0, 2):
            x = torch.randn(n, 8)
            assert_close(model(x), reference(x))
    assert traces() == 1


@pytest.fixture
def always_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call of another size runs the program for all sizes, which small models always would."""
    monkeypatch.setattr(padded_calls, "estimated_ns", lambda plan, sizes: len(plan.symbols))


def test_other_sizes_by_a_program_for_all() -> None:
    reference = mlp()
    model = compiled(copy.deepcopy(reference), config(gear_miss="dynamic"))
    x = torch.randn(2, 8)
    set_dim_gears(x, {0: [2, 4]})
    with torch.no_grad():
        for n in (2, 4, 3, 9):
            x = torch.randn(n, 8) if n != 2 else x
            assert_close(model(x), reference(x))
    assert traces() == 1


def test_the_mode_of_single_operators() -> None:
    reference = mlp()
    made = config()
    made.mode = "reduce-overhead"
    model = compiled(copy.deepcopy(reference), made)
    x = torch.randn(2, 8)
    set_dim_gears(x, {0: [2, 4]})
    with torch.no_grad():
        for n in (2, 4, 2):
            x = torch.randn(n, 8) if n != 2 else x
            assert_close(model(x), reference(x))
        with pytest.raises(GearError, match="not among the gears"):
            model(torch.randn(3, 8))
    assert traces() == 1


@pytest.mark.usefixtures("always_padded")
@pytest.mark.parametrize("sizes", [[2, 4, 16], [1, 4, 16]])
def test_padding_to_the_smallest_gear(sizes: list[int]) -> None:
    reference = mlp()
    made = config(gear_miss="pad", allow_small_gears=1 in sizes)
    model = compiled(copy.deepcopy(reference), made)
    x = torch.randn(3, 8)
    set_dim_gears(x, {0: sizes})
    with torch.no_grad():
        for n in (3, 2, 4, 5, 16, 15):
            x = torch.randn(n, 8) if n != 3 else x
            ours = model(x)
            assert ours.stride() == (4, 1)
            assert_close(ours, reference(x))
        with pytest.raises(GearError, match=r"\[0\]=17"):
            model(torch.randn(17, 8))
    assert traces() == 1


@pytest.mark.usefixtures("always_padded")
def test_padding_a_masked_model() -> None:
    torch.manual_seed(0)
    bert = small_bert()

    def inputs(batch: int, length: int) -> dict[str, Tensor]:
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[-1, length // 2 :] = 0
        return {"input_ids": torch.randint(0, 50, (batch, length)), "attention_mask": mask}

    made = config(gear_miss="pad", gear_pad_masks=["attention_mask"])
    made.inference_config.dynamic_gears_merge_policy = "zip"
    model = compiled(copy.deepcopy(bert), made, dynamic=True)
    given = inputs(2, 7)
    for tensor in given.values():
        set_dim_gears(tensor, {0: [2, 2, 4, 4], 1: [8, 16, 8, 16]})
    with torch.no_grad():
        for batch, length in ((2, 7), (3, 8), (4, 15), (2, 16), (3, 3)):
            given = inputs(batch, length) if (batch, length) != (2, 7) else given
            ours, eager = model(**given), bert(**given)
            assert_close(ours.last_hidden_state, eager.last_hidden_state)
            assert_close(ours.pooler_output, eager.pooler_output)
    assert traces() == 1


def test_no_padding_where_it_could_change_a_result() -> None:
    model = compiled(lambda x: x.softmax(0) + x.mean(0), config(gear_miss="pad"))
    x = torch.randn(2, 8)
    set_dim_gears(x, {0: [2, 4]})
    with pytest.raises(kernelmill.PaddingError, match=r"could change results: .*test_gears.py"):
        model(x)


@pytest.mark.parametrize("lazy", [False, True])
def test_no_padding_where_a_size_that_is_returned_depends_on_an_integer(lazy: bool) -> None:
    def function(x: Tensor, n: int) -> tuple[Tensor, int]:
        return x * n, n + x.shape[0]

    options = config(gear_miss="error" if lazy else "pad")
    options.experimental_config.gears_eager = not lazy
    model = torch.compile(
        function, backend=kernelmill.get_backend(compiler_config=options), dynamic=True
    )
    x = torch.randn(4, 8)
    set_dim_gears(x, {0: [2, 4, 6]})
    if not lazy:
        with pytest.raises(kernelmill.PaddingError, match="no argument has the size"):
            model(x, 3)
        return
    for size, n in ((4, 3), (2, 3), (6, 5), (2, 4)):
        x = x if size == 4 else torch.randn(size, 8)
        torch.testing.assert_close(model(x, n), function(x, n))


class Scaled(nn.Module):
    """Rows times a number each: the size of the second argument is that of the first again."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.rows(x) * scale[:, None]


@pytest.mark.parametrize("most", [96, 512])
def test_padding_where_it_is_sooner_than_the_program_for_all_sizes(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[GearedCalls] = []

    def geared_calls(*args: Any) -> GearedCalls:
        made.append(GearedCalls(*args))
        return made[-1]

    monkeypatch.setattr("kernelmill.backend.capture.GearedCalls", geared_calls)
    reference = Scaled().eval()
    model = compiled(copy.deepcopy(reference), config(gear_miss="pad"))
    arguments = {n: (torch.randn(n, 256), torch.randn(n)) for n in (most - 1, most // 8 + 1)}
    for argument in arguments[most - 1]:
        set_dim_gears(argument, {0: [most // 8, most]})
    with torch.no_grad():
        for each in arguments.values():
            assert_close(model(*each), reference(*each))
    (call,) = made
    assert call.padded is not None and call.padded.dynamic is not None
    gear = call.program.table[(most,)]
    assert isinstance(gear, Program)
    assert (gear.report()["calls"], call.padded.dynamic.report()["calls"]) == (1, 1)


def test_a_model_without_a_program_for_all_sizes_is_padded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> Any:
        raise UnsupportedError("sizes that are not known")

    monkeypatch.setattr(Compiler, "compile", refuse)
    reference = mlp()
    model = compiled(copy.deepcopy(reference), config(gear_miss="pad"))
    x = torch.randn(3, 8)
    set_dim_gears(x, {0: [2, 4, 16]})
    with torch.no_grad():
        assert_close(model(x), reference(x))


def test_no_padding_past_what_was_traced() -> None:
    def function(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 5 else x * 3

    model = compiled(function, config(gear_miss="pad"))
    x = torch.randn(8, 3)
    set_dim_gears(x, {0: [8, 12]})
    assert torch.equal(model(x), x * 2)
    x = torch.randn(7, 3)
    assert torch.equal(model(x), x * 2)
    with pytest.raises(kernelmill.InputError, match="at least 6"):
        model(torch.randn(4, 3))


def test_training() -> None:
    torch.manual_seed(3)
    reference = mlp().train()
    net = copy.deepcopy(reference)
    model = compiled(net)
    for n in (2, 4, 2, 8):
        x = torch.randn(n, 8)
        if traces() == 0:
            set_dim_gears(x, {0: [2, 4, 8]})
        for one in (net, reference):
            one.zero_grad()
        model(x).square().sum().backward()
        reference(x).square().sum().backward()
        for ours, eager in zip(net.parameters(), reference.parameters(), strict=True):
            assert_close(ours.grad, eager.grad)
    assert traces() == 1
    with pytest.raises(GearError, match=r"\[0\]=5"):
        model(torch.randn(5, 8))


def test_an_updated_buffer() -> None:
    class Counting(nn.Module):
        total: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.total += x.sum(0)
            return x - self.total

    reference, net = Counting(), Counting()
    model = compiled(net)
    for n in (2, 4, 2):
        x = torch.randn(n, 3)
        if traces() == 0:
            set_dim_gears(x, {0: [2, 4]})
        assert_close(model(x), reference(x))
        assert_close(net.total, reference.total)
    assert traces() == 1


def test_batch_and_length_of_a_model() -> None:
    torch.manual_seed(0)
    bert = small_bert()

    def inputs(batch: int, length: int) -> dict[str, Tensor]:
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[-1, length // 2 :] = 0
        return {"input_ids": torch.randint(0, 50, (batch, length)), "attention_mask": mask}

    made = config(dynamic_gears_merge_policy="zip")
    model, reports = compiled_with_reports(copy.deepcopy(bert), made, dynamic=True)
    gears = {0: [2, 2, 4, 4], 1: [8, 16, 8, 16]}
    given = inputs(2, 8)
    for tensor in given.values():
        set_dim_gears(tensor, gears)
    with torch.no_grad():
        model(**given)
        for batch, length in zip(*gears.values(), strict=True):
            given = inputs(batch, length)
            ours, eager = model(**given), bert(**given)
            assert_close(ours.last_hidden_state, eager.last_hidden_state)
            assert_close(ours.pooler_output, eager.pooler_output)
        with pytest.raises(GearError, match="not among the gears"):
            model(**inputs(2, 12))
    assert traces() == 1 and len(reports) == 4
    assert not any(report.fallbacks for report in reports)


@pytest.mark.parametrize("forward", [Add.forward, lambda me, x, y: x + y])
def test_two_models_of_a_class_keep_their_own_gears(forward: Any) -> None:
    kind = type("Model", (nn.Module,), {"forward": forward})
    for sizes, gears in (([2, 4, 2], [2, 4]), ([3, 5], None)):
        model = torch.compile(kind(), backend=get_backend(), fullgraph=True)
        for number, n in enumerate(sizes):
            x = torch.randn(n, 2)
            if gears and not number:
                set_dim_gears(x, {0: gears})
            assert torch.equal(model(x, torch.ones(1, 2)), x + 1)


def test_a_model_that_breaks_in_two() -> None:
    weight = torch.randn(8, 8)

    def function(x: Tensor) -> Tensor:
        y = torch.relu(x @ weight)
        torch._dynamo.graph_break()
        return torch.cat([y, x], 0).softmax(0)

    made = config(gears_with_graph_breaks=True)
    model, reports = compiled_with_reports(function, made, fullgraph=False)
    x = torch.randn(2, 8)
    set_dim_gears(x, {0: [2, 4, 6]})
    assert_close(model(x), function(x))
    sizes = [report.name.rpartition("_gear_")[2] for report in reports]
    assert sizes == ["2", "4", "6", "2_2", "4_4", "6_6"]
    for n in (4, 6, 2, 4):
        x = torch.randn(n, 8)
        assert_close(model(x), function(x))
    assert traces() == 2
    with pytest.raises(GearError, match=r"x\[0\]=3"):
        model(torch.randn(3, 8))


# ---- errors ---------------------------------------------------------------------------------


def message(
    call: Callable[[], object],
) -> str:
    with pytest.raises(GearError) as caught:
        call()
    return str(caught.value).partition("\n\nSet TORCHDYNAMO_VERBOSE")[0]


def first_call(
    model: Any, gears: Sequence[dict[int, list[int]] | None], *args: Any, **options: Any
) -> str:
    def call() -> None:
        torch._dynamo.reset()
        for tensor, one in zip(args, gears, strict=True):
            if one:
                set_dim_gears(tensor, one)
        made = options.pop("config", None)
        compiled(model, made, **options)(*args)

    return message(call)


def broken(x: Tensor) -> Tensor:
    y = x * 2
    torch._dynamo.graph_break()
    return y + 1


def later_calls() -> dict[str, str]:
    """Messages of calls after a good first one, of two models: one traced for sizes, one not."""
    found: dict[str, str] = {}
    for dynamic in (True, None):
        torch._dynamo.reset()
        model = compiled(Add(), dynamic=dynamic)
        x1, x2 = torch.ones(2, 3), torch.ones(2, 3)
        set_dim_gears(x1, {0: [2, 4]})
        set_dim_gears(x2, {0: [2, 4]})
        model(x1, x2)
        shapes = {
            "a size": ((3, 3), (3, 3)),
            "a combination": ((4, 3), (2, 3)),
            "a dim without gears": ((4, 5), (4, 5)),
        }
        for what, (one, two) in shapes.items():
            text = message(lambda m=model, a=one, b=two: m(torch.ones(a), torch.ones(b)))  # type: ignore[misc]
            found[f"{what}, dynamic={dynamic}"] = text
        assert torch.equal(model(torch.ones(4, 3), torch.ones(4, 3)), torch.full((4, 3), 2.0))
    return found


def test_what_the_errors_say(golden: Golden) -> None:
    torch.manual_seed(0)
    twice = torch.ones(2, 3)
    set_dim_gears(twice, {0: [2, 4]})
    set_dim_gears(twice, {0: (2, 4)})  # the same again
    sparse = torch.eye(3).to_sparse()
    many = list(range(2, 13))
    exporting, refdata = CompilerConfig(), CompilerConfig()
    with pytest.warns(UserWarning):
        exporting.export.export_mode = True
    with pytest.warns(UserWarning):
        refdata.experimental_config.enable_ref_data = True
    ones = torch.ones
    found = {
        "other gears": message(lambda: set_dim_gears(twice, {0: [2, 8]})),
        "no tensor": message(lambda: set_dim_gears([1], {0: [2, 4]})),  # type: ignore[arg-type]
        "no dict": message(lambda: set_dim_gears(ones(2), [2, 4])),  # type: ignore[arg-type]
        "no dim": message(lambda: set_dim_gears(ones(2), {1: [2, 4]})),
        "a negative dim": message(lambda: set_dim_gears(ones(2), {-1: [2, 4]})),
        "no integer as dim": message(lambda: set_dim_gears(ones(2), {"x": [2, 4]})),  # type: ignore[dict-item]
        "one size": message(lambda: set_dim_gears(ones(2), {0: [2]})),
        "a private format": message(lambda: set_dim_gears(sparse, {0: [2, 4]})),
        "unequal lists": first_call(Add(), [{0: [2, 4]}, {0: [2, 4, 8]}], ones(2, 3), ones(2, 3)),
        "too many": first_call(
            torch.sin,
            [{0: many, 1: many}],
            ones(2, 3),
            config=config(dynamic_gears_merge_policy="product"),
        ),
        "zero": first_call(torch.sin, [{0: [0, 2]}], ones(2, 3)),
        "one": first_call(torch.sin, [{0: [2, 1]}], ones(2, 3)),
        "first size no gear": first_call(torch.sin, [{0: [2, 4]}], ones(3, 3)),
        "no full graph": first_call(broken, [{0: [2, 4]}], ones(2, 3), fullgraph=False),
        "dynamic=False": first_call(torch.sin, [{0: [2, 4]}], ones(2, 3), dynamic=False),
        "export": first_call(torch.sin, [{0: [2, 4]}], ones(2, 3), config=exporting),
        "ref data": first_call(torch.sin, [{0: [2, 4]}], ones(2, 3), config=refdata),
        "a size the model fixes": first_call(
            lambda x: x * 2 if x.shape[0] == 2 else x, [{0: [2, 4]}], ones(2, 3)
        ),
        "another way through the model": first_call(
            lambda x: x * 2 if x.shape[0] > 3 else x, [{0: [2, 4]}], ones(2, 3)
        ),
        **later_calls(),
    }
    text = "".join(f"{name}\n    {text}\n" for name, text in found.items())
    golden("gears/errors.txt", re.sub(r"py:\d+ in", "py:N in", text))


def test_the_errors_are_value_errors() -> None:
    assert issubclass(GearError, kernelmill.InputError) and issubclass(GearError, ValueError)
    with pytest.raises(TypeError):
        set_dim_gears(torch.ones(2), [2, 4])  # type: ignore[arg-type]
