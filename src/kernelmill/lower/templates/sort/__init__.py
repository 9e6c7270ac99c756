"""Sort and topk, as positions, in eager's order of equal elements."""
