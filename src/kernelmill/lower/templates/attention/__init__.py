"""Attention as one kernel: scores, softmax and the weighted sum of values, block by block."""
