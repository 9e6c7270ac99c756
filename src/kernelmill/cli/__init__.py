"""The `kernelmill` command."""
