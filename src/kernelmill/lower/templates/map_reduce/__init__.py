"""Maps and reductions: loops over the axes of a fusion group."""
