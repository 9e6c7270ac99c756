"""Rewrites of the graph, one in each file, and the pipeline that runs them."""

from kernelmill.passes.pipeline import DEFAULT, Pass, run_pipeline

__all__ = ["DEFAULT", "Pass", "run_pipeline"]
