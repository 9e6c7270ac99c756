"""Operators as JSON documents, written to the output tree and to logs, and read back.

    {"type": "MatMul", "name": "MatMul_float_ND_1_2048", "origin": "model.py:12",
     "inputs": [{"shape": [1, 2048], "dtype": "float", "format": "ND", "strides": [2048, 1]}, ...],
     "outputs": [...], "graph": TEXT, "general": TEXT or null, "values": {"s0": 2048}}

`graph` and `general` are in the grammar of graph/ir.py: the operator with its sizes, and for all
sizes with `values` for its symbols.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelmill.core.dim import Dim
from kernelmill.core.dtype import DType
from kernelmill.core.errors import KernelmillError
from kernelmill.graph.ir import Graph, TensorType, Value
from kernelmill.graph.parser import parse_graph
from kernelmill.graph.printer import print_graph
from kernelmill.graph.verifier import verify_graph
from kernelmill.lower.driver.operators import Operator
from kernelmill.plan.ir import AtenCall, Plan

Document = dict[str, Any]
FORMAT = "ND"
_NAMES = {"float32": "float", "float64": "double"}


def to_document(operator: Operator) -> Document:
    """Return the document of an operator whose sizes are numbers."""
    graph = operator.graph
    assert graph is not None
    inputs = [_tensor(entry.value.type) for entry in graph.tensor_inputs()]
    outputs = [_tensor(value.type) for value in graph.results if isinstance(value, Value)]
    dtype = (inputs or outputs)[0]["dtype"]
    sizes = "_".join(map(str, operator.shape)) or "scalar"
    return {
        "type": operator.type,
        "name": f"{operator.type}_{dtype}_{FORMAT}_{sizes}",
        "origin": operator.origin,
        "shape": [str(size) if not isinstance(size, int) else size for size in operator.shape],
        "inputs": inputs,
        "outputs": outputs,
        "graph": print_graph(graph, names=False),
        "general": None if operator.general is None else print_graph(operator.general, names=False),
        "values": dict(operator.values),
    }


def from_document(document: Mapping[str, Any]) -> Operator:
    """Return the operator in a document. KernelmillError for an invalid document."""
    try:
        graph = _graph(document["graph"])
        general = None if document["general"] is None else _graph(document["general"])
        values = {str(name): int(value) for name, value in document["values"].items()}
        shape = tuple(int(size) for size in document["shape"])
        kind, origin = str(document["type"]), str(document["origin"])
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise KernelmillError(f"not an operator's document: {error}") from error
    inputs = tuple(range(sum(1 for _ in graph.tensor_inputs())))
    outputs = tuple(range(len(graph.results)))
    return Operator(kind, graph, general, values, shape, origin, inputs, outputs)


def aten_documents(plan: Plan) -> list[Document]:
    """Return short documents of the operators that run in ATen."""
    found: list[Document] = []
    for step in plan.steps:
        if isinstance(step, AtenCall):
            kind = step.target.removeprefix("aten.").replace(".", "_")
            shapes = [plan.buffers[n].shape for n in step.results if n >= 0]
            dtypes = [plan.buffers[n].dtype for n in step.results if n >= 0]
            sizes = "_".join(str(size) for shape in shapes[:1] for size in shape) or "scalar"
            name = f"{kind}_{_dtype(dtypes[0]) if dtypes else 'none'}_{FORMAT}_{sizes}"
            found.append({"type": kind, "name": name, "origin": step.origin, "aten": step.target})
    return found


def _graph(text: str) -> Graph:
    graph = parse_graph(text)
    verify_graph(graph, "a recorded operator")
    return graph


def _tensor(kind: TensorType) -> dict[str, Any]:
    return {
        "shape": [_size(size) for size in kind.shape],
        "dtype": _dtype(kind.dtype),
        "format": FORMAT,
        "strides": [_size(stride) for stride in kind.memory_strides],
    }


def _size(dim: Dim) -> int | str:
    return dim if isinstance(dim, int) else str(dim)


def _dtype(dtype: DType) -> str:
    return _NAMES.get(dtype.torch_name, dtype.torch_name)
