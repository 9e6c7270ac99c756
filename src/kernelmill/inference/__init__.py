"""What serving needs: gears for a finite set of sizes."""

from kernelmill.inference.dim_gears import set_dim_gears

__all__ = ["set_dim_gears"]
