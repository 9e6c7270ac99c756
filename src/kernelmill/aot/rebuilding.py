"""A compiled file on another machine than it was made for: its graph is compiled for this one."""

from __future__ import annotations

from kernelmill.aot.compiled import compiled
from kernelmill.aot.manifest import Manifest
from kernelmill.aot.sizes import size_check
from kernelmill.backend.entry import configured
from kernelmill.config import CompilerConfig
from kernelmill.graph.parser import parse_graph
from kernelmill.runtime.program import Program, load
from kernelmill.store.sealed import SealedFile


def rebuilt(file: SealedFile, manifest: Manifest) -> Program:
    """The program of the file's graph, for this machine. Kernels come from the kernel folder, or
    are compiled into it."""
    options = {name: value for name, value in manifest.options.items() if name != "target"}
    config = configured(CompilerConfig(), options=options)
    made = compiled(parse_graph(file.text("graph")), config)
    plan = made.draft.lowered.plan
    program = load(plan, made.objects, check_sizes=size_check(manifest, plan))
    program.check_weights(config.check_weights)
    return program
