"""Recording of the operators that run, with their shapes, without a run of its own.

Every loaded program is registered here with its graph, as long as it lives. A recording compares
the programs' counters at its begin and end, so calls cost nothing more meanwhile.

Operators as JSON documents, written to the output tree and to logs, and read back.

    {"type": "MatMul", "name": "MatMul_float_ND_1_2048", "origin": "model.py:12",
     "inputs": [{"shape": [1, 2048], "dtype": "float", "format": "ND", "strides": [2048, 1]}, ...],
     "outputs": [...], "graph": TEXT, "general": TEXT or null, "values": {"s0": 2048}}

`graph` and `general` are in the grammar of graph/ir.py: the operator with its sizes, and for all
sizes with `values` for its symbols.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import weakref
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from kernelmill.core import knobs
from kernelmill.core.after_fork import RenewedLock
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import DType
from kernelmill.core.errors import KernelmillError, file_errors
from kernelmill.core.log import get_logger
from kernelmill.core.target.machine import Machine, host
from kernelmill.graph.ir import Graph, TensorType, Value
from kernelmill.graph.parser import parse_graph
from kernelmill.graph.printer import print_graph
from kernelmill.graph.sizes import GraphSource, at_sizes
from kernelmill.graph.verifier import verify_graph
from kernelmill.lower.driver.operators import Operator
from kernelmill.lower.driver.program import extract_operators
from kernelmill.plan.ir import AtenCall, Plan
from kernelmill.runtime.calls.engine import Engine
from kernelmill.runtime.program import Program

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


_log = get_logger("compiler")
_graphs: weakref.WeakKeyDictionary[Engine, tuple[GraphSource, bool]] = weakref.WeakKeyDictionary()


_noting = RenewedLock()


def note(program: Program, source: GraphSource, fused: bool) -> None:
    """Register a program. `fused` programs have kernels of several operators."""
    with _noting.lock:
        _graphs[program.engine] = (source, fused)
    path = knobs.RECORD_OPS.get()
    if not path:
        return
    if source.graph.symbols:
        _at_exit(path)  # its sizes are known then
    else:
        append(path, documents_of(source.graph, fused))


_AT_EXIT: set[str] = set()


def _at_exit(path: str) -> None:
    if path not in _AT_EXIT:
        _AT_EXIT.add(path)
        atexit.register(lambda: append(path, _documents(_symbolic())))


def _symbolic() -> list[Engine]:
    return [engine for engine, (source, _) in list(_graphs.items()) if source.graph.symbols]


@contextmanager
def recording(path: str) -> Generator[None]:
    """Append the operators of all programs that are called inside to the log at `path`."""
    append(path, [])  # so that a path that cannot be written fails now
    before: weakref.WeakKeyDictionary[Engine, int] = weakref.WeakKeyDictionary()
    for engine in list(_graphs):
        before[engine] = _calls(engine)
        engine.sizes.clear()  # worked out again at the next call
    try:
        yield
    finally:
        called = [engine for engine in list(_graphs) if _calls(engine) != before.get(engine, 0)]
        append(path, _documents(called))


def _calls(engine: Engine) -> int:
    return engine.pool.calls


def _documents(engines: Iterable[Engine]) -> list[Document]:
    found: list[Document] = []
    for engine in engines:
        source, fused = _graphs[engine]
        names = [source.name for source in engine.sources]
        if not names:
            found += documents_of(source.graph, fused)
        for sizes in list(engine.sizes):
            found += documents_of(source.graph, fused, dict(zip(names, sizes, strict=True)))
    return found


def documents_of(graph: Graph, fused: bool, sizes: dict[str, int] | None = None) -> list[Document]:
    """Return documents of a graph's operators at these sizes; if `fused`, also of the graph."""
    exact = at_sizes(graph, sizes or {}) if graph.symbols else graph
    documents = [to_document(each) for each in operators_of(exact, host())]
    if fused:
        name = f"{graph.name}_program"
        documents.append({"type": "Program", "name": name, "program": print_graph(graph, False)})
    return documents


def operators_of(graph: Graph, machine: Machine) -> list[Operator]:
    """Return the operators of a graph that have a form of their own, and sizes that are numbers."""
    found: dict[str, Operator] = {}
    for operator in extract_operators(graph, machine).operators.values():
        if operator.graph is not None:
            found.setdefault(print_graph(operator.graph, names=False), operator)
    return list(found.values())


# ---- logs ---------------------------------------------------------------------------------------


def append(path: str, documents: Iterable[Document]) -> int:
    """Append those documents that are new to the log at `path`, one a line; return their number.

    Several processes may write to one log. FileError when it cannot be written.
    """
    with file_errors(path), open(path, "a+b") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        log.seek(0)
        lines = log.read().splitlines(keepends=True)
        known = {_identity(line) for line in lines}
        fresh = {_identity(text): text for text in map(_line, documents)}
        new = [text for identity, text in fresh.items() if identity not in known]
        # A line that a killed process left unfinished ends here.
        start = b"\n" if lines and not lines[-1].endswith(b"\n") else b""
        os.write(log.fileno(), start + b"".join(new))
        return len(new)


def _line(document: Document) -> bytes:
    return json.dumps(document, sort_keys=True).encode() + b"\n"


def _identity(line: bytes) -> object:
    """Return the identity of a document: not its line in the user's program."""
    try:
        document = json.loads(line)
        return (document.get("graph"), document.get("program"))
    except (ValueError, AttributeError):
        return line
