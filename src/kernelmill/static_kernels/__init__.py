"""Static kernels apart from a run: record operators, compile them offline, pack them."""

from kernelmill.static_kernels.entry import Built, build, compile_log, from_profiler, record

__all__ = ["Built", "build", "compile_log", "from_profiler", "record"]
