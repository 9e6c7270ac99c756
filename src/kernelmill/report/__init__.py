"""What compiling and calling a model did, as facts, text, JSON, a page of HTML and a trace."""

from kernelmill.report.explanation import Explanation, explain

__all__ = ["Explanation", "explain"]
