"""Random programs whose modes share a trace: each compiles what it would have traced itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from kernelmill.backend import Backend, capture
from kernelmill.compiler.pipeline import Compiler
from kernelmill.graph.ir import Graph
from kernelmill.graph.text import print_graph
from tests.programs.check import Checker, Verdict, by_name
from tests.programs.generator import generate
from tests.programs.modes import Compiled, Mode
from tests.programs.program import Program, Ref, Seed, Step

STATIC = [
    by_name(name)
    for name in ("default", "reduce-overhead", "super-kernel", "super-kernel-automatic")
]
DYNAMIC = [by_name(name) for name in ("dynamic", "reduce-overhead-dynamic")]
MODES = [STATIC[0], DYNAMIC[0], *STATIC[1:], DYNAMIC[1]]

DOUBLED = Program(
    (Step(("a0",), "values.make", (torch.float32, (Ref("n"), 3), "whole", Seed(0))),),
    ("a0",), (), (), (Step(("v0",), "torch.mul", (Ref("a0"), 2)),), ("v0",), (3, 5),
)  # fmt: skip


def verdicts(program: Program, share: bool, modes: list[Mode] = MODES) -> list[Verdict]:
    taken = [mode for mode in modes if mode.takes(program)]
    with Checker(program, taken if share else ()) as checker:
        return [checker.verdict(mode) for mode in taken]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The graphs that are compiled, with marks, and the options they are compiled with."""
    found: list[tuple[str, str]] = []
    compile = Compiler.compile

    def spy(self: Compiler, graph: Graph) -> Any:
        found.append((print_graph(graph, names=False), str(self.config.as_dict())))
        return compile(self, graph)

    monkeypatch.setattr(Compiler, "compile", spy)
    return found


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one for each graph that AOTAutograd traces."""
    found: list[str] = []
    traced = capture.aot_module_simplified

    def spy(*args: Any, **kwargs: Any) -> Any:
        found.append("a graph")
        return traced(*args, **kwargs)

    monkeypatch.setattr(capture, "aot_module_simplified", spy)
    return found


@pytest.mark.parametrize("seed", [100_003, 100_011, 100_017])
def test_modes_compile_what_each_would_have_traced(
    seed: int, compiled: list[tuple[str, str]], traces: list[str]
) -> None:
    program = generate(seed)
    together = verdicts(program, share=True)
    shared, once = sorted(compiled), len(traces)
    compiled.clear()
    traces.clear()
    assert together == verdicts(program, share=False)
    assert shared == sorted(compiled)
    assert 0 < once < len(traces)


def spoiled(spoil: Callable[[int], bool], mode: Mode) -> Mode:
    """The mode with a wrong result of each call for which `spoil` holds, by its number."""
    calls = 0

    class Spoiling(Backend):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            call = super().__call__(*args, **kwargs)

            def run(*values: Any) -> Any:
                nonlocal calls
                calls += 1
                return [t + spoil(calls) for t in call(*values)]

            return run

    class Way(Compiled):
        def backend(self) -> Backend:
            return Spoiling(super().backend().config)

    assert isinstance(mode.make, Compiled)
    return replace(mode, make=Way(mode.make.dynamic, mode.make.marked, mode.make.options))


def test_what_is_wrong_in_one_mode_is_wrong_in_that_one() -> None:
    modes = [STATIC[0], spoiled(lambda _: True, STATIC[1]), STATIC[2]]
    found = verdicts(DOUBLED, share=True, modes=modes)
    assert [(one.status, one.kind) for one in found] == [
        ("right", ""), ("wrong", "values"), ("right", "")
    ]  # fmt: skip
    assert found == verdicts(DOUBLED, share=False, modes=modes)


def test_what_is_wrong_on_a_shared_trace_only_is_wrong() -> None:
    modes = [STATIC[0], spoiled(lambda call: call == 1, STATIC[1])]
    found = verdicts(DOUBLED, share=True, modes=modes)
    assert [one.status for one in found] == ["right", "wrong"]
    assert found[1].detail.startswith("where modes share a trace: values of result 0")


def test_what_torch_gets_wrong_on_a_trace_that_had_other_sizes_is_torchs() -> None:
    """The second argument lies at another place of the first with each size, which torch's program
    for the second size takes for fixed: the second mode's first call goes to that program."""
    program = Program(
        (
            Step(("base",), "values.make", (torch.float32, (Ref("n"), 1), "whole", Seed(0))),
            Step(("a0",), "torch.unsqueeze", (Ref("base"), -3)),
            Step(("a1",), "torch.select", (Ref("a0"), 1, -5)),
        ),
        ("a0", "a1"), (), (),
        (
            Step(("v0",), "Tensor.sub_", (Ref("a0"), 3.0)),
            Step(("v1",), "torch.signbit", (Ref("a1"),)),
            Step(("v2",), "torch.mul", (Ref("a1"), 2)),
        ),
        ("v1", "v2"), (8, 5),
    )  # fmt: skip
    _, found = verdicts(program, share=True, modes=DYNAMIC)
    assert found.status == "torch"
    assert found.detail.startswith("where modes share a trace: values of result 0")


def test_a_mode_that_cannot_be_compiled_leaves_the_others_to_traces_of_their_own(
    traces: list[str],
) -> None:
    class Refusing(Backend):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("cannot be compiled")

    class Failing(Compiled):
        def backend(self) -> Backend:
            return Refusing(super().backend().config)

    broken = replace(STATIC[1], make=Failing(options={"mode": "reduce-overhead"}))
    found = verdicts(DOUBLED, share=True, modes=[STATIC[0], broken, STATIC[2]])
    assert [one.status for one in found] == ["right", "wrong", "right"]


def test_marks_are_those_of_the_mode(compiled: list[tuple[str, str]]) -> None:
    verdicts(DOUBLED, share=True, modes=[STATIC[0], STATIC[2]])
    assert sorted("range" in text for text, _ in compiled) == [False, True]
