"""The compiler's only product: launches, buffers and lifetimes, constants, as plain data."""
