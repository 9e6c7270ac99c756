"""Compilation of a graph to an artifact with all of its machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelmill.aot.gears import GearPrograms
from kernelmill.artifact.container import Artifact
from kernelmill.artifact.manifest import Manifest
from kernelmill.artifact.objects import artifact_of, graph_texts, with_objects
from kernelmill.artifact.tensors import tensors_of
from kernelmill.artifact.versions import versions
from kernelmill.backend.entry import configured
from kernelmill.compiler import Compiled, Compiler
from kernelmill.config import CompilerConfig
from kernelmill.config.tree import REDUCE_OVERHEAD
from kernelmill.core.errors import ConfigError
from kernelmill.core.target.isa import target_isa, why_not_here
from kernelmill.graph.ir import Graph
from kernelmill.graph.parser import parse_graph
from kernelmill.store.sealed import Pieces
from kernelmill.store.store import open_store


def compiled(
    graph: Graph,
    config: CompilerConfig,
    manifest: Manifest,
    tensors: Sequence[torch.Tensor],
    pieces: Mapping[str, Pieces],
    gears: GearPrograms | None = None,
) -> Artifact:
    """Return the artifact of a graph compiled for `config.target`, through the kernel folder; of
    one with gears, for each of them.

    ConfigError for options that leave work to later calls; else raises as `compile_graph` does.
    """
    _check_options(config, graph)
    compiler = Compiler(config, to_run=False)
    if gears is None:
        made = compiler.compile_all([graph])
    else:
        rest = compiler.compile_all([graph]) if gears.gears.otherwise == 0 else ()
        made = [*rest, *compiler.compile_at_sizes(graph, gears.named)]
        manifest = replace(manifest, gears=gears.gears)
    return _artifact(made, config, manifest, tensors, pieces)


def _check_options(config: CompilerConfig, graph: Graph) -> None:
    for option, is_set in (
        ("debug.run_eagerly", config.debug.run_eagerly),
        ("debug.data_dump", config.debug.data_dump.type is not None),
        ("dump_config.enable_dump", config.dump_config.enable_dump),
    ):
        if is_set:
            raise ConfigError(f"config.{option} and aot.compile do not go together")
    if config.mode == REDUCE_OVERHEAD and graph.symbols:
        raise ConfigError(
            f"config.mode {REDUCE_OVERHEAD!r} captures each set of sizes when it comes, with the "
            "compiler: compile ahead of time with sizes that are fixed, or in the other mode"
        )


def _artifact(
    made: Sequence[Compiled[Any]],
    config: CompilerConfig,
    manifest: Manifest,
    tensors: Sequence[torch.Tensor],
    pieces: Mapping[str, Pieces],
) -> Artifact:
    isa = target_isa(config.target, to_run=False)
    store = open_store(config.experimental_config.kernel_meta_dir, config.on_untrusted)
    manifest = replace(manifest, ingredients=versions(isa))
    # All of its objects are there by now.
    return with_objects(artifact_of(manifest, made, isa, tensors, pieces), store)


def retargeted(artifact: Artifact) -> Artifact:
    """Return the same programs for this machine: graphs compiled again, without packed weights."""
    manifest = replace(artifact.manifest, packed=())
    options = {name: value for name, value in manifest.options.items() if name != "target"}
    config = configured(CompilerConfig(), options=options)
    graphs = [parse_graph(text) for text in graph_texts(artifact)]
    made = Compiler(config, to_run=False).compile_all(graphs)
    return _artifact(made, config, manifest, tensors_of(artifact), {})


def check_target(config: CompilerConfig, mmap_packed_weights: bool) -> None:
    """Raise ConfigError for options that run kernels, where this machine cannot run them."""
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
