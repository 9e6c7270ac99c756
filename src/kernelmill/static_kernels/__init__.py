"""Static kernels apart from a run: operators recorded, compiled offline and packed."""

from kernelmill.static_kernels.entry import Built, build, compile_log, from_profiler, record

__all__ = ["Built", "build", "compile_log", "from_profiler", "record"]
