"""Objects of kernels and of drivers of super kernels: from the store, or compiled."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelmill import codegen
from kernelmill.codegen import key_of
from kernelmill.compiler.progress import ProgressLine
from kernelmill.core.dataclass import dataclass
from kernelmill.core.digest import Key
from kernelmill.core.dim import Dim, Sym, bounds, symbols
from kernelmill.core.target.isa import Isa
from kernelmill.core.workers import Workers, WorkItem
from kernelmill.kernel.ir import Buffer, Kernel
from kernelmill.kernel.text import print_kernel
from kernelmill.kernel.verifier import verify_kernel
from kernelmill.plan.ir import Launch, Plan, SuperKernel, sub_launches
from kernelmill.store.entry import Entry, NewEntry
from kernelmill.store.store import Nearest, Store
from kernelmill.superkernel.driver import driver_ir

MAGIC = "KM_CPU_BINARY_MAGIC_ELF"


@dataclass(frozen=True)
class Use:
    """The first use of a kernel, described in the .info but not part of the key.

    operators   names of the graph's operators that it computes
    shapes      of the tensors behind its buffers, in its order; empty when they are not known
    graph       name of the program
    origin      the user's line, "model.py:12"
    text        the kernel's, without its name; it is printed where none is given
    """

    operators: tuple[str, ...]
    shapes: tuple[tuple[Dim, ...], ...] = ()
    graph: str = ""
    origin: str = ""
    text: str = ""


def describe(
    kernel: Kernel, use: Use, isa: Isa, name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (info, launch) of a kernel that is stored under `name`."""
    operators = use.operators
    shapes = use.shapes or tuple((buffer.elements,) for buffer in kernel.buffers)
    tensors = list(zip(kernel.buffers, shapes, strict=True))
    inputs = [_tensor(b, shape) for b, shape in tensors if b.access != "out"]
    outputs = [_tensor(b, shape) for b, shape in tensors if b.access != "in"]
    info: dict[str, Any] = {
        "SocInfo": _processor(isa),
        "op_info": {
            "Type": kernel.type,
            "attrs": {"operators": list(operators), "origin": use.origin},
            "full_name": f"{use.graph or 'Default'}/{kernel.type}",
            "gen_model": "single" if len(operators) == 1 else "fused",
            "graph_id": _trailing_number(use.graph),
            "inputs": [[tensor] for tensor in inputs],
            "outputs": [[tensor] for tensor in outputs],
            "is_dynamic_shape": bool(kernel.dims),
            "kernel_name": name,
            "module_name": "kernelmill.lower",
            "name": kernel.type.lower(),
            "py_module_path": "kernelmill",
            "socVersion": isa.cpu,
        },
        "impl_path": "",
        "platform": "LLVM",
        "kernel_ir": use.text or print_kernel(kernel, name=False),
    }
    launch = {
        "batchBindOnly": 1,
        "blockDim": kernel.tasks if isinstance(kernel.tasks, int) else str(kernel.tasks),
        "kernelName": kernel.name,
        "magic": MAGIC,
        "opParaSize": 8 * len(kernel.dims),
        "parameters": [0] * len(kernel.buffers),
        "access": [buffer.access for buffer in kernel.buffers],
        "dims": [symbol.name for symbol in kernel.dims],
        "scratch": kernel.scratch if isinstance(kernel.scratch, int) else str(kernel.scratch),
    }
    return info, launch


def _processor(isa: Isa) -> dict[str, Any]:
    """Return the fields of MindSpore's SocInfo, and ours. Those of Ascend buffers and modes have
    the values that apply here: tiles are chosen by rules (no tuning bank), nothing is fused into an
    L1 or L2 buffer by hand, and there is one implementation of each operator."""
    return {
        "autoTilingMode": "NO_TUNE",
        "coreNum": "",
        "coreType": "CPU",
        "l1Fusion": "false",
        "l2Fusion": "false",
        "l2Mode": "0",
        "op_debug_level": "",
        "op_impl_mode": "",
        "op_impl_mode_list": [],
        "socVersion": isa.cpu,
        "triple": isa.triple,
        "features": isa.llvm_features,
        "vectorBits": isa.vector_bits,
    }


def _trailing_number(graph: str) -> int:
    """Return 3 for "forward_3": graphs are numbered in the order of their capture."""
    digits = graph[len(graph.rstrip("0123456789")) :]
    return int(digits or 0)


def _tensor(buffer: Buffer, shape: tuple[Dim, ...]) -> dict[str, Any]:
    """Describe a buffer; -1 stands for a symbolic size, with its bounds in the range."""
    sizes = [-1 if symbols(size) else size for size in shape]
    return {
        "dtype": buffer.dtype.torch_name,
        "format": "ND",
        "name": buffer.name,
        "ori_format": "ND",
        "ori_shape": [str(size) if symbols(size) else size for size in shape],
        "param_type": "required",
        "range": [list(bounds(size)) for size in shape],
        "shape": sizes,
        "valid": True,
    }


_REDRAW_SECONDS = 0.2
_WAITING = 1
"""Threads beyond the cores: one of them waits for the disk."""

_NONE: Mapping[str, Isa] = {}


@dataclass(frozen=True)
class Request:
    """A kernel that a program needs, with the operators that it computes.

    `shapes` are those of the tensors behind the kernel's buffers where it is first launched, in the
    kernel's order; if empty, the buffers are described as flat. `graph` names the program. `text`
    is the kernel's without its name, if known already.
    """

    kernel: Kernel
    operators: tuple[str, ...]
    origin: str
    shapes: tuple[tuple[Dim, ...], ...] = ()
    graph: str = ""
    text: str = ""


def requests_of(plan: Plan, kernels: Mapping[str, Kernel]) -> list[Request]:
    """Return requests for the kernels that a plan launches, each once."""
    launches = [s for s in (*plan.prepare, *plan.steps) if isinstance(s, Launch)]
    first = {launch.kernel: launch for launch in reversed(launches)}
    requests: list[Request] = []
    for ref in plan.kernels:
        numbers = first[ref.name].buffers
        shapes = tuple(plan.buffers[n].shape if n >= 0 else (1,) for n in numbers)
        kernel = kernels[ref.name]
        requests.append(Request(kernel, ref.operators, ref.origin, shapes, plan.name))
    return requests


def kernel_key(kernel: Kernel, isa: Isa, text: str = "") -> Key:
    """Return the key of all inputs that determine the bytes of a kernel's object. `text` is the
    kernel's without its name, if known already."""
    return key_of(isa, kernel=text or print_kernel(kernel, name=False))


def obtain(
    requests: Sequence[Request], store: Store, isa: Isa, others: Mapping[str, Isa] = _NONE
) -> dict[str, Entry]:
    """Return the objects of all kernels by kernel name, compiling those missing in the store.

    `others` are the ISAs of kernels that are not for `isa`.
    """
    if len(requests) == 1:
        (one,) = requests
        return {one.kernel.name: _job(one, store, others.get(one.kernel.name, isa))[1]()}
    with KernelBuilds(store, isa) as builds:
        builds.add(requests, others)
        return builds.finish()[0]


class KernelBuilds:
    """A queue of kernels of several programs being compiled, while the caller lowers the next.

    Use in `with`: an exit after an error or Ctrl-C drops jobs that have not begun, and keeps the
    kernels that are being compiled.
    """

    def __init__(self, store: Store, isa: Isa) -> None:
        self._store = store
        self._isa = isa
        self._workers = Workers(len(os.sched_getaffinity(0)) + _WAITING)
        self._by_key: dict[str, WorkItem[Entry]] = {}
        self._keys: dict[int, tuple[Kernel, Key]] = {}
        self._programs: list[dict[str, WorkItem[Entry]]] = []
        self._beside: list[WorkItem[object]] = []
        self._progress, self._name = ProgressLine(), ""

    def __enter__(self) -> KernelBuilds:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._workers.__exit__(*error)
        finally:
            self._progress.close()

    def beside(self, work: Callable[[], object]) -> None:
        """Submit other work that a program needs and that calls LLVM."""
        self._beside.append(self._workers.submit(work))

    def begin(self, request: Request, isa: Isa | None = None) -> WorkItem[Entry]:
        """Submit a kernel, if it is a new one; `isa` if it is not for this one."""
        number = id(request.kernel)
        known = self._keys.get(number) if isa is None else None
        if known is not None:
            return self._by_key[known[1].digest]
        key, job = _job(request, self._store, isa or self._isa)
        if isa is None:
            self._keys[number] = request.kernel, key  # keeps the id from reuse
        if key.digest not in self._by_key:
            self._by_key[key.digest] = self._workers.submit(job)
            self._name = request.graph
            if self._progress.is_due:
                self.show()
        return self._by_key[key.digest]

    def add(self, requests: Sequence[Request], others: Mapping[str, Isa] = _NONE) -> None:
        """Submit another program's kernels. A name may mean different kernels in each program;
        equal ones are compiled once. `others` are the ISAs of kernels that are not for this one."""
        self._programs.append(
            {r.kernel.name: self.begin(r, others.get(r.kernel.name)) for r in requests}
        )
        self.show()

    def show(self) -> None:
        """Draw the progress. Raises the error of a failed compile."""
        jobs = self._by_key.values()
        done = [job for job in jobs if job.is_done]
        for job in done:
            job.result()
        self._progress.show(len(done), len(jobs), self._name)

    def finish(self) -> list[dict[str, Entry]]:
        """Return the objects of each program by kernel name. Raises the error of a failed compile
        or of other submitted work."""
        while not all(job.is_done for job in self._by_key.values()):
            self._workers.wait(self._by_key.values(), _REDRAW_SECONDS)
            self.show()
        self.show()
        for job in self._beside:
            self._workers.wait([job])
            job.result()
        return [{name: job.result() for name, job in program.items()} for program in self._programs]


def obtain_dims(symbols: Sequence[Sym], dims: Sequence[Dim], store: Store, isa: Isa) -> Entry:
    """Return the object that computes a dynamic plan's sizes from its symbols."""
    text = f"({', '.join(s.name for s in symbols)}) -> ({', '.join(map(str, dims))})"

    def compile() -> NewEntry:
        image = codegen.dims_function("dims", symbols, dims, isa)
        return NewEntry(image, {"dims": text}, {"kernelName": "dims"})

    return store.get_or_compile(key_of(isa, dims=text), "Dims", compile)


def _job(request: Request, store: Store, isa: Isa) -> tuple[Key, Callable[[], Entry]]:
    kernel = request.kernel
    text = request.text or print_kernel(kernel, name=False)
    key = kernel_key(kernel, isa, text)

    def compile() -> NewEntry:
        verify_kernel(kernel, "lowering")
        image = codegen.compile_kernel(kernel, isa)
        use = Use(request.operators, request.shapes, request.graph, request.origin, text)
        info, launch = describe(kernel, use, isa, f"{kernel.type}_{key.digest}")
        return NewEntry(image, info, launch)

    return key, lambda: store.get_or_compile(key, kernel.type, compile)


def nearest(entry: Entry, store: Store, type: str) -> Nearest | None:
    """Return the store's entry nearest to this one, and the ingredients in which it differs."""
    return store.nearest(entry.key, type)


MOST_CHARACTERS = 120
"""Limit on a type's name in the store; longer ones are cut, the digest tells them apart."""


def driver_text(plan: Plan, super_kernel: SuperKernel, isa: Isa) -> str:
    """Return the LLVM IR that the object of a driver is compiled from."""
    launches = list(sub_launches(plan, super_kernel))
    return driver_ir(super_kernel, launches, codegen.spin_hint(isa))


def driver_type(super_kernel: SuperKernel) -> str:
    """Return the type of a super kernel in the store."""
    return super_kernel.name[:MOST_CHARACTERS]


def driver_info(plan: Plan, super_kernel: SuperKernel, text: str) -> dict[str, Any]:
    """Return the .info of a driver: its kernels in order, with their parts and waits."""
    launches = sub_launches(plan, super_kernel)
    kernels = {ref.name: ref.title for ref in plan.kernels}
    return {
        "scope": super_kernel.scope,
        "sub_kernels": [
            {"kernel": kernels[launch.kernel], "tasks": launch.tasks, "part": part, "waits": waits}
            for launch, part, waits in zip(
                launches, super_kernel.parts, super_kernel.waits, strict=True
            )
        ],
        "driver": text,
    }


def obtain_drivers(plan: Plan, store: Store, isa: Isa) -> dict[str, bytes]:
    """Return the objects of a plan's drivers by name.

    They are stored as `sk_{scope}_start_{op}_end_{op}_{digest}`.
    """
    found: dict[str, bytes] = {}
    for super_kernel in plan.supers:
        text = driver_text(plan, super_kernel, isa)
        type = driver_type(super_kernel)
        compile = _compiler(plan, super_kernel, text, isa)
        found[super_kernel.name] = store.get_or_compile(
            key_of(isa, driver=text), type, compile
        ).object
    return found


def _compiler(plan: Plan, super_kernel: SuperKernel, text: str, isa: Isa) -> Callable[[], NewEntry]:
    def compile() -> NewEntry:
        info = driver_info(plan, super_kernel, text)
        return NewEntry(codegen.emit(text, isa), info, {"kernelName": super_kernel.name})

    return compile
