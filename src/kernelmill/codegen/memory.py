"""Loads, stores, gathers and scatters, plain, strided and masked.

Masks that can be computed while compiling never reach LLVM's masked memory operations.

LLVM 22 has been seen to go wrong there: with AVX2 a constant mask that came from a comparison with
zero loses its canonical form and lanes that are off are loaded; with AVX-512 a truncating store of
one known lane writes the whole element. A known first part of the lanes is faster plain anyway.

Promises to LLVM about a kernel's memory are made only here. An output `over` an input may be the
same memory, so nothing is promised of either but that no one writes through the input's own
address. Every other buffer is memory of its own where anything is written, and what is only read
stays as it is while the kernel runs; of arguments that are one memory, none of which is written,
that is true as well.

Non-temporal stores: to buffers that the kernel marks so. They write past the caches, in place of
fetching each line, changing it and writing it back.

Such a store needs a whole, aligned vector. Where the memory is aligned is only known at the call,
so a kernel with one is generated twice (compile.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kernelmill.codegen.code import Code, Module, Reg, in_memory, llvm_type, vector
from kernelmill.codegen.targets import answers
from kernelmill.codegen.vectors import shuffle, slice_lanes
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import mod
from kernelmill.core.dtype import BOOL, I64, U8, DType
from kernelmill.core.target.isa import Isa
from kernelmill.kernel.ir import SCRATCH, Kernel, Store, VType


@dataclass(frozen=True)
class Promises:
    """Of one buffer.

    alone    what is written here is read and written through this address alone, and what is
             read here is not written through another one
    readonly nothing is written through this address
    aligned  the address is a multiple of a vector register, and stores may go past the caches
    """

    alone: bool
    readonly: bool
    aligned: bool = False

    @property
    def constant(self) -> bool:
        """True if a load gives the same whenever it is done: LLVM may move it past all stores."""
        return self.alone and self.readonly

    @property
    def attributes(self) -> str:
        """Attributes of the parameter that holds the address."""
        return f"{' noalias' if self.alone else ''}{' readonly' if self.readonly else ''}"


def promises(kernel: Kernel, aligned: bool = False) -> Mapping[str, Promises]:
    """Return the promises by the names of buffers, and of scratch. `aligned`: nontemporal buffers
    are aligned."""
    shared = {
        name for buffer in kernel.buffers if buffer.over for name in (buffer.name, *buffer.over)
    }
    found = {
        buffer.name: Promises(
            buffer.name not in shared, buffer.access == "in", aligned and buffer.nontemporal
        )
        for buffer in kernel.buffers
    }
    return {**found, SCRATCH: Promises(alone=True, readonly=False)}


MARK = ", !nontemporal !{i32 1}"


def fills_vectors(statement: Store, lanes: int, bytes: int, isa: Isa) -> bool:
    """Return whether a store writes whole vector registers, aligned if its buffer is."""
    whole = lanes * bytes * 8 % isa.vector_bits == 0
    plain = statement.mask is None and statement.stride == 1
    return whole and plain and mod(statement.index, lanes) == 0


_NAMES = re.compile(r"%[\w.]+")
_COMPUTED = re.compile(
    r"(f?add|f?sub|f?mul|and|or|xor|shl|[al]shr|fneg|icmp|fcmp|select|[sz]ext|trunc|bitcast"
    r"|[su]itofp|fpto[su]i|fp(ext|trunc)|insertelement|extractelement|shufflevector) "
    r"|call .*@llvm\.([su](min|max)|f?abs)\."
)
"""What LLVM folds when all operands are literals."""


def first_lanes(code: Code, count: int, lanes: int) -> Reg:
    """Return the literal mask that has the first `count` lanes on."""
    type = VType(BOOL, lanes)
    if lanes == 1 or count <= 0 or count >= lanes:
        return code.const(type, count > 0)
    bits = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes))
    return Reg(code, f"<{bits}>", type)


def known_first(mask: Reg | None) -> int | None:
    """Return how many first lanes a literal mask has on; None for any other argument."""
    if mask is None or mask.text.startswith("%"):
        return None
    if mask.text.startswith("<"):
        return mask.text.count("true")
    return mask.lanes if "true" in mask.text else 0


def hidden(mask: Reg) -> Reg:
    """Return the mask in a form that LLVM cannot compute even if it is made of literals alone."""
    code, lanes = mask.code, mask.lanes
    if lanes == 1 or not _is_computable(mask):
        return mask
    parts = [_hidden_part(slice_lanes(mask, at, min(64, lanes - at))) for at in range(0, lanes, 64)]
    whole = parts[0]
    for part in parts[1:]:
        whole = shuffle(whole, part, range(whole.lanes + part.lanes))
    return Reg(code, whole.text, mask.type)


def _hidden_part(mask: Reg) -> Reg:
    code, lanes = mask.code, mask.lanes
    number = code.result(f"bitcast {mask.typed} to i{lanes}", VType(I64))
    if lanes < 64:
        number = code.result(f"zext i{lanes} {number.text} to i64", VType(I64))
    number = Reg(code, code.opaque(f"i64 {number.text}"), VType(I64))
    if lanes < 64:
        number = code.result(f"trunc i64 {number.text} to i{lanes}", VType(I64))
    text = f"bitcast i{lanes} {number.text} to {vector('i1', lanes)}"
    return code.result(text, mask.type)


def _is_computable(value: Reg) -> bool:
    """Return True when nothing that the value is computed from is read or passed in."""
    if not value.text.startswith("%"):
        return True
    waiting, seen = [value.text], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        text = value.code.definitions.get(name, "")
        if not _COMPUTED.match(text):
            return False
        waiting.extend(_NAMES.findall(text))
    return True


def widened(value: Reg, lanes: int) -> Reg:
    """Return a mask of the same first lanes, and zeros up to `lanes`."""
    code, type = value.code, VType(value.dtype, lanes)
    zeros = code.const(type, 0)
    if value.lanes == 1:
        return code.result(f"insertelement {zeros.typed}, {value.typed}, i64 0", type)
    order = [min(lane, value.lanes) for lane in range(lanes)]
    return shuffle(value, code.const(value.type, 0), order)


_MANY = 32
"""Lanes from which on a branch for each of them is written once, as a function."""

_INVARIANT = ", !invariant.load !0"


def from_memory(value: Reg, dtype: DType) -> Reg:
    """Convert bytes of a bool buffer to bits; other values are unchanged."""
    return value.compare("ne", 0) if dtype == BOOL else value


def to_memory(value: Reg) -> Reg:
    """Convert bits to the bytes 0 and 1 of a bool buffer; other values are unchanged."""
    return value.code.convert("zext", value, U8) if value.dtype == BOOL else value


def _stored(dtype: DType) -> DType:
    return U8 if dtype == BOOL else dtype


class Access:
    """One place in memory. `constant`: nothing is written there while the kernel runs.

    `aligned`: the address is a multiple of so many bytes, and stores go past the caches.
    """

    def __init__(self, code: Code, address: str, constant: bool, aligned: int = 0) -> None:
        self.code, self.address, self.constant, self.aligned = code, address, constant, aligned
        self.tail = _INVARIANT if constant else ""

    @property
    def _at(self) -> str:
        return f"ptr {self.address}"

    # ---- contiguous -------------------------------------------------------------------------

    def load(self, type: VType, mask: Reg | None) -> Reg:
        """Load consecutive elements; masked-off lanes are 0 and their memory is not touched."""
        live = known_first(mask)
        if live is not None:
            return self._first(type, live, lambda part: self.load(part, None))
        dtype = _stored(type.dtype)
        stored = VType(dtype, type.lanes)
        if mask is None:
            name = vector(in_memory(dtype), type.lanes)
            text = f"load {name}, ptr {self.address}, align {dtype.bytes}{self.tail}"
            return from_memory(self.code.result(text, stored), type.dtype)
        return from_memory(self._masked_load(stored, mask), type.dtype)

    def _masked_load(self, type: VType, mask: Reg) -> Reg:
        code = self.code
        if _by_branches(code, type):
            name = _loading(code.module, type)
            return code.result(f"call {llvm_type(type)} @{name}({self._at}, {mask.typed})", type)
        # LLVM has masked memory operations on vectors alone, so a scalar is a vector of one.
        call = _load_masked(code.module, type, self._at, _vector_of(hidden(mask)))
        return _unwrap(code, f"{call}{self.tail}", _vector_names(type)[0], type)

    def store(self, value: Reg, mask: Reg | None) -> None:
        """Store consecutive elements; masked-off lanes stay as they are."""
        live = known_first(mask)
        if live is not None:
            if live:
                self.store(slice_lanes(value, 0, live), None)
            return
        stored = to_memory(value)
        size = stored.dtype.bytes
        if mask is None:
            align = self.aligned or size
            mark = MARK if self.aligned else ""
            self.code.line(f"store {stored.typed}, ptr {self.address}, align {align}{mark}")
            return
        if _by_branches(self.code, stored.type):
            name = _storing(self.code.module, stored.type)
            self.code.line(f"call void @{name}({stored.typed}, {self._at}, {mask.typed})")
            return
        mask = hidden(mask)
        parts = _vector_of(stored), self._at, _vector_of(mask)
        self.code.line(_store_masked(self.code.module, stored.type, *parts))

    # ---- strided ----------------------------------------------------------------------------

    def load_strided(self, type: VType, stride: Reg | int, mask: Reg | None) -> Reg:
        """Load elements `stride` apart."""
        live = known_first(mask)
        if live is not None:
            return self._first(type, live, lambda part: self.load_strided(part, stride, None))
        if type.lanes == 1:
            return self.load(type, mask)
        if stride == -1:
            start = self._moved(type.dtype, 1 - type.lanes)
            turned = None if mask is None else reverse(mask)
            return reverse(start.load(type, turned))
        if mask is not None:
            return self.gather(type, self._steps(type.lanes, stride), mask)
        if isinstance(stride, int) and stride in (2, 3):
            # All that lies between, and not one element more, is read at once.
            span = self.load(VType(type.dtype, (type.lanes - 1) * stride + 1), None)
            return shuffle(span, span, range(0, span.lanes, stride))
        return self._load_each(type, stride)

    def store_strided(self, value: Reg, stride: Reg | int, mask: Reg | None) -> None:
        """Store elements `stride` apart."""
        live = known_first(mask)
        if live is not None:
            if live:
                self.store_strided(slice_lanes(value, 0, live), stride, None)
            return
        if value.lanes == 1:
            self.store(value, mask)
            return
        if stride == -1:
            start = self._moved(value.dtype, 1 - value.lanes)
            start.store(reverse(value), None if mask is None else reverse(mask))
            return
        self.scatter(value, self._steps(value.lanes, stride), mask)

    def _moved(self, dtype: DType, elements: int) -> Access:
        text = f"getelementptr {in_memory(dtype)}, ptr {self.address}, i64 {elements}"
        return Access(self.code, self.code.result(text, VType(I64)).text, self.constant)

    def _load_each(self, type: VType, stride: Reg | int) -> Reg:
        code, dtype = self.code, _stored(type.dtype)
        stored = VType(dtype, type.lanes)
        name = vector(in_memory(dtype), type.lanes)
        whole = Reg(code, "poison", stored)
        element = in_memory(dtype)
        address = self.address
        for lane in range(type.lanes):
            if lane:
                origin = self.address if isinstance(stride, int) else address
                step = lane * stride if isinstance(stride, int) else stride.text
                text = f"getelementptr {element}, ptr {origin}, i64 {step}"
                address = code.result(text, VType(I64)).text
            text = f"load {element}, ptr {address}, align {dtype.bytes}{self.tail}"
            one = code.result(text, VType(dtype))
            text = f"insertelement {name} {whole.text}, {one.typed}, i64 {lane}"
            whole = code.result(text, stored)
        return from_memory(whole, type.dtype)

    def _steps(self, lanes: int, stride: Reg | int) -> Reg:
        if isinstance(stride, int):
            numbers = ", ".join(f"i64 {lane * stride}" for lane in range(lanes))
            return Reg(self.code, f"<{numbers}>", VType(I64, lanes))
        numbers = ", ".join(f"i64 {lane}" for lane in range(lanes))
        return Reg(self.code, f"<{numbers}>", VType(I64, lanes)) * self.code.splat(stride, lanes)

    # ---- scattered --------------------------------------------------------------------------

    def gather(self, type: VType, offsets: Reg, mask: Reg | None) -> Reg:
        """Load the elements at `offsets` (in elements) from the address."""
        live = known_first(mask)
        if live is not None:
            return self._first(
                type, live, lambda part: self.gather(part, slice_lanes(offsets, 0, live), None)
            )
        dtype, lanes = _stored(type.dtype), type.lanes
        stored = VType(dtype, lanes)
        if lanes == 1:
            return self._one(type.dtype, offsets).load(type, mask)
        name, bits = _vector_names(stored)
        pointers = self._pointers(dtype, offsets)
        function = f"llvm.masked.gather.{_vector_suffix(stored)}.v{lanes}p0"
        self.code.module.declare(function, name, [f"<{lanes} x ptr>", "i32", bits, name])
        lanes_on = f"{bits} splat (i1 true)" if mask is None else hidden(mask).typed
        inside = f"{pointers}, i32 {dtype.bytes}, {lanes_on}, {name} zeroinitializer"
        text = f"call {name} @{function}({inside}){self.tail}"
        return from_memory(self.code.result(text, stored), type.dtype)

    def scatter(self, value: Reg, offsets: Reg, mask: Reg | None) -> None:
        """Write the lanes, in order, to `offsets` (in elements) from the address."""
        live = known_first(mask)
        if live is not None:
            if live:
                self.scatter(slice_lanes(value, 0, live), slice_lanes(offsets, 0, live), None)
            return
        if value.lanes == 1:
            self._one(value.dtype, offsets).store(value, mask)
            return
        stored = to_memory(value)
        lanes = stored.lanes
        name, bits = _vector_names(stored.type)
        pointers = self._pointers(stored.dtype, offsets)
        function = f"llvm.masked.scatter.{_vector_suffix(stored.type)}.v{lanes}p0"
        self.code.module.declare(function, "void", [name, f"<{lanes} x ptr>", "i32", bits])
        lanes_on = f"{bits} splat (i1 true)" if mask is None else hidden(mask).typed
        inside = f"{stored.typed}, {pointers}, i32 {stored.dtype.bytes}, {lanes_on}"
        self.code.line(f"call void @{function}({inside})")

    def _first(self, type: VType, live: int, load: Callable[[VType], Reg]) -> Reg:
        """Load the first `live` lanes, with zeros in the others."""
        if live == 0:
            return self.code.const(type, 0)
        part = load(VType(type.dtype, live))
        return part if live == type.lanes else widened(part, type.lanes)

    def _one(self, dtype: DType, offset: Reg) -> Access:
        text = f"getelementptr {in_memory(dtype)}, ptr {self.address}, {offset.typed}"
        return Access(self.code, self.code.result(text, VType(I64)).text, self.constant)

    def _pointers(self, dtype: DType, offsets: Reg) -> str:
        text = f"getelementptr {in_memory(dtype)}, ptr {self.address}, {offsets.typed}"
        name = self.code.result(text, VType(I64, offsets.lanes)).text
        return f"<{offsets.lanes} x ptr> {name}"


def _by_branches(code: Code, type: VType) -> bool:
    return type.lanes >= _MANY and not answers(code.isa).masks_memory(type.dtype.bytes)


def _load_masked(module: Module, type: VType, address: str, mask: str) -> str:
    name, bits = _vector_names(type)
    function = f"llvm.masked.load.{_vector_suffix(type)}.p0"
    module.declare(function, name, ["ptr", "i32", bits, name])
    place = f"{address}, i32 {type.dtype.bytes}"
    return f"call {name} @{function}({place}, {mask}, {name} zeroinitializer)"


def _store_masked(module: Module, type: VType, value: str, address: str, mask: str) -> str:
    name, bits = _vector_names(type)
    function = f"llvm.masked.store.{_vector_suffix(type)}.p0"
    module.declare(function, "void", [name, "ptr", "i32", bits])
    return f"call void @{function}({value}, {address}, i32 {type.dtype.bytes}, {mask})"


def _loading(module: Module, type: VType) -> str:
    name = f"masked_load.{_vector_suffix(type)}"
    if name not in module.functions:
        kind, bits = _vector_names(type)
        code = Code(module)
        call = _load_masked(module, type, "ptr %address", f"{bits} %mask")
        code.line(f"ret {code.result(call, type).typed}")
        head = f"define internal {kind} @{name}(ptr %address, {bits} %mask) #0"
        module.functions[name] = code.finish(head)
    return name


def _storing(module: Module, type: VType) -> str:
    name = f"masked_store.{_vector_suffix(type)}"
    if name not in module.functions:
        kind, bits = _vector_names(type)
        code, value = Code(module), f"{kind} %value"
        code.line(_store_masked(module, type, value, "ptr %address", f"{bits} %mask"))
        code.line("ret void")
        head = f"define internal void @{name}({value}, ptr %address, {bits} %mask) #0"
        module.functions[name] = code.finish(head)
    return name


def reverse(value: Reg) -> Reg:
    """Return the lanes in reverse order."""
    lanes = value.lanes
    order = ", ".join(f"i32 {lane}" for lane in reversed(range(lanes)))
    text = f"shufflevector {value.typed}, {value.typed}, <{lanes} x i32> <{order}>"
    return value.code.result(text, value.type)


def _vector_names(type: VType) -> tuple[str, str]:
    return f"<{type.lanes} x {in_memory(type.dtype)}>", f"<{type.lanes} x i1>"


def _vector_suffix(type: VType) -> str:
    element = {"float": "f32", "double": "f64"}.get(in_memory(type.dtype), in_memory(type.dtype))
    return f"v{type.lanes}{element}"


def _vector_of(value: Reg) -> str:
    if value.lanes > 1:
        return value.typed
    element = "i1" if value.dtype == BOOL else in_memory(value.dtype)
    text = f"bitcast {value.typed} to <1 x {element}>"
    return f"<1 x {element}> {value.code.result(text, value.type).text}"


def _unwrap(code: Code, call: str, name: str, type: VType) -> Reg:
    result = code.result(call, type)
    if type.lanes > 1:
        return result
    return code.result(f"extractelement {name} {result.text}, i64 0", type)
