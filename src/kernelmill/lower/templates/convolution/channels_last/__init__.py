"""Convolutions whose results lie channels last: vectors run along the channels."""
