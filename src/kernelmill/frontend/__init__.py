"""Import of AOTAutograd's FX graphs as graphs of ours."""

from kernelmill.frontend.conditions import conditions_asked, conditions_from, conditions_of
from kernelmill.frontend.decompositions import decomposition_table
from kernelmill.frontend.eager_checks import refused_by_eager
from kernelmill.frontend.importer import ImportedGraph, import_fx
from kernelmill.frontend.recurrent import recurrent_decompositions, settle_recurrent
from kernelmill.frontend.results import UpdatedArguments, keep_strides
from kernelmill.frontend.tensors import lies_row_major, overlaps

__all__ = [
    "ImportedGraph",
    "UpdatedArguments",
    "conditions_asked",
    "conditions_from",
    "conditions_of",
    "decomposition_table",
    "import_fx",
    "keep_strides",
    "lies_row_major",
    "overlaps",
    "recurrent_decompositions",
    "refused_by_eager",
    "settle_recurrent",
]
