"""Support for scripts written for torch_npu and torchair, by their names and on the CPU.

`import kernelmill` does none of this: `kernelmill run` and `install` change torch for the whole
process.
"""

from kernelmill.compat.install import install, run_script

__all__ = ["install", "run_script"]
