"""The convolution template for images stored channels last: vectors run along the channels."""
