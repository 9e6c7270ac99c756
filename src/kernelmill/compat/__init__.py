"""Runs scripts written for torch_npu and torchair, with their names and on the CPU.

Nothing here happens by `import kernelmill`: `kernelmill run` and `install` change torch for the
whole process.
"""

from kernelmill.compat.install import install
from kernelmill.compat.script import run_script

__all__ = ["install", "run_script"]
