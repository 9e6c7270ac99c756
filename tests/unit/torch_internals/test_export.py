"""Lines of the user's code in exported functions, and what it asks about sizes."""

from __future__ import annotations

import inspect
import threading

import pytest
import torch
from torch.export import Dim

from kernelmill.torch_internals import export
from tests.forking import in_child


def test_lines_are_kept_under_the_one_name_that_older_traces_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch.fx import proxy

    monkeypatch.delattr(proxy, "_register_stack_trace_anchor", raising=False)
    keep, amount = export._anchor.probe(), 2.0

    def scaled(x: torch.Tensor, *, more: float = 1.0) -> torch.Tensor:
        return x * amount + more

    class Owner:
        def times(self, x: torch.Tensor) -> torch.Tensor:
            return x * 3.0

    for function, value in ((scaled, 3.0), (Owner().times, 3.0)):
        kept, module = keep(function), torch.nn.Module()
        assert inspect.signature(kept) == inspect.signature(function)
        assert kept.__name__ == function.__name__
        assert kept(torch.ones(1)).item() == value
        module.forward = kept
        nodes = torch.export.export(module, (torch.ones(2),)).graph.nodes
        (line,) = {n.stack_trace.splitlines()[0] for n in nodes if n.op == "call_function"}
        assert __file__ in line
    assert keep(torch.relu) is torch.relu


class Asking(torch.nn.Module):
    """Asks a question, and lets torch ask its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.layer_norm(x, (4,))
        return y * 2 if x.shape[0] > 0 else y


def trace(module: torch.nn.Module) -> None:
    torch.export.export(module, (torch.ones(3, 4),), dynamic_shapes={"x": {0: Dim("rows")}})


def test_questions_are_those_of_the_model_and_of_this_thread() -> None:
    originals = {name: vars(torch.SymInt)[name] for name in ("__gt__", "__eq__", "__sym_max__")}
    inside = threading.Barrier(2)
    found: dict[int, list[export.SizeQuestion] | None] = {}

    def note(number: int) -> None:
        with export.size_questions() as asked:
            found[number] = asked
            inside.wait(60)
            # One thread traces while the other listens to itself alone.
            if number == 0:
                trace(Asking())
            inside.wait(60)

    threads = [threading.Thread(target=note, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[1] == []
    assert found[0]
    assert {(relation, str(a), str(b)[0]) for relation, a, b in found[0]} == {("<", "0", "s")}
    assert {name: vars(torch.SymInt)[name] for name in originals} == originals


def test_an_error_in_the_trace_leaves_torchs_sizes_as_they_were() -> None:
    original = vars(torch.SymInt)["__gt__"]

    def failing(x: torch.Tensor) -> torch.Tensor:
        raise KeyError(x.shape[0] > 0)

    module = torch.nn.Module()
    module.forward = failing
    with pytest.raises(KeyError), export.size_questions():
        trace(module)
    assert vars(torch.SymInt)["__gt__"] is original


def test_a_child_listens_to_the_thread_that_forked_alone() -> None:
    original = vars(torch.SymInt)["__gt__"]
    listens, forked = threading.Event(), threading.Event()

    def listen() -> None:
        with export.size_questions():
            listens.set()
            forked.wait(60)

    def as_it_was() -> None:
        assert vars(torch.SymInt)["__gt__"] is original

    def listening() -> None:
        with export.size_questions() as asked:
            trace(Asking())
        assert asked
        assert vars(torch.SymInt)["__gt__"] is not original

    thread = threading.Thread(target=listen)
    thread.start()
    assert listens.wait(60)
    in_child(as_it_was)
    with export.size_questions():
        in_child(listening)
    forked.set()
    thread.join()
    as_it_was()


class AskingForStrides(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.t().is_contiguous() else x * x.stride(-2)


def test_questions_about_layouts_are_the_models_alone() -> None:
    own = dict(vars(torch.Tensor))
    with export.layout_questions() as asked:
        trace(AskingForStrides())
    assert {*asked} == {"is_contiguous", "stride"}
    with export.layout_questions() as asked:
        trace(Asking())
    assert asked == []
    assert dict(vars(torch.Tensor)) == own
