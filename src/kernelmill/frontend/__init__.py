"""AOTAutograd's FX graphs as graphs of ours."""

from kernelmill.frontend.decompositions import decomposition_table
from kernelmill.frontend.importer import ImportedGraph, import_fx

__all__ = ["ImportedGraph", "decomposition_table", "import_fx"]
