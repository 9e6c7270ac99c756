"""`python -m tools.bench` compares kernelmill with its peers and writes docs/performance.md."""
