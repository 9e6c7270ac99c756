"""The stages from a graph to kernels and a plan."""
