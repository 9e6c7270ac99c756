"""Long-lived arguments: binding, packing, and detection of writes."""
