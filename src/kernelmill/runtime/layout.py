"""Tables that the native entry (native/executor.c) walks, as ctypes structures.

This is their only definition: tools/native_entry.py makes the C header from these classes, and
asserts each offset.

A word is 64 bits. Tables have no sizes, offsets and counts, but numbers of dims; the frame of the
call points to the dims' values. So one set of tables serves all sizes of a dynamic program.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from kernelmill.plan.ir import MOST_TOGETHER

word = ctypes.c_int64
pointer = ctypes.c_void_p


def fields(names: str) -> list[tuple[str, type[ctypes.c_int64 | ctypes.c_void_p]]]:
    """Return the fields of a structure by their names: words, or with a "*" behind, pointers."""
    return [(name.rstrip("*"), pointer if name[-1] == "*" else word) for name in names.split()]


class InputRecord(ctypes.Structure):
    """A tensor argument: the buffer that gets its address, and the properties to check.

    `dims` are the numbers of the dims of its shape, then of its strides. `dtype` is a DLDataType.
    `misaligned` masks the bits that are zero in an aligned address.
    """

    _fields_ = (
        ("buffer", word),
        ("rank", word),
        ("dtype", ctypes.c_int32),
        ("misaligned", ctypes.c_int32),
        ("dims", pointer),
    )


class ArenaRecord(ctypes.Structure):
    """A buffer in the arena: its number, and the number of the dim that is its byte offset."""

    _fields_ = fields("buffer offset")


class LaunchOrder(IntEnum):
    """Order of a launch's tasks (`Order` of plan/ir.py): after the tasks of the launch before,
    beside these, or each after the task of its own number."""

    AFTER = 0
    BESIDE = 1
    BEHIND = 2


class Limits(IntEnum):
    """Limits that the C code shares: the most launches that run at the same time."""

    TOGETHER = MOST_TOGETHER


class LaunchRecord(ctypes.Structure):
    """A launch. `buffers` are buffer numbers, `dims` the numbers of the kernel's dims.

    `span` is how many launches it stands for: 1, or with `super` those of a super kernel, whose
    driver is `kernel` and whose first buffer is the frame's `lines`. `order` is a LaunchOrder.
    """

    _fields_ = fields("kernel* buffer_count buffers* dim_count dims* tasks work span super order")


class Table(ctypes.Structure):
    """The constants of a program: all that is equal in every call.

    `outputs` are numbers of the buffers whose tensors follow the inputs in the arguments.
    `threshold` is the least work in nanoseconds that is worth a parallel region.
    """

    _fields_ = fields(
        "input_count inputs* output_count outputs* arena_count arena* launch_count launches* "
        "widest_launch most_dims threshold"
    )


class ParameterRecord(ctypes.Structure):
    """A long-lived tensor argument (a parameter), as recorded at binding.

    `object` is its Python object, of class `type`; `impl` is the address of its TensorImpl.
    `address` is passed to kernels: `data`, or the address of a copy with fitting strides.
    `versioned`: it has a version counter that counts; `inference`: it cannot have one; `negated`:
    it is the lazily negated contents of its memory. Of its contents these are compared: `pieces`,
    whose `contents` are stored in a row; EdgeRecords; the word at `written_at`, if any, which is
    `written` unless somebody wrote; the `digest` of `digest_bytes` bytes.
    """

    _fields_ = fields(
        "object* type* argument impl* data* version versioned inference negated rank dtype "
        "layout* buffer address* pieces piece_bytes pitch contents* edge_count edges* written_at* "
        "written digest_bytes digest"
    )


class PackedRecord(ctypes.Structure):
    """A packed buffer: its number and its memory."""

    _fields_ = fields("buffer address*")


class PagesRecord(ctypes.Structure):
    """Pages that must not be written, from address `first` up to `last`."""

    _fields_ = fields("first last")


class EdgeRecord(ctypes.Structure):
    """Memory that must equal these `contents`."""

    _fields_ = fields("address* bytes contents*")


class WatchState(ctypes.Structure):
    """State of scans for written pages: the descriptor of /proc/self/pagemap; `takes`, which counts
    beginnings and ends of looks, and so is odd during one (weights/write_watch.py). `epoch` differs
    in each forked process, from 1 on; 0 where a process cannot read its number of page faults."""

    _fields_ = fields("pagemap takes epoch")


class BindingTable(ctypes.Structure):
    """The bound parameters and packed buffers of one set of parameters.

    `impl_offset` is the offset of the TensorImpl's address in a tensor object; 0 where that is not
    known, and bound parameters tell. `watch` is the address of a WatchState, for scans of `pages`.
    `unwritten_at` alone changes: the page faults of this process when the last scan that found
    nothing began, below the epoch; 0 for none.
    """

    _fields_ = fields(
        "parameter_count parameters* packed_count packed* impl_offset watch* pages_count pages* "
        "unwritten_at"
    )


class WatchKind(IntEnum):
    """Kinds of WatchRecord: a dict's version, another word, an item of a dict or a list."""

    VERSION = 0
    WORD = 1
    DICT_ITEM = 2
    LIST_ITEM = 3


class WatchRecord(ctypes.Structure):
    """A word or an item of `owner` that must be `expected`.

    VERSION and WORD: the word `number` bytes into it; DICT_ITEM: the value under `key`, whose hash
    is `number`; LIST_ITEM: element `number` of a list. For objects, `expected` is the id; 0 for
    none.
    """

    _fields_ = fields("kind owner* key* number expected")


class StepKind(IntEnum):
    """Operations of StepRecord."""

    TYPE = 0
    IDENTITY = 1
    TUPLE = 2
    LIST = 3
    DICT = 4
    INTEGER = 5
    SAME = 6
    FIELD = 7
    ATTRIBUTE = 8
    ABSENT = 9
    EQUAL = 10
    SIZE = 11
    STRIDE = 12
    OFFSET = 13


class StepRecord(ctypes.Structure):
    """A check of the object in register `source`.

    TYPE: its type is `operand`, IDENTITY: it is `operand`, TUPLE, LIST, DICT: it is one of `count`
    elements, which go to the registers from `target` on; a dict has the keys whose addresses stand
    at `operand`, in this order. INTEGER: it is the integer that dim `count` is. SAME: it is the
    object in register `target`, or with a `count` of 0 it is not. FIELD: its first field, masked by
    `operand`, is `target`. ATTRIBUTE: its __dict__ has something under the name `operand`, whose
    hash is `count`, which goes to register `target`; ABSENT: it has nothing there. EQUAL: it is the
    integer `target`. SIZE, STRIDE, OFFSET: this of the tensor that it is, along axis `target`, is
    what dim `count` is.
    """

    _fields_ = fields("operation source operand* count target")


class SymbolRecord(ctypes.Structure):
    """Source of a symbol's value: INTEGER in register `source`, or, by the step `part`, the size,
    stride or offset of the tensor there along `axis`, which is `times` * value + `plus`."""

    _fields_ = fields("source part axis times plus")


class SettingBits(IntEnum):
    """Bits of the word of settings: torch's, the thread's, the processor's floating-point mode."""

    AUTOCAST = 1 << 0
    DETERMINISM = 1 << 1
    GRADIENTS = 1 << 2
    FUNCTION_MODES = 1 << 3
    DISPATCH_MODES = 1 << 4
    DEFAULT_DTYPE = 0xFF << 8
    AUTOCAST_DTYPE = 0xFF << 16
    PRECISION = 0xFF << 24
    FLOAT_MODE = 0xFFFF << 32
    FLAGS = 0x7FFF << 48


class Refusal(IntEnum):
    """Reasons of a refusal by a QuickTable: settings or binding, the watch, the structure of
    values; a tensor, a size, a long-lived argument, shared memory or an object in two places."""

    SETTINGS = -1
    WATCH = -2
    STRUCTURE = -3
    TENSOR = -4


class ArgumentBits(IntEnum):
    """Bits of a tensor argument: owned by the call, written to."""

    OWN = 1 << 0
    WRITTEN = 1 << 1


class PlaceRecord(ctypes.Structure):
    """Memory of a tensor argument: its storage, and the address range of its elements. All 0 for
    one that is not checked."""

    _fields_ = fields("storage first end")


class QuickTable(ctypes.Structure):
    """Checks of a call by `km_quick`: see runtime/quick.py.

    `settings` are those without GRADIENTS. `sources` has the register of each tensor argument,
    `scalars` its dtype as torch numbers them; `arguments` is the tuple that parameters are compared
    with; `impl_offset` is the offset of the TensorImpl's address in objects of `tensor_type` and
    `parameter_type`, `tuple_items` that of the items in a tuple; `binding` is the address of the
    binding for all this, which the caller passes and keeps alive.

    `own` are the ArgumentBits of each tensor argument: none that is OWN may require a gradient
    while gradients are on, and where the program `writes` to arguments, none may share a storage
    with another one that has any of them, nor memory if one of the two is WRITTEN. `places` are
    those of the last call, and `storage_offset` is the offset of the storage in a TensorImpl.

    `symbols` are SymbolRecords, for `km_symbols`; there are none where sizes cannot be read so.
    `inner` are registers: of the objects that the call will change, `changed_count` of them, then
    of the others that are looked into. None of the first may be another of all.
    """

    _fields_ = fields(
        "settings watch_count watch* step_count steps* register_count tensor_count sources* "
        "scalars* arguments* tensor_type* parameter_type* impl_offset tuple_items binding writes "
        "own* places* storage_offset symbol_count symbols* changed_count inner_count inner*"
    )


class Flags(ctypes.Structure):
    """Functions of torch that return a bool of its global context: the `count` functions in the
    array at `functions` are the bits FLAGS of the word of settings, lowest first."""

    _fields_ = fields("count functions*")


class Changes(ctypes.Structure):
    """Changes of watched dicts and classes so far: `count` of them; change n is of the object in
    word n modulo `last_count` of the array at `last`. The watchers are the numbers that CPython has
    assigned."""

    _fields_ = fields("count dict_watcher type_watcher last_count last*")


class FrameHeader(ctypes.Structure):
    """The memory of one call at a time, directly followed by the addresses of all buffers.

    The last field is the address of `status`, so that it is buffer number -1; before it, as number
    -2, that of one cache line for each thread, in which the threads of a super kernel meet.

    Where threads are held up (native/contention.c), calls use at most `limit` threads (0: no limit)
    until `limited_until`, and a trial of more lasts as long again; `pause` is the planned length of
    that, and at `try_at` a trial is due in any case: nanoseconds of CLOCK_MONOTONIC. `free_ticks`
    is the idle time of the processors at `asked_at`, and `ran` the nanoseconds the process' threads
    had run. `lost` is the nanoseconds that threads have lost, not running or waiting, beyond the
    duration of regions, and `held_up` the number of times a limit was set. `callers` is the address
    of a word that counts calls in progress in the process.
    """

    _fields_ = fields(
        "table* values* arena* scratch* scratch_bytes threads calls status limit limited_until "
        "try_at pause asked_at free_ticks ran lost held_up callers* lines* status_address*"
    )


def words(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """Return an array of words."""
    return (word * len(numbers))(*numbers)


def records(kind: type[ctypes.Structure], rows: Sequence[ctypes.Structure]) -> ctypes.Array[Any]:
    """Return an array of structures."""
    return (kind * len(rows))(*rows)
