"""The direct-convolution template, and its layouts."""
