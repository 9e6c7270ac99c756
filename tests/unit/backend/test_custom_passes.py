"""Passes of users over graphs of ATen operators, and replacements that they register."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn

import kernelmill
from kernelmill import CompilerConfig, ConfigError
from kernelmill.backend.replacements import REPLACEMENTS
from kernelmill.inference import cache_compile

aten = torch.ops.aten
Pass = Callable[[fx.GraphModule, Any, Any], None]


@pytest.fixture(autouse=True)
def nothing_registered() -> Iterator[None]:
    torch.compiler.reset()
    REPLACEMENTS.__init__()
    yield
    REPLACEMENTS.__init__()


def with_passes(before: Any = None, after: Any = None) -> CompilerConfig:
    config = CompilerConfig()
    config.post_grad_custom_pre_pass, config.post_grad_custom_post_pass = before, after
    return config


def compiled(model: Callable[..., Any], config: CompilerConfig, **options: Any) -> Any:
    backend = kernelmill.get_backend(compiler_config=config)
    return torch.compile(model, backend=backend, fullgraph=True, **options)


def replaced(old: Any, new: Any) -> Pass:
    """A pass that calls another operator."""

    def rewrite(gm: fx.GraphModule, example_inputs: Any, config: Any) -> None:
        for node in gm.graph.find_nodes(op="call_function", target=old):
            with gm.graph.inserting_after(node):
                made = gm.graph.call_function(new, node.args)
            node.replace_all_uses_with(made)

    return rewrite


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) / 8.0, -1) @ v


def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v, scale=1 / 8.0)


def heads(rows: int = 2, length: int = 16) -> list[torch.Tensor]:
    return [torch.randn(rows, length, 4, 64).transpose(1, 2) for _ in range(3)]


def operators(model: Callable[..., Any], *args: Any, **options: Any) -> set[str]:
    found = kernelmill.explain(model, *args, measure=False, **options)
    assert not any(capture.refused for capture in found.captures)
    return {name for report in found.reports for kernel in report.kernels
            for name in kernel.operators}  # fmt: skip


def test_passes_run_in_their_order_with_the_options() -> None:
    seen: list[tuple[str, Any, Any]] = []

    def noting(name: str) -> Pass:
        def note(gm: fx.GraphModule, example_inputs: Any, config: Any) -> None:
            there = {str(node.target) for node in gm.graph.nodes if node.op == "call_function"}
            assert len(example_inputs) == 3
            seen.append((name, config, "aten.bmm.default" in there))

        return note

    kernelmill.register_replacement(attention, fused, heads())
    config = with_passes(noting("before"), noting("after"))
    q, k, v = heads(length=8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(attention, config)(q, k, v), attention(q, k, v))
    assert seen == [("before", config, True), ("after", config, False)]


def test_a_replacement_becomes_our_kernel() -> None:
    q, k, v = heads()
    with torch.no_grad():
        assert "attention" not in operators(attention, q, k, v)
        kernelmill.register_replacement(attention, fused, heads())
        torch.compiler.reset()
        assert operators(attention, q, k, v) <= {"attention", "permute"}


def test_a_replacement_holds_for_a_batch_that_varies() -> None:
    kernelmill.register_replacement(attention, fused, heads())
    left: list[bool] = []

    def look(gm: fx.GraphModule, example_inputs: Any, config: Any) -> None:
        left.append(bool(gm.graph.find_nodes(op="call_function", target=aten.bmm.default)))

    run = compiled(attention, with_passes(after=look))
    with torch.no_grad():
        for rows in (2, 3, 5):
            q, k, v = heads(rows)
            torch.testing.assert_close(run(q, k, v), attention(q, k, v))
    assert left == [False, False], "a trace for the first size, and one for all"


def test_a_pattern_is_registered_under_fake_tensors_with_numbers_and_twice() -> None:
    def search(x: torch.Tensor, y: torch.Tensor, by: float) -> torch.Tensor:
        return torch.tanh(x + y) * by

    def replace(x: torch.Tensor, y: torch.Tensor, by: float) -> torch.Tensor:
        return torch.sigmoid(x + y) * by

    with torch._subclasses.FakeTensorMode():
        for _ in range(2):
            examples = [torch.empty(2, 3), torch.empty(2, 3)]
            kernelmill.register_replacement(
                search, replace, examples, scalar_workaround={"by": 0.113}, skip_duplicates=True
            )
    x = torch.randn(2, 3)
    with torch.no_grad():
        found = compiled(lambda x: search(x, x, 3.0), with_passes())(x)
    torch.testing.assert_close(found, replace(x, x, 3.0))


def test_a_match_is_left_where_the_check_or_an_option_says_so() -> None:
    asked: list[int] = []

    def check(match: Any) -> bool:
        asked.append(match.kwargs["q"].meta["val"].shape[1])
        return False

    kernelmill.register_replacement(attention, fused, heads(), extra_check=check)
    with torch.no_grad():
        assert "attention" not in operators(attention, *heads())
        assert asked == [4]
        config = CompilerConfig()
        config.experimental_config.pattern_fusion_pass = False
        REPLACEMENTS.__init__()
        kernelmill.register_replacement(attention, fused, heads())
        torch.compiler.reset()
        assert "attention" not in operators(attention, *heads(), compiler_config=config)


def test_a_pass_rewrites_backward_graphs_too() -> None:
    config = with_passes(replaced(aten.mul.Tensor, aten.div.Tensor))
    x, y = torch.rand(8, requires_grad=True), torch.rand(8) + 1
    result = compiled(lambda x, y: x * y, config)(x, y)
    torch.testing.assert_close(result, x / y)
    result.sum().backward()
    torch.testing.assert_close(x.grad, 1 / y)


def test_a_graph_that_runs_in_torch_is_rewritten_too() -> None:
    config = with_passes(after=replaced(aten.tanh.default, aten.sigmoid.default))
    config.debug.run_eagerly = True
    x = torch.randn(8)
    torch.testing.assert_close(compiled(torch.tanh, config)(x), x.sigmoid())


def test_values_follow_what_a_pass_changes() -> None:
    """The rows of a sum become those of another dtype on the way, and the result stays."""

    def widen(gm: fx.GraphModule, example_inputs: Any, config: Any) -> None:
        (x,) = gm.graph.find_nodes(op="placeholder")
        (node,) = gm.graph.find_nodes(op="call_function", target=aten.sum.dim_IntList)
        with gm.graph.inserting_before(node):
            wide = gm.graph.call_function(aten._to_copy.default, (x,), {"dtype": torch.float64})
        node.args = (wide, *node.args[1:])
        with gm.graph.inserting_after(node):
            narrow = gm.graph.call_function(
                aten._to_copy.default, (node,), {"dtype": torch.float32}
            )
        node.replace_all_uses_with(narrow, lambda user: user is not narrow)

    x = torch.cat([torch.full((1, 1), 1e8), torch.ones(1, 64), torch.full((1, 1), -1e8)], 1)
    assert compiled(lambda x: x.sum(1), with_passes(widen))(x).tolist() == [64.0]


def raising(gm: fx.GraphModule, example_inputs: Any, config: Any) -> None:
    raise RuntimeError("my own rewrite")


def emptying(gm: fx.GraphModule, example_inputs: Any, config: Any) -> None:
    gm.graph.output_node().args = ((),)


def flattening(gm: fx.GraphModule, example_inputs: Any, config: Any) -> None:
    output: Any = gm.graph.output_node()
    (result,) = output.args[0]
    with gm.graph.inserting_before(output):
        output.args = ((gm.graph.call_function(aten.view.default, (result, [-1])),),)


def adding(gm: fx.GraphModule, example_inputs: Any, config: Any) -> None:
    with gm.graph.inserting_before(next(iter(gm.graph.nodes))):
        gm.graph.placeholder("another")


def opening(gm: fx.GraphModule, example_inputs: Any, config: Any) -> None:
    with gm.graph.inserting_before(gm.graph.output_node()):
        gm.graph.call_function(
            torch.ops.kernelmill.scope_enter.default, (["_user_stream_label"], ["s"])
        )


def closing(gm: fx.GraphModule, example_inputs: Any, config: Any) -> None:
    with gm.graph.inserting_before(gm.graph.output_node()):
        gm.graph.call_function(torch.ops.kernelmill.scope_exit.default)


def failing(gm: fx.GraphModule, example_inputs: Any, config: Any) -> None:
    output: Any = gm.graph.output_node()
    (result,) = output.args[0]
    with gm.graph.inserting_before(output):
        output.args = ((gm.graph.call_function(aten.view.default, (result, [5])),),)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            raising,
            r"post_grad_custom_pre_pass is raising, which raised \w+: .*my own rewrite"
            r".* \(.*test_custom_passes.py:\d+\); correct it, or leave it out",
        ),
        (emptying, r"changed the results of the graph from \['float32\[2, 3\]'\] to \[\]"),
        (flattening, r"to \['float32\[6\]'\]: number, types and shapes have to stay"),
        (adding, "changed the arguments of the graph, which must stay"),
        (opening, "post_grad_custom_pre_pass: there is a scope_enter without a scope_exit"),
        (closing, "post_grad_custom_pre_pass: there is a scope_exit without a scope_enter"),
        (failing, "post_grad_custom_pre_pass made .* which fails: .*invalid for input of size 6"),
    ],
)
def test_a_wrong_pass_is_an_error(wrong: Pass, message: str) -> None:
    with pytest.raises(Exception, match=message):
        compiled(torch.tanh, with_passes(wrong))(torch.randn(2, 3))


def test_passes_reach_the_bodies_of_higher_order_operators() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.relu(x) + 1, lambda x: x - 1, (x,))

    config = with_passes(replaced(aten.relu.default, aten.sigmoid.default))
    x = torch.ones(3)
    with torch.no_grad():
        found = compiled(model, config)(x)
    torch.testing.assert_close(found, torch.sigmoid(x) + 1)


def test_passes_mark_streams_and_ranges() -> None:
    def marking(gm: fx.GraphModule, example_inputs: Any, config: Any) -> None:
        first = next(node for node in gm.graph.nodes if node.op == "call_function")
        with gm.graph.inserting_before(first):
            marks = {
                "_super_kernel_scope": "sp", "_user_stream_label": "s", "_user_stream_id": "96",
                "_user_stream_device_index": "0", "_user_stream_device_type": "20",
            }  # fmt: skip
            gm.graph.call_function(
                torch.ops.kernelmill.scope_enter.default, (list(marks), list(marks.values()))
            )
        with gm.graph.inserting_before(gm.graph.output_node()):
            gm.graph.call_function(torch.ops.kernelmill.scope_exit.default)

    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.relu(x @ x) @ x, -1)

    found = kernelmill.explain(model, torch.randn(8, 8), measure=False,
                               compiler_config=with_passes(marking))  # fmt: skip
    assert [made.scope for report in found.reports for made in report.ranges] == ["sp"]


def test_a_pass_of_other_parameters_is_refused() -> None:
    with pytest.raises(Exception, match=r"takes neither \(gm, example_inputs, config\) nor"):
        compiled(torch.tanh, with_passes(lambda gm, inputs: None))(torch.randn(2))


def test_what_is_no_function_is_refused() -> None:
    no: Any = "attention"
    with pytest.raises(ConfigError, match="search_fn is 'attention', no function"):
        kernelmill.register_replacement(no, fused, heads())
    with pytest.raises(ConfigError, match="extra_check is 'attention', no function"):
        kernelmill.register_replacement(attention, fused, heads(), extra_check=no)


def test_files_have_them(tmp_path: Path) -> None:
    kernelmill.register_replacement(attention, fused, heads())
    model = torch.nn.Tanh()
    config = with_passes(replaced(aten.tanh.default, aten.sigmoid.default))
    x = torch.randn(4)
    path = kernelmill.aot.compile(model, (x,), path=tmp_path / "m.kmill", config=config)
    torch.testing.assert_close(kernelmill.aot.load(path)(x), x.sigmoid())
    path = kernelmill.aot.compile(attention, tuple(heads()), path=tmp_path / "a.kmill")
    assert "attention" in Path(path).read_bytes().decode(errors="replace")


class Model(nn.Module):
    def run(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2


def scaling(factor: float) -> Pass:
    def scale(gm: fx.GraphModule, example_inputs: Any, config: Any) -> None:
        for node in gm.graph.find_nodes(op="call_function", target=aten.mul.Tensor):
            node.args = (node.args[0], factor)

    return scale


def kept(folder: Path, config: CompilerConfig) -> tuple[torch.Tensor, dict[str, int]]:
    method = cache_compile(Model().run, config=config, cache_dir=folder)
    with torch.no_grad():
        return method(torch.ones(3)), method.statistics


def test_kept_methods_are_those_of_their_passes(tmp_path: Path) -> None:
    tanh = torch.tanh(torch.ones(3))
    for factor, loaded in ((3.0, 0), (3.0, 1), (4.0, 0), (4.0, 1)):
        result, found = kept(tmp_path, with_passes(scaling(factor)))
        torch.testing.assert_close(result, tanh * factor)
        assert (found["loaded"], found["traced"]) == (loaded, 1 - loaded)
    result, found = kept(tmp_path, CompilerConfig())
    torch.testing.assert_close(result, tanh * 2)
    assert found["traced"] == 1


class Scaling:
    """A pass with state, which a key cannot have."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=aten.mul.Tensor):
            node.args = (node.args[0], self.factor)

    def bound(self, graph: fx.Graph) -> None:
        self(graph)


@pytest.mark.parametrize("form", ["object", "method", "closure"])
def test_objects_with_state_are_not_taken_for_each_other(tmp_path: Path, form: str) -> None:
    for factor in (3.0, 4.0):
        one = Scaling(factor)
        forms: dict[str, Any] = {
            "object": one, "method": one.bound, "closure": lambda graph, one=one: one(graph),
        }  # fmt: skip
        result, found = kept(tmp_path, with_passes(forms[form]))
        torch.testing.assert_close(result, torch.tanh(torch.ones(3)) * factor)
        assert found["traced"] == 1


def test_an_edit_of_what_a_pass_calls_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    source = "def factor():\n    return {}\n\n\ndef scale(gm, example_inputs, config):\n" + (
        "    for node in gm.graph.nodes:\n"
        "        if str(node.target) == 'aten.mul.Tensor':\n"
        "            node.args = (node.args[0], factor())\n"
    )
    tanh = torch.tanh(torch.ones(3))
    for text, factor, loaded in (("3.0", 3.0, 0), ("3.0", 3.0, 1), ("5.0", 5.0, 0)):
        (tmp_path / "own_rewrites.py").write_text(source.format(text))
        sys.modules.pop("own_rewrites", None)
        importlib.invalidate_caches()
        rewrites: Any = importlib.import_module("own_rewrites")
        result, found = kept(tmp_path / "cache", with_passes(rewrites.scale))
        torch.testing.assert_close(result, tanh * factor)
        assert (found["loaded"], found["traced"]) == (loaded, 1 - loaded)


def test_methods_are_named_after_the_replacements_there_are(tmp_path: Path) -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2

    def fourfold(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 4

    tanh = torch.tanh(torch.ones(3))
    assert kept(tmp_path, CompilerConfig())[1]["traced"] == 1
    waiting = cache_compile(Model().run, cache_dir=tmp_path)
    kernelmill.register_replacement(doubled, fourfold, [torch.ones(3)])
    with torch.no_grad():
        torch.testing.assert_close(waiting(torch.ones(3)), tanh * 4)
    assert waiting.statistics["traced"] == 1
    for _ in range(2):
        REPLACEMENTS.__init__()  # as in another process
        kernelmill.register_replacement(doubled, fourfold, [torch.randn(3)])
        result, found = kept(tmp_path, CompilerConfig())
        torch.testing.assert_close(result, tanh * 4)
        assert (found["loaded"], found["traced"]) == (1, 0)


def test_an_error_names_the_line_of_the_pass(tmp_path: Path) -> None:
    def erase(gm: torch.fx.GraphModule, inputs: Any, config: Any) -> None:
        for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.exp.default):
            gm.graph.erase_node(node)  # torch raises, in a file of its own

    config = CompilerConfig()
    config.post_grad_custom_pre_pass = erase
    torch._dynamo.reset()
    line = erase.__code__.co_firstlineno + 2
    with pytest.raises(Exception, match=rf"test_custom_passes\.py:{line}\)"):
        torch.compile(torch.exp, backend=kernelmill.get_backend(compiler_config=config))(
            torch.ones(2)
        )
