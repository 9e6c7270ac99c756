"""Reports on compiling and calling a model, as facts, text, JSON, a page of HTML and a trace."""

from kernelmill.report.explanation import Explanation, explain

__all__ = ["Explanation", "explain"]
