"""Sorting and topk in eager's order of equal elements."""
