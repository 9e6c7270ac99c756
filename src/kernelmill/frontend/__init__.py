"""Import of AOTAutograd's FX graphs into the graph IR."""
