"""Composes the stages: graph in, running program and report out."""

from kernelmill.compiler.gears import GearCompiler
from kernelmill.compiler.pipeline import compile_graph
from kernelmill.compiler.report import CompileReport, KernelReport, collect_reports

__all__ = [
    "CompileReport",
    "GearCompiler",
    "KernelReport",
    "collect_reports",
    "compile_graph",
]
