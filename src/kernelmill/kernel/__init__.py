"""IR of one kernel: loops, vectors and tiles over buffers."""
