"""Convolutions whose vectors run along the pixels of an image."""
