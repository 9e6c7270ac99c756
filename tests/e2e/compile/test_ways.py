"""`kernelmill.compile`: which way a call takes, and that each gives what eager does."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import kernelmill
from kernelmill.artifact import bind
from kernelmill.torch_internals import forced
from tests.kept_methods import COMPILED

pytestmark = COMPILED
SCALE = torch.tensor(2.0)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Any, y: Any = None, *, times: int = 1) -> Any:
        z = self.drop(torch.relu(self.linear(x))) * times
        return z if y is None else z + y


def made(folder: Path, **options: Any) -> tuple[Any, Model]:
    model = Model().eval()
    return kernelmill.compile(model, cache_dir=folder, **options), model


def check(compiled: Any, model: Any, *args: Any, **kwargs: Any) -> None:
    expected = model(*args, **kwargs)
    torch.testing.assert_close(compiled(*args, **kwargs), expected, atol=1e-5, rtol=1e-5)


def zeros(module: nn.Module, args: Any, result: Any) -> Any:
    return result * 0


def sizes(compiled: Any) -> list[str]:
    return sorted(each.sizes for each in compiled.report().programs)


def test_a_second_size_makes_one_program_for_all(tmp_path: Path) -> None:
    compiled, model = made(tmp_path)
    with torch.no_grad():
        for rows in (3, 3, 5, 7, 3, 9):
            check(compiled, model, torch.randn(rows, 8))
    assert sizes(compiled) == ["dynamic", "static"]
    assert compiled.report().statistics == {"loaded": 0, "traced": 2, "uncached": 0}


def test_a_notebook_shows_the_programs_and_what_torch_runs(tmp_path: Path) -> None:
    compiled, _ = made(tmp_path)
    assert "nothing was called yet" in compiled.report()._repr_html_()
    with torch.no_grad():
        compiled(torch.randn(3, 8))
    compiled(torch.randn(3, 8))  # with gradients
    cell = compiled.report()._repr_html_()
    assert "<td>static</td>" in cell and "<td>x f32[3, 8]</td>" in cell
    assert "torch.compile, 1 calls: gradients are on" in cell and "Model.forward" in cell


def test_dims_that_do_not_change_stay_static(tmp_path: Path) -> None:
    compiled = kernelmill.compile(lambda x: x * 2.0, cache_dir=tmp_path)
    for shape in ((3, 6), (3, 7), (3, 8)):
        assert compiled(torch.ones(shape)).shape == shape
    (dynamic,) = [p for p in compiled.report().programs if p.sizes == "dynamic"]
    assert dynamic.arguments[0].startswith("x f32[3, s")


def test_integers_become_symbols_as_sizes_do(tmp_path: Path) -> None:
    compiled = kernelmill.compile(lambda x, n: x * n, cache_dir=tmp_path)
    for n in (2, 3, 4, 5):
        assert compiled(torch.ones(3), n).tolist() == [float(n)] * 3
    assert compiled.report().statistics["traced"] == 2


class Cache:
    def __init__(self, rows: int) -> None:
        self.layers = [Layer(rows)]


class Layer:
    def __init__(self, rows: int) -> None:
        self.rows = rows


def test_integers_in_objects_become_symbols(tmp_path: Path) -> None:
    """As caches of transformers have them, which are longer for longer prompts."""

    def forward(x: Any, cache: Any) -> Any:
        return x + torch.zeros(cache.layers[0].rows, 3)

    compiled = kernelmill.compile(forward, cache_dir=tmp_path)
    for rows in (2, 3, 4, 5):
        assert compiled(torch.ones(3), Cache(rows)).tolist() == [[1.0] * 3] * rows
    assert compiled.report().statistics["traced"] == 2


class Counter:
    """As caches with a window have: tokens so far."""

    def __init__(self, tokens: int = 0) -> None:
        self.tokens = tokens


def _counting(x: Any, counter: Any) -> Any:
    counter.tokens += x.shape[0]
    return x * counter.tokens


def test_integers_that_calls_count_up_become_symbols(tmp_path: Path) -> None:
    compiled = kernelmill.compile(_counting, cache_dir=tmp_path)
    counter, mirror = Counter(), Counter()
    for rows in (5, 1, 1, 1, 3, 1):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x, counter), _counting(x, mirror))
        assert type(counter.tokens) is int and counter.tokens == mirror.tokens
    assert compiled.report().statistics == {"loaded": 0, "traced": 3, "uncached": 0}
    later = kernelmill.compile(_counting, cache_dir=tmp_path)
    assert later(torch.ones(1, 3), Counter(100)).tolist() == [[101.0] * 3]
    assert later.report().statistics == {"loaded": 1, "traced": 0, "uncached": 0}


def test_the_first_trace_of_a_count_is_not_kept(tmp_path: Path) -> None:
    """It is for one value of the count alone, neither 0 nor 1."""
    compiled = kernelmill.compile(_counting, cache_dir=tmp_path)
    counter = Counter(7)
    for tokens in (8, 9, 10):
        assert compiled(torch.ones(1, 3), counter).tolist() == [[float(tokens)] * 3]
    assert compiled.report().statistics == {"loaded": 0, "traced": 2, "uncached": 1}
    assert not compiled.report().torch


def test_a_wrong_shape_is_eagers_error_and_nothing_in_the_log(tmp_path: Path) -> None:
    compiled, model = made(tmp_path)
    logged: list[logging.LogRecord] = []
    log, handler = logging.getLogger("torch._subclasses.fake_tensor"), logging.Handler()
    handler.emit = logged.append
    log.addHandler(handler)
    try:
        with torch.no_grad(), pytest.raises(RuntimeError, match="cannot be multiplied"):
            compiled(torch.randn(3, 7))
        assert not logged
        with pytest.raises(RuntimeError):  # torch's own way logs it
            torch.compile(model, backend="kernelmill")(torch.randn(3, 7))
        assert logged
    finally:
        log.removeHandler(handler)


@pytest.mark.parametrize(("dynamic", "found"), [(True, ["dynamic"]), (False, ["static"] * 3)])
def test_dynamic_is_torchs(tmp_path: Path, dynamic: bool, found: list[str]) -> None:
    compiled, model = made(tmp_path, dynamic=dynamic)
    with torch.no_grad():
        for rows in (3, 5, 7):
            check(compiled, model, torch.randn(rows, 8))
    assert sizes(compiled) == found


def test_a_program_of_one_size_on_disk_is_followed_by_that_for_all(tmp_path: Path) -> None:
    first, model = made(tmp_path)
    with torch.no_grad():
        check(first, model, torch.randn(3, 8))
        later = kernelmill.compile(model, cache_dir=tmp_path)
        check(later, model, torch.randn(5, 8))
        check(later, model, torch.randn(6, 8))
    assert later.report().statistics == {"loaded": 0, "traced": 1, "uncached": 0}
    assert sizes(later) == ["dynamic"]


def test_tensors_of_the_user_have_no_marks_afterwards(tmp_path: Path) -> None:
    compiled, model = made(tmp_path)
    tensors = [torch.randn(rows, 8) for rows in (3, 5)]
    with torch.no_grad():
        for x in tensors:
            check(compiled, model, x)
    assert not any(map(vars, tensors))


def test_gradients_are_torchs_affair(tmp_path: Path) -> None:
    compiled, model = made(tmp_path)
    x = torch.randn(3, 8)
    with torch.no_grad():
        check(compiled, model, x)
    compiled(x).sum().backward()
    found, model.linear.weight.grad = model.linear.weight.grad, None
    model(x).sum().backward()
    torch.testing.assert_close(found, model.linear.weight.grad)
    assert list(compiled.report().torch.values()) == [1]
    assert "requires grad" in next(iter(compiled.report().torch))
    model.requires_grad_(False)
    assert not compiled(x).requires_grad  # by the program: nothing needs a gradient now
    needy = torch.randn(3, 8, requires_grad=True)
    assert compiled(needy).requires_grad
    model.linear.bias.requires_grad_(True)
    assert compiled(x).requires_grad
    with torch.no_grad():
        assert not compiled(x).requires_grad
    assert compiled.report().statistics["traced"] == 1


def test_a_function_that_reads_what_requires_grad_gives_a_gradient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "SCALE", torch.tensor(2.0, requires_grad=True))

    def scaled(x: Any) -> Any:
        return x * SCALE

    compiled = kernelmill.compile(scaled, cache_dir=tmp_path)
    assert compiled(torch.ones(3)).requires_grad and compiled(torch.ones(3)).requires_grad
    assert compiled.report().programs == ()
    with torch.no_grad():
        assert not compiled(torch.ones(3)).requires_grad
    assert compiled(torch.ones(3)).requires_grad
    assert len(compiled.report().programs) == 1


def test_what_asks_whether_gradients_are_on_is_told(tmp_path: Path) -> None:
    def asks(x: Any) -> Any:
        return x + 1 if torch.is_grad_enabled() else x - 1

    compiled = kernelmill.compile(asks, cache_dir=tmp_path)
    for _ in range(2):
        with torch.no_grad():
            assert compiled(torch.zeros(2)).tolist() == [-1, -1]
        assert compiled(torch.zeros(2)).tolist() == [1, 1]


def test_training_and_eval_are_two_programs(tmp_path: Path) -> None:
    compiled, model = made(tmp_path)
    x = torch.ones(64, 8)
    with torch.no_grad():
        for training in (False, True, False, True):
            compiled.train(training)
            assert model.training is training
            dropped = (compiled(x + 1) == 0).float().mean() > (
                model.eval()(x + 1) == 0
            ).float().mean()
            assert bool(dropped) is training


def test_weights_and_dtypes_may_change(tmp_path: Path) -> None:
    compiled, model = made(tmp_path)
    x = torch.randn(3, 8)
    with torch.no_grad():
        check(compiled, model, x)
        model.linear.weight.mul_(2)
        check(compiled, model, x)
        model.load_state_dict(Model().state_dict())
        check(compiled, model, x)
        assert compiled.to(torch.float64) is compiled
        check(compiled, model, x.double())
        model.linear = nn.Linear(8, 4).double()
        check(compiled, model, x.double())
        model.float()
        check(compiled, model, x)


def test_hooks_are_called_and_taken_away(tmp_path: Path) -> None:
    compiled, model = made(tmp_path)
    x = torch.randn(3, 8)
    with torch.no_grad():
        check(compiled, model, x)
        for register in (model.register_forward_hook, model.linear.register_forward_hook):
            handle = register(zeros)
            assert not compiled(x).any()
            handle.remove()
            check(compiled, model, x)
        handle = compiled.register_forward_hook(lambda module, args, result: result + 1)
        torch.testing.assert_close(compiled(x), model(x) + 1)
        handle.remove()
    assert "the module has hooks" in compiled.report().torch


def test_hooks_of_all_modules_are_torchs_affair(tmp_path: Path) -> None:
    compiled, model = made(tmp_path)
    by_torch, x = torch.compile(model, backend="eager"), torch.randn(3, 8)
    with torch.no_grad():
        check(compiled, model, x)
        handle = nn.modules.module.register_module_forward_hook(lambda m, args, result: result + 1)
        try:
            with pytest.warns(UserWarning, match="global hooks"):
                torch.testing.assert_close(compiled(x), by_torch(x))
        finally:
            handle.remove()
        check(compiled, model, x)


def test_another_forward_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, model = made(tmp_path)
    with torch.no_grad():
        check(compiled, model, torch.randn(3, 8))
        model.forward = lambda x: x + 1  # type: ignore[method-assign]
        check(compiled, model, torch.randn(3, 8))
        del model.forward
        check(compiled, model, torch.randn(3, 8))
        monkeypatch.setattr(Model, "forward", lambda self, x: self.linear(x) - 1)
        check(compiled, model, torch.randn(3, 8))


def test_a_graph_break_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(x: Any) -> Any:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    compiled = kernelmill.compile(broken, cache_dir=tmp_path)
    for _ in range(3):
        assert compiled(torch.ones(2)).tolist() == [4, 4]
    report = compiled.report()
    ((reason, calls),) = report.torch.items()
    assert "graph_break" in reason and Path(__file__).name in reason and calls == 3
    assert sum("graph_break" in record.getMessage() for record in caplog.records) == 1
    assert len(report.captures) == 2 and reason in str(report)


def test_what_cannot_be_kept_says_why(tmp_path: Path) -> None:
    class Counter(nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x + self.calls

    model, expected = Counter(), 0
    compiled = kernelmill.compile(model, cache_dir=tmp_path)
    for expected in range(1, 4):
        assert compiled(torch.zeros(1)).item() == expected
    assert model.calls == expected and compiled.calls == expected
    assert any("calls" in reason for reason in compiled.report().torch)


def test_a_wrong_call_raises_and_leaves_nothing(tmp_path: Path) -> None:
    compiled, model = made(tmp_path)
    with torch.no_grad():
        with pytest.raises(RuntimeError):
            compiled(torch.randn(3, 7))
        with pytest.raises(TypeError, match="positional"):
            compiled()
        check(compiled, model, torch.randn(3, 8))
    assert len(compiled.report().programs) == 1


def test_errors_of_the_code_are_its_own(tmp_path: Path) -> None:
    def checked(x: Any) -> Any:
        if x.shape[0] == 3:
            raise KeyError("three")
        return x + 1

    compiled = kernelmill.compile(checked, cache_dir=tmp_path)
    for _ in range(2):
        with pytest.raises(KeyError, match="three"):
            compiled(torch.ones(3))
    assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert torch._dynamo.config.automatic_dynamic_shapes


def test_two_threads_make_one_program(tmp_path: Path) -> None:
    compiled, model = made(tmp_path)
    x, found, gate = torch.randn(3, 8), list[Any](), threading.Barrier(2)

    def call() -> None:
        gate.wait()
        with torch.no_grad():
            found.append(compiled(x))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with torch.no_grad():
        for each in found:
            torch.testing.assert_close(each, model(x), atol=1e-5, rtol=1e-5)
    assert len(found) == 2 and compiled.report().statistics["traced"] == 1


def test_more_traces_than_are_kept_go_to_torch(tmp_path: Path) -> None:
    compiled = kernelmill.compile(lambda x, by: x * by, cache_dir=tmp_path)
    for number in range(20):
        assert compiled(torch.ones(2), number + 0.5).tolist() == [number + 0.5] * 2
    report = compiled.report()
    assert report.statistics["traced"] == len(report.programs) == 16
    assert list(report.torch.values()) == [4]


def test_functions_inside_of_compiled_ones_are_traced_with_them(tmp_path: Path) -> None:
    inner = kernelmill.compile(Model().eval(), cache_dir=tmp_path)
    x = torch.randn(3, 8)
    with torch.no_grad():
        outer = torch.compile(lambda x: inner(x) + 1, backend="eager", fullgraph=True)
        torch.testing.assert_close(outer(x), inner(x) + 1)
        both = kernelmill.compile(nn.Sequential(inner, nn.ReLU()), cache_dir=tmp_path)
        torch.testing.assert_close(both(x), torch.relu(inner(x)))


def test_modes_and_transforms_see_the_operators(tmp_path: Path) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    compiled, model = made(tmp_path)
    x = torch.randn(3, 8)
    with torch.no_grad():
        check(compiled, model, x)
        with FlopCounterMode(display=False) as counter:
            check(compiled, model, x)
        assert counter.get_total_flops() == 2 * 2 * 3 * 8 * 8
        rows = torch.vmap(compiled)(x)
        torch.testing.assert_close(rows, model(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("part", ["dynamo.marks", "modules.own_hooks"])
def test_results_are_right_without_parts_of_torch(tmp_path: Path, part: str) -> None:
    with forced([part]):
        compiled, model = made(tmp_path)
        with torch.no_grad():
            for rows in (3, 5, 3):
                check(compiled, model, torch.randn(rows, 8))


@torch.no_grad()
def test_a_wrong_argument_raises_eagers_error(tmp_path: Path) -> None:
    compiled, model = made(tmp_path)
    check(compiled, model, torch.randn(3, 8))
    for wrong in (torch.randn(3, 7), torch.ones(3, 8, dtype=torch.int64), None):
        with pytest.raises((RuntimeError, TypeError)) as eager:
            model(wrong)
        with pytest.raises(type(eager.value)) as ours:
            compiled(wrong)
        assert type(ours.value) is type(eager.value)
        assert str(ours.value).splitlines()[0] == str(eager.value).splitlines()[0]
    assert not compiled.report().torch
    check(compiled, model, torch.randn(3, 8))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_jit_traces_the_original(tmp_path: Path) -> None:
    compiled, model = made(tmp_path)
    function = kernelmill.compile(model.requires_grad_(False).forward, cache_dir=tmp_path)
    x, y = torch.randn(3, 8), torch.randn(3, 8)
    with torch.no_grad():
        for each in (compiled, function):
            check(each, model, x)
            script: Any = torch.jit.trace(each, x)
            torch.testing.assert_close(script(y), model(y))


PROCESS = """
import sys
import torch
import kernelmill
from kernelmill.artifact import bind
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
    def forward(self, x):
        return torch.relu(self.linear(x))

model = kernelmill.compile(Model().eval(), cache_dir=sys.argv[1])
with torch.no_grad():
    for rows in (3, 5, 7):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(model(x), model._orig_mod(x), atol=1e-5, rtol=1e-5)
found = model.report().statistics
print(found["loaded"], found["traced"], "torch._dynamo" in sys.modules)
"""


def test_later_processes_load_without_dynamo(tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "script.py").write_text(PROCESS)
    outputs = [
        subprocess.run(
            [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "cache")],
            capture_output=True, text=True, check=True,
        ).stdout.split()
        for _ in range(2)
    ]  # fmt: skip
    assert outputs == [["0", "2", "True"], ["1", "0", "False"]]


def test_what_only_eager_can_run_runs_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @torch.library.custom_op("kernelmill_tests::only_eager", mutates_args=())
    def only_eager(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @only_eager.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("it has no sizes before it runs")

    compiled = kernelmill.compile(lambda x: only_eager(x) * 2, cache_dir=tmp_path)
    for rows in (2, 2, 3):
        assert compiled(torch.ones(rows)).tolist() == [4.0] * rows
    report = compiled.report()
    assert list(report.torch.values()) == [3] and report.captures == ()
    assert "runs as it is" in caplog.text


def test_states_to_and_fro_need_no_survey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Switched(Model):
        adapted = True

        def forward(self, x: Any) -> Any:
            return self.linear(x) * 2 if self.adapted else self.linear(x)

    model = Switched().eval()
    compiled, x = kernelmill.compile(model, cache_dir=tmp_path), torch.randn(4, 8)
    surveys: list[object] = []
    evaluate = bind.evaluate_guards
    for turn in range(6):
        model.adapted = turn % 2 == 0
        with torch.no_grad():
            model.linear.weight.mul_(1.5)  # as merged adapters do
            check(compiled, model, x)
        if turn == 1:  # both programs are there
            monkeypatch.setattr(
                bind, "evaluate_guards", lambda *a, **k: surveys.append(a) or evaluate(*a, **k)
            )
    assert compiled.report().statistics["traced"] == 2
    assert surveys == []
