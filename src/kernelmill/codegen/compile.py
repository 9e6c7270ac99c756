"""A kernel to an ELF object with one exported function.

LLVM itself: IR text in, an ELF object out.

llvmlite's own wrappers hold one lock around every call, so that only one thread compiles at a time.
LLVM needs no lock as long as each thread has its own context and target machine, so the three long
calls (parse, verify, emit) go to the same shared library (torch_internals/llvm.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Union

import llvmlite
import llvmlite.binding as llvm

from kernelmill.codegen.code import Code, Module, Reg
from kernelmill.codegen.index import Indices
from kernelmill.codegen.memory import Promises, promises
from kernelmill.codegen.statements import INDEX, Body, pointer_names
from kernelmill.codegen.targets import answers
from kernelmill.core.digest import Key
from kernelmill.core.dim import Dim, Sym
from kernelmill.core.dtype import BOOL
from kernelmill.core.elf import undefined_symbols
from kernelmill.core.errors import CodegenError
from kernelmill.core.generator import GENERATOR_VERSION
from kernelmill.core.target.isa import Isa
from kernelmill.core.version import ABI_VERSION
from kernelmill.kernel.ir import TASK, Kernel, VType
from kernelmill.torch_internals.llvm import inside_llvm, unlocked_emit

OPTIMISATION = 2
"""LLVM's level for instruction selection and scheduling."""


class _Threads(threading.local):
    """Each thread's own target machines."""

    def __init__(self) -> None:
        self.machines: dict[Isa, llvm.TargetMachine] = {}


_threads = _Threads()


@cache
def llvm_version() -> str:
    """Return LLVM's and llvmlite's versions: they decide the bytes of every object."""
    major, minor, patch = llvm.llvm_version_info
    return f"{major}.{minor}.{patch} (llvmlite {llvmlite.__version__})"


@cache
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _machine(isa: Isa) -> llvm.TargetMachine:
    machine = _threads.machines.get(isa)
    if machine is None:
        _initialise()
        kind = llvm.Target.from_triple(isa.triple)
        machine = kind.create_target_machine(
            cpu=isa.llvm_cpu,
            features=isa.llvm_features,
            opt=OPTIMISATION,
            reloc="pic",
            codemodel="small",
        )
        _threads.machines[isa] = machine
    return machine


def emit(text: str, isa: Isa, assembly: bool = False) -> bytes:
    """Compile LLVM IR text to an ELF object, or to assembly text for people to read.

    Threads compile at the same time. CodegenError when LLVM refuses the text.
    """
    with inside_llvm():
        machine = _machine(isa)
        unlocked = unlocked_emit.get()
        if unlocked is not None:
            return unlocked(text, machine, assembly)
        return _emitted(text, machine, assembly)


def _emitted(text: str, machine: llvm.TargetMachine, assembly: bool) -> bytes:
    """Emit through llvmlite's wrappers."""
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()
        return machine.emit_assembly(module).encode() if assembly else machine.emit_object(module)
    except RuntimeError as error:
        raise CodegenError(f"LLVM refuses the generated module: {error}") from error


def key_of(isa: Isa, **what: str) -> Key:
    """Return `what` with all other inputs that decide the compiled result."""
    return Key.of(
        {
            **what,
            "isa": str(isa),
            "generator": GENERATOR_VERSION,
            "llvm": llvm_version(),
            "abi": ABI_VERSION,
        }
    )


_SUFFIX = "nontemporal"


def compile_kernel(kernel: Kernel, isa: Isa) -> bytes:
    """Return the ELF object of a kernel. It exports `kernel.name` with the ABI of kernel/ir.py.

    Several threads may compile at the same time. CodegenError when the kernel cannot be generated.
    """
    return emit(llvm_ir(kernel, isa), isa)


def assembly(kernel: Kernel, isa: Isa) -> str:
    """Return the assembly text of a kernel, for people to read."""
    return emit(llvm_ir(kernel, isa), isa, assembly=True).decode()


def external_symbols(source: Union[Kernel, bytes], isa: Isa | None = None) -> tuple[str, ...]:
    """Return the names of library functions that a kernel's object calls, sorted.

    Takes the object, or the kernel and its ISA, which is then compiled first.
    """
    if isinstance(source, Kernel):
        if isa is None:
            raise ValueError("external_symbols of a kernel needs its instruction set")
        source = compile_kernel(source, isa)
    return undefined_symbols(source)


def llvm_ir(kernel: Kernel, isa: Isa) -> str:
    """Return the LLVM IR text of a kernel: the same for the same kernel in every process.

    The exported function only unpacks its arguments for an inner one, whose parameters can have
    attributes.
    """
    module = Module(isa)
    names = pointer_names(kernel)
    told = promises(kernel)
    buffers = [f"ptr{told[name].attributes} {names[name]}" for name in names]
    sizes = [f"i64 %d{i}" for i in range(len(kernel.dims))]
    parameters = [*buffers[:-1], *sizes, "i64 %begin", "i64 %end", buffers[-1]]
    inner = f"{kernel.name}.tasks"
    head = f"define internal void @{inner}({', '.join(parameters)}) #0"
    module.functions[inner] = _tasks(module, kernel, names, told).finish(head)
    told = promises(kernel, aligned=True)
    aligned = [buffer.name for buffer in kernel.buffers if told[buffer.name].aligned]
    if aligned:
        past = f"{inner}.{_SUFFIX}"
        tasks = _tasks(module, kernel, names, told)
        module.functions[past] = tasks.finish(head.replace(f"@{inner}", f"@{past}"))
    module.functions[kernel.name] = _entry(module, kernel, inner, aligned)
    return str(module)


def _tasks(
    module: Module, kernel: Kernel, names: dict[str, str], told: Mapping[str, Promises]
) -> Code:
    """Write the loop over all tasks, under these promises."""
    code = Code(module)
    body = Body(code, kernel, names, told)
    for i, symbol in enumerate(kernel.dims):
        body.indices.bind(symbol, f"%d{i}")
    task = Sym(TASK, 0, kernel.tasks - 1)

    def one_task() -> list[Reg]:
        body.statements(kernel.body)
        return []

    if kernel.tasks == 1:
        body.indices.replace(task, 0)
        _if_any(code, one_task)
    else:
        body.counted(task, (0, kernel.tasks, 1), [], one_task, limits=("%begin", "%end"))
    code.line("ret void")
    return code


def _if_any(code: Code, only_task: Callable[[], list[Reg]]) -> None:
    """Write the only task of a kernel: no loop, but a thread may have no share of it."""
    run, done = code.new_block("run"), code.new_block("done")
    some = code.result("icmp slt i64 %begin, %end", VType(BOOL))
    code.line(f"br {some.typed}, label %{run.label}, label %{done.label}")
    code.place(run)
    only_task()
    code.line(f"br label %{done.label}")
    code.place(done)


def _entry(module: Module, kernel: Kernel, inner: str, aligned: Collection[str]) -> str:
    code = Code(module)
    arguments: list[str] = []
    addresses: list[str] = []
    for i, buffer in enumerate(kernel.buffers):
        place = code.result(f"getelementptr ptr, ptr %buffers, i64 {i}", INDEX)
        arguments.append(f"ptr {code.result(f'load ptr, ptr {place.text}, align 8', INDEX).text}")
        if buffer.name in aligned:
            addresses.append(arguments[-1])
    for i in range(len(kernel.dims)):
        place = code.result(f"getelementptr i64, ptr %dims, i64 {i}", INDEX)
        arguments.append(f"i64 {code.result(f'load i64, ptr {place.text}, align 8', INDEX).text}")
    arguments += ["i64 %begin", "i64 %end", "ptr %scratch"]
    if addresses:
        _call_if_aligned(code, addresses, f"@{inner}.{_SUFFIX}({', '.join(arguments)})")
    code.line(f"tail call void @{inner}({', '.join(arguments)})")
    code.line("ret void")
    head = "ptr %buffers, ptr %dims, i64 %begin, i64 %end, ptr %scratch"
    return code.finish(f"define void @{kernel.name}({head}) #0")


def _call_if_aligned(code: Code, addresses: Sequence[str], call: str) -> None:
    """Call, and return, where all of these addresses are aligned."""
    together = Reg(code, "0", INDEX)
    for address in addresses:
        together = together | code.result(f"ptrtoint {address} to i64", INDEX)
    vector = code.isa.vector_bytes
    aligned = (together & (vector - 1)).compare("eq", 0)
    there, usual = code.new_block("nontemporal"), code.new_block("usual")
    code.line(f"br {aligned.typed}, label %{there.label}, label %{usual.label}")
    code.place(there)
    code.line(f"call void {call}")
    # Such stores are not ordered with those that tell other threads of them.
    answers(code.isa).nontemporal_fence(code)
    code.line("ret void")
    code.place(usual)


def dims_function(name: str, symbols: Sequence[Sym], dims: Sequence[Dim], isa: Isa) -> bytes:
    """Return the ELF object of `void name(const i64* symbols_in, i64* out)`: out[i] is dims[i].

    `symbols_in` has the values of `symbols` in their order.
    """
    module = Module(isa)
    code = Code(module)
    indices = Indices(code)
    for i, symbol in enumerate(symbols):
        place = code.result(f"getelementptr i64, ptr %in, i64 {i}", INDEX)
        value = code.result(f"load i64, ptr {place.text}, align 8", INDEX)
        indices.bind(symbol, value.text)
    for i, dim in enumerate(dims):
        value = indices.value(dim)
        place = code.result(f"getelementptr i64, ptr %out, i64 {i}", INDEX)
        code.line(f"store i64 {value}, ptr {place.text}, align 8")
    code.line("ret void")
    head = f"define void @{name}(ptr noalias readonly %in, ptr noalias %out) #0"
    module.functions[name] = code.finish(head)
    return emit(str(module), isa)
