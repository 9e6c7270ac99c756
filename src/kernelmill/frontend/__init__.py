"""Import of AOTAutograd's FX graphs as graphs of ours."""
