"""Composition of the stages: graph in, running program and report out."""

from kernelmill.compiler.gears import GearCompiler
from kernelmill.compiler.linking import Compiled
from kernelmill.compiler.pipeline import Compiler, compile_graph
from kernelmill.compiler.report import CompileReport, KernelReport

__all__ = [
    "CompileReport",
    "Compiled",
    "Compiler",
    "GearCompiler",
    "KernelReport",
    "compile_graph",
]
