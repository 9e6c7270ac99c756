"""Programs for those who work on kernelmill: benchmarks and sweeps, run from the root with -m."""
