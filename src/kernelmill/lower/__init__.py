"""Graph to kernels: fusion, placement, and the templates."""
