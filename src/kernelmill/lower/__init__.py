"""Graph to kernels: what is fused with what, where values live, and the templates."""
