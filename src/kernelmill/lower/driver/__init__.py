"""The way of a graph to kernels and a plan, stage by stage."""
