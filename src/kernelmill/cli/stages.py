"""The stages of lowering as text, for the command and for golden files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelmill.codegen import assembly, llvm_ir
from kernelmill.core.errors import ConfigError
from kernelmill.core.target.machine import Machine, profile
from kernelmill.graph.ir import Graph
from kernelmill.graph.text import parse_graph, print_graph
from kernelmill.graph.verifier import verify_graph
from kernelmill.kernel.text import print_kernel
from kernelmill.lower.driver.program import lower_graph
from kernelmill.lower.schedule.text import check_sizes, parse_candidate, print_schedule
from kernelmill.passes import DEFAULT, Pass
from kernelmill.plan.text import print_plan
from kernelmill.runtime.calls.steps import print_steps, steps_of


def machine_named(name: str) -> Machine:
    """Return the built-in profile of an ISA, or this machine for "native". ConfigError else."""
    try:
        return profile(name)
    except ConfigError as error:
        raise ConfigError(f"--target: {error}") from None


def passes_named(names: str) -> Sequence[Pass]:
    """Return the passes of the pipeline with these names, "all" or "none". ConfigError for an
    unknown name."""
    if names in ("all", "none"):
        return DEFAULT if names == "all" else ()
    wanted, known = names.split(","), list(dict.fromkeys(each.name for each in DEFAULT))
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        raise ConfigError(f"--passes {unknown[0]}: the passes are {', '.join(known)}")
    return [each for each in DEFAULT if each.name in wanted]


def graph_of(text: str, file: str) -> Graph:
    """Parse the graph in a file. ConfigError for no graph, VerificationError for a wrong one."""
    try:
        graph = parse_graph(text)
    except ValueError as error:
        raise ConfigError(f"{file} is no graph: {error}") from None
    verify_graph(graph, file)
    return graph


def texts(
    graph: Graph, passes: Sequence[Pass], machine: Machine, separate: bool, stages: Sequence[str],
    sizes: str = "",
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Return a title and a text for each of the `stages` (graph, schedule, kernels, plan, call,
    llvm, asm) that a graph goes through; passes that change nothing have none. `sizes`, such as
    "rows=4", replace those that the cost model chooses for schedules.

    Raises VerificationError for a graph that a pass breaks, UnsupportedError for an operator
    without a lowering, ConfigError for sizes that no kernel can have.
    """
    candidate = parse_candidate(sizes)
    if "graph" in stages:
        yield "graph", print_graph(graph)
    for one in passes:
        before, graph = graph, one.apply(graph)
        if graph is not before:
            verify_graph(graph, one.name)
            if "graph" in stages and print_graph(graph) != print_graph(before):
                yield f"graph after {one.name}", print_graph(graph)
    if not set(stages) - {"graph"}:
        return
    lowered = lower_graph(graph, machine, separate, settle=lambda *_: candidate)
    schedules = {name: print_schedule(each.schedule) for name, each in lowered.facts.items()}
    check_sizes(candidate, schedules)
    for name, kernel in lowered.kernels.items():
        if "schedule" in stages and name in schedules:
            yield f"schedule of {name}", schedules[name]
        if "kernels" in stages:
            yield f"kernel {name} for {machine.isa}", print_kernel(kernel)
        if "llvm" in stages:
            yield f"LLVM IR of {name}", llvm_ir(kernel, machine.isa)
        if "asm" in stages:
            yield f"assembly of {name}", assembly(kernel, machine.isa)
    if "plan" in stages:
        yield "plan", print_plan(lowered.plan)
    if "call" in stages:
        yield "call", print_steps(steps_of(lowered.plan))
