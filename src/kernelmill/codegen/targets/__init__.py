"""From operations to the instructions of each family of processors.

`answers(isa)` is asked wherever a processor may have an instruction of its own. A family is one
file with a class derived from `Generic`, and a line in families.py.
"""

from kernelmill.codegen.targets.families import answers, spin_hint

__all__ = ["answers", "spin_hint"]
