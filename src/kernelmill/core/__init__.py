"""What every room may use: data types, dims, targets, digests, errors, knobs, log."""
