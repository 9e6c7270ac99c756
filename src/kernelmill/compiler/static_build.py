"""Static kernels for a captured program: compiled, by all processes of a machine together, chosen,
written out and loaded.

The output has the layout of TorchAir's static kernel compile:

    {build_dir}/aclnn_static_shape_kernel_outputs/{timestamp}_{pid}_outputs/
        {pid}/*.json             operators that can have static kernels
        {pid}_debug/*.json       all operators
        {pid}_opcompile/*.json   compiled operators, with the choices
        static_kernel_{datetime}.run
        installed/               with several processes: the package that all of them use

or, for npugraph_ex, of static_kernel_compile_outputs/ts{timestamp}_pid{pid}_outputs: compiled
operators are in {pid}_opcompile_selected there, and candidates in {pid}_opcompile.

The rank group: processes of one machine that compile static kernels together.

They communicate through the key-value store of torch.distributed, not through collectives, so the
program's own communication is not affected, and a dead process is a missing answer. A process
whose wait times out continues alone; kernels and packages are safe without this.

Recording needs no extra run. Every live program is registered here with its graph. A recording
compares the programs' counters at its begin and end, so calls cost nothing more meanwhile.

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
import itertools
import json
import os
import sys
import weakref
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from kernelmill.compiler.choices import TYPE, Choices, FailedOperator
from kernelmill.core import knobs
from kernelmill.core.after_fork import RenewedLock
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim
from kernelmill.core.dtype import DType
from kernelmill.core.errors import ConfigError, ConfigPathError, KernelmillError, file_errors
from kernelmill.core.log import get_logger
from kernelmill.core.target.machine import Machine, host
from kernelmill.graph.builder import GraphSource, at_sizes
from kernelmill.graph.ir import Graph, TensorType, Value
from kernelmill.graph.text import parse_graph, print_graph
from kernelmill.graph.verifier import verify_graph
from kernelmill.lower.driver.operators import Operator
from kernelmill.lower.driver.program import extract_operators
from kernelmill.plan.ir import AtenCall, Plan
from kernelmill.runtime.calls.engine import Engine
from kernelmill.runtime.program import Program
from kernelmill.store.installer import Refused, install
from kernelmill.store.packages import PackageContents, packages_in, write_run
from kernelmill.torch_internals.devices import default_store

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


PATIENCE_SECONDS = 120.0
"""Longest wait for another process. Compiling its share takes seconds."""

_meetings = itertools.count()
_lost = [False]


class RankLost(KernelmillError):
    """Another process did not answer in time."""


@dataclass(frozen=True)
class RankGroup:
    """A group seen by process `place` of `size` on a machine; 0 leads. `store` has messages."""

    place: int
    size: int
    store: Any

    def gather(self, what: str, mine: list[Any]) -> list[Any]:
        """Return the lists of all processes, concatenated, in each of them."""
        self.say(f"{what}/{self.place}", mine)
        if self.place == 0:
            lists = [self.hear(f"{what}/{place}") for place in range(self.size)]
            self.say(what, [item for each in lists for item in each])
        return self.hear(what)

    def meet(self, where: str) -> None:
        """Wait until all processes have called this."""
        self.gather(where, [])

    def say(self, what: str, value: Any) -> None:
        """Send a value, which must be JSON-able, to the other processes."""
        try:
            self.store.set(what, json.dumps(value))
        except RuntimeError as error:
            raise self._loss(what, error) from None

    def hear(self, what: str) -> Any:
        """Return a value that a process has sent or will send. RankLost when it does not come."""
        try:
            self.store.wait([what], timedelta(seconds=PATIENCE_SECONDS))
            return json.loads(self.store.get(what))
        except RuntimeError as error:
            raise self._loss(what, error) from None

    def _loss(self, what: str, error: Exception) -> RankLost:
        _lost[0] = True  # once is enough: the others would be waited for again and again
        return RankLost(f"{what}: {str(error).splitlines()[0]}")


def rank_group() -> RankGroup | None:
    """Return the processes of this machine, for one more build; None for this one alone.

    Their number is LOCAL_WORLD_SIZE; without it, and without torch.distributed, nothing is shared.
    ConfigError when it is no number above 0, or does not divide the world.
    """
    import torch.distributed as distributed

    size = knobs.LOCAL_WORLD_SIZE.get()
    if size is None:
        return None
    world = rank = 0
    if distributed.is_available() and distributed.is_initialized():
        world, rank = distributed.get_world_size(), distributed.get_rank()
    if world % size:
        raise ConfigError(
            f"environment variable LOCAL_WORLD_SIZE={size} does not divide the {world} processes "
            "of the job; every machine must run as many"
        )
    if world == 0 or size == 1 or _lost[0]:
        return None
    from torch.distributed.distributed_c10d import PrefixStore

    get_store = default_store.get()
    if get_store is None:
        return None
    machine, place = divmod(rank, size)
    prefix = f"kernelmill/static/{machine}/{next(_meetings)}"
    return RankGroup(place, size, PrefixStore(prefix, get_store()))


NEWER_OUTPUTS = "static_kernel_compile_outputs"
_log = get_logger("compiler")


def build_folder(given: str | None) -> str:
    """Return the folder for outputs: as given, else that of the running script.

    ConfigPathError when it cannot be read and written.
    """
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folder = given or os.path.dirname(os.path.abspath(script or "script"))
    if not os.path.isdir(folder) or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigPathError(
            "config.experimental_config.aclgraph._aclnn_static_shape_kernel_build_dir: "
            f"{folder!r} must be a folder that can be read and written"
        )
    return folder


@dataclass(frozen=True)
class StaticBuild:
    """A build into `folder` with the kernels and choices of `choices`.

    For a dynamic program it also builds the kernels for each of `sizes` of symbol number `symbol`,
    at its first call, whose sizes the other symbols have.
    """

    choices: Choices
    folder: str
    symbol: int = 0
    sizes: tuple[int, ...] = ()
    outputs: str = "aclnn_static_shape_kernel_outputs"

    def run(self, program: str, operators: list[Operator], plan: Plan) -> None:
        """Compile for the operators of a program, and write the files described in the module.

        A file that cannot be written is a warning: the program runs without it.
        """
        try:
            self._run(program, operators, plan)
        except (OSError, Refused) as error:
            _log.warning("static kernels of %s in %s: %s", program, self.folder, error)

    def _run(self, program: str, operators: list[Operator], plan: Plan) -> None:
        now = datetime.now().strftime("%Y%m%d%H%M%S%f")
        pid = os.getpid()
        newer = self.outputs == NEWER_OUTPUTS
        own = f"ts{now}_pid{pid}_outputs" if newer else f"{now}_{pid}_outputs"
        outputs = os.path.join(self.folder, self.outputs, own)
        documents = [to_document(operator) for operator in operators]
        write_documents(os.path.join(outputs, str(pid)), documents)
        everything = [*documents, *aten_documents(plan)]
        write_documents(os.path.join(outputs, f"{pid}_debug"), everything)
        build = _Build(self.choices, f"static_kernel_{now}", outputs)
        members = rank_group()
        try:
            path = build.alone(operators) if members is None else build.together(operators, members)
        except RankLost as lost:
            _log.warning("static kernels are compiled by this process alone: %s", lost)
            path = build.alone(operators)
        chosen = [document for document in map(self._chosen, operators) if document is not None]
        if newer:
            write_documents(os.path.join(outputs, f"{pid}_opcompile"), documents)
        selected = f"{pid}_opcompile_selected" if newer else f"{pid}_opcompile"
        write_documents(os.path.join(outputs, selected), chosen)
        static = sum(document["kernel"] == "static" for document in chosen)
        _log.info(
            "%s: %d of %d operators have static kernels; %s",
            program, static, len(operators), path,
        )  # fmt: skip

    def _chosen(self, operator: Operator) -> Document | None:
        packaged = self.choices.packaged(operator)
        choice = self.choices.known(operator) if packaged is None else packaged[1]
        if choice is None:
            return None
        times = {"static_ns": choice.static_ns, "dynamic_ns": choice.dynamic_ns}
        return {**to_document(operator), "kernel": choice.kernel, **times}


@dataclass(frozen=True)
class _Build:
    """One build: its kernels go into the package `name` in the folder `outputs`."""

    choices: Choices
    name: str
    outputs: str

    def alone(self, operators: Iterable[Operator]) -> str:
        """Compile all operators here; return the package's path."""
        self._make(operators)
        return write_run(package_contents(self.name, self.choices, operators), self.outputs)

    def together(self, operators: Iterable[Operator], members: RankGroup) -> str:
        """Compile the operators of all members, each a share, and use the package of the first.

        The members may have kernel folders of their own: the installed package is for all.
        """
        documents = members.gather("operators", [to_document(each) for each in operators])
        distinct = {document["graph"]: document for document in documents}
        everything = [from_document(distinct[text]) for text in sorted(distinct)]
        self._make(everything[members.place :: members.size])
        members.meet("compiled")
        if members.place == 0:
            package = self.alone(everything)  # finds the others' in the folder, where they share it
            folder = os.path.join(self.outputs, "installed")
            install(package, folder)
            members.say("installed", folder)
        folder = members.hear("installed")
        for package in packages_in(folder):
            self.choices.store.add_package(package)
        return folder

    def _make(self, operators: Iterable[Operator]) -> None:
        new = [operator for operator in operators if self.choices.known(operator) is None]
        report_failures(self.choices.make(new, len(os.sched_getaffinity(0))))


def package_contents(name: str, choices: Choices, operators: Iterable[Operator]) -> PackageContents:
    """Return a package of the chosen kernels of these operators, as far as a choice was made."""
    files: dict[str, bytes] = {}
    kernels: dict[str, str] = {}
    for operator in operators:
        for entry in choices.entries(operator):
            files.update(choices.store.files(entry))
            if not entry.name.startswith(f"{TYPE}_"):
                kernels.setdefault(entry.name, to_document(operator)["name"])
    created = datetime.now().astimezone().isoformat(timespec="seconds")
    return PackageContents(name, choices.machine, files, sorted(kernels.items()), created)


def report_failures(failures: Iterable[FailedOperator]) -> None:
    """Log a warning for each operator that got no static kernel."""
    for failure in failures:
        where = f" ({failure.operator.origin})" if failure.operator.origin else ""
        _log.warning("no static kernel for %s%s: %s", failure.operator.type, where, failure.reason)


def write_documents(folder: str, documents: Iterable[Document]) -> None:
    """Write `{name}_{number}.json` for each document; the number distinguishes equal names."""
    os.makedirs(folder, exist_ok=True)
    numbers: dict[str, int] = {}
    for document in documents:
        name = document["name"]
        number = numbers[name] = numbers.get(name, -1) + 1
        path = os.path.join(folder, f"{name}_{number}.json")
        with open(path, "w") as file:
            json.dump({**document, "name": f"{name}_{number}"}, file, indent=1)
            file.write("\n")
