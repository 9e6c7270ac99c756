"""Convolutions with results stored channels last: vectors run along the channels."""
