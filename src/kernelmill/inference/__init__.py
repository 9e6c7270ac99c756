"""What serving needs: gears for a finite set of sizes."""

from kernelmill.inference.dim_gears import set_dim_gears
from kernelmill.inference.record_shapes import record_shapes

__all__ = ["record_shapes", "set_dim_gears"]
