"""A graph through the compiler, with the machine code of all that its program runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelmill.compiler import compile_graph
from kernelmill.compiler.drivers import obtain_drivers
from kernelmill.compiler.linking import Draft, collect_drafts
from kernelmill.compiler.objects import obtain, obtain_dims, requests_of
from kernelmill.config import CompilerConfig
from kernelmill.config.tree import REDUCE_OVERHEAD
from kernelmill.core.errors import ConfigError
from kernelmill.core.isa import Isa, target_isa, why_not_here
from kernelmill.graph.ir import Graph
from kernelmill.runtime.dims import dims_needed
from kernelmill.runtime.executor import executor_object
from kernelmill.runtime.program import DIMS_OBJECT
from kernelmill.store.store import open_store


@dataclass(frozen=True)
class CompiledGraph:
    """What the compiler made of a graph: `objects` are ELF images by name, as
    runtime/program.py takes them, for this `isa`."""

    draft: Draft
    objects: Mapping[str, bytes]
    isa: Isa


def compiled(graph: Graph, config: CompilerConfig) -> CompiledGraph:
    """Compile a graph for what `config.target` says, through the kernel folder.

    ConfigError for options that leave work to later calls; else raises as `compile_graph` does.
    """
    if config.debug.run_eagerly:
        raise ConfigError("config.debug.run_eagerly and aot.compile do not go together")
    if config.mode == REDUCE_OVERHEAD and graph.symbols:
        raise ConfigError(
            f"config.mode {REDUCE_OVERHEAD!r} captures each set of sizes when it comes, with the "
            "compiler: compile ahead of time with sizes that are fixed, or in the other mode"
        )
    with collect_drafts() as drafts:
        compile_graph(graph, config, to_run=False)
    (draft,) = drafts
    plan, kernels = draft.lowered.plan, draft.lowered.kernels
    store = open_store(config.experimental_config.kernel_meta_dir, config.on_untrusted)
    isa = target_isa(config.target, to_run=False)
    # All of these are there by now.
    entries = obtain(requests_of(plan, kernels), store, isa, draft.others)
    objects = {name: entry.object for name, entry in entries.items()}
    objects.update(obtain_drivers(plan, store, isa))
    if plan.symbols:
        objects[DIMS_OBJECT] = obtain_dims(plan.symbols, dims_needed(plan), store, isa).object
    objects.update([executor_object()])
    return CompiledGraph(draft, objects, isa)


def check_target(config: CompilerConfig, mmap_packed_weights: bool) -> None:
    """ConfigError for options that run what is compiled, where this machine cannot run it."""
    reason = why_not_here(target_isa(config.target, to_run=False))
    if reason and config.aoe_config.aoe_mode is not None:
        raise ConfigError(
            f"config.aoe_config.aoe_mode measures kernels, and cannot those of config.target="
            f"{config.target!r}: {reason}"
        )
    if reason and mmap_packed_weights:
        raise ConfigError(
            f"mmap_packed_weights packs the weights with kernels, and cannot with those of "
            f"config.target={config.target!r}: {reason}"
        )
