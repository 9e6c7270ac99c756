"""The tables that the native entry (native/executor.c) walks, as ctypes.

They are defined here alone: tools/native_entry.py makes the C header from these classes, with each
offset asserted.

A word is 64 bits. Sizes, offsets and counts never stand in the tables themselves: a table holds the
number of a dim, and the frame of the call points to the dims' values, so that one set of tables
serves every size of a dynamic program.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from kernelmill.plan.ir import MOST_TOGETHER

word = ctypes.c_int64
pointer = ctypes.c_void_p


class InputRecord(ctypes.Structure):
    """A tensor argument: where its address goes, and what is checked of it.

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

    _fields_ = (("buffer", word), ("offset", word))


class LaunchOrder(IntEnum):
    """When the tasks of a launch may run (`Order` of plan/ir.py): after those of the launch before
    it, beside them, each behind the one of its number."""

    AFTER = 0
    BESIDE = 1
    BEHIND = 2


class Limits(IntEnum):
    """How many launches are beside each other at most."""

    TOGETHER = MOST_TOGETHER


class LaunchRecord(ctypes.Structure):
    """A launch. `buffers` are buffer numbers, `dims` the numbers of the kernel's dims.

    `span` is how many launches it stands for: 1, or with `super` those of a super kernel, whose
    driver is `kernel` and whose first buffer is the frame's `lines`. `order` is a LaunchOrder.
    """

    _fields_ = (
        ("kernel", pointer),
        ("buffer_count", word),
        ("buffers", pointer),
        ("dim_count", word),
        ("dims", pointer),
        ("tasks", word),
        ("work", word),
        ("span", word),
        ("super", word),
        ("order", word),
    )


class Table(ctypes.Structure):
    """A program: what never changes from call to call.

    `outputs` are numbers of the buffers whose tensors follow the inputs in the arguments.
    `threshold` is the least work in nanoseconds that is worth a parallel region.
    """

    _fields_ = (
        ("input_count", word),
        ("inputs", pointer),
        ("output_count", word),
        ("outputs", pointer),
        ("arena_count", word),
        ("arena", pointer),
        ("launch_count", word),
        ("launches", pointer),
        ("widest_launch", word),
        ("most_dims", word),
        ("threshold", word),
    )


class ParameterRecord(ctypes.Structure):
    """A long-lived tensor argument (a parameter), as it was when it was bound.

    `object` is its Python object, of the class `type`; `impl` is the address of its TensorImpl.
    `address` is what kernels get: `data`, or where a copy with fitting strides is. `versioned` and
    `inference` say that it has a version counter which counts, and that it cannot have one;
    `negated` that it is what lies there, lazily negated.

    Of its contents is compared: `pieces`, whose `contents` stand one behind the other; EdgeRecords;
    the word at `written_at`, if any, which is `written` unless somebody wrote; the `digest` of so
    many bytes.
    """

    _fields_ = (
        ("object", pointer),
        ("type", pointer),
        ("argument", word),
        ("impl", pointer),
        ("data", pointer),
        ("version", word),
        ("versioned", word),
        ("inference", word),
        ("negated", word),
        ("rank", word),
        ("dtype", word),
        ("layout", pointer),
        ("buffer", word),
        ("address", pointer),
        ("pieces", word),
        ("piece_bytes", word),
        ("pitch", word),
        ("contents", pointer),
        ("edge_count", word),
        ("edges", pointer),
        ("written_at", pointer),
        ("written", word),
        ("digest_bytes", word),
        ("digest", word),
    )


class PackedRecord(ctypes.Structure):
    """A packed buffer: its number and its memory."""

    _fields_ = (("buffer", word), ("address", pointer))


class PagesRecord(ctypes.Structure):
    """Pages that are not to be written: the addresses at which they begin and end."""

    _fields_ = (("first", word), ("last", word))


class EdgeRecord(ctypes.Structure):
    """Memory that is compared with these `contents`."""

    _fields_ = (("address", pointer), ("bytes", word), ("contents", pointer))


class WatchState(ctypes.Structure):
    """What scans for written pages need: the descriptor of /proc/self/pagemap, and how often
    somebody began or ended to take what was found (weights/write_watch.py). `epoch` is another
    number in each process that was forked, from 1 on; 0 where a process is not told how many page
    faults it had."""

    _fields_ = (("pagemap", word), ("takes", word), ("epoch", word))


class BindingTable(ctypes.Structure):
    """The bound parameters and packed buffers of one set of parameters.

    `impl_offset` is where a tensor's object has the address of its TensorImpl; 0 where that is not
    known, and bound parameters tell. `watch` is the address of a WatchState, for scans of `pages`.
    `unwritten_at` is all that changes: the page faults of this process when the last scan began
    that found nothing, below the epoch; 0 for none.
    """

    _fields_ = (
        ("parameter_count", word),
        ("parameters", pointer),
        ("packed_count", word),
        ("packed", pointer),
        ("impl_offset", word),
        ("watch", pointer),
        ("pages_count", word),
        ("pages", pointer),
        ("unwritten_at", word),
    )


class WatchKind(IntEnum):
    """Kinds of WatchRecord: a dict's version, another word, what a dict or list has."""

    VERSION = 0
    WORD = 1
    DICT_ITEM = 2
    LIST_ITEM = 3


class WatchRecord(ctypes.Structure):
    """Something of a dict or list that has to be as `expected`.

    VERSION and WORD: the word `number` bytes into it, DICT_ITEM: what a dict has under `key`, whose
    hash is `number`, LIST_ITEM: the element `number` of a list. For objects, `expected` is the id;
    0 for none.
    """

    _fields_ = (
        ("kind", word),
        ("owner", pointer),
        ("key", pointer),
        ("number", word),
        ("expected", word),
    )


class StepKind(IntEnum):
    """Operations of StepRecord."""

    TYPE = 0
    IDENTITY = 1
    TUPLE = 2
    LIST = 3
    DICT = 4
    INTEGER = 5
    WATCHED = 6
    FIELD = 7
    ATTRIBUTE = 8
    ABSENT = 9
    EQUAL = 10
    SIZE = 11
    STRIDE = 12
    OFFSET = 13


class StepRecord(ctypes.Structure):
    """A look at the object in register `source`.

    TYPE: its type is `operand`, IDENTITY: it is `operand`, TUPLE, LIST, DICT: it is one of `count`
    elements, which go to the registers from `target` on; a dict has the keys whose addresses stand
    at `operand`, in this order. INTEGER: it is the integer that dim `count` is. WATCHED: the
    `count` watch records at `operand` hold. FIELD: its first field, masked by `operand`, is
    `target`. ATTRIBUTE: its __dict__ has something under the name `operand`, whose hash is `count`,
    which goes to register `target`; ABSENT: it has nothing there. EQUAL: it is the integer
    `target`. SIZE, STRIDE, OFFSET: this of the tensor that
    it is, along axis `target`, is what dim `count` is.
    """

    _fields_ = (
        ("operation", word),
        ("source", word),
        ("operand", pointer),
        ("count", word),
        ("target", word),
    )


class SymbolRecord(ctypes.Structure):
    """Where a symbol's value is found: by the step `part`, INTEGER in register `source`, or what is
    `times` * value + `plus` of the tensor there, along an `axis`."""

    _fields_ = (("source", word), ("part", word), ("axis", word), ("times", word), ("plus", word))


class SettingBits(IntEnum):
    """Bits of the word of settings: of torch, of this thread, and how the processor computes."""

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
    """What was otherwise than a QuickTable says: settings or binding, the watch, how values are
    built; a tensor, a size, a long-lived argument, shared memory or an object in two places."""

    SETTINGS = -1
    WATCH = -2
    STRUCTURE = -3
    TENSOR = -4


class ArgumentBits(IntEnum):
    """Of a tensor argument: it is the call's own, it is written to."""

    OWN = 1 << 0
    WRITTEN = 1 << 1


class PlaceRecord(ctypes.Structure):
    """Where a tensor argument lies: its storage, and the addresses at which its elements begin and
    end. All 0 for one that is not looked at."""

    _fields_ = (("storage", word), ("first", word), ("end", word))


class QuickTable(ctypes.Structure):
    """What `km_quick` checks of a call: see runtime/quick.py.

    `settings` are those without GRADIENTS. `sources` has the register of each tensor argument,
    `scalars` its dtype as torch numbers them; `arguments` is the tuple that parameters are compared
    with; `impl_offset` is where an object of `tensor_type` or `parameter_type` has the address of
    its TensorImpl, `tuple_items` where a tuple has its items; `binding` is the address of the
    binding that goes with all this, which the caller passes and keeps alive.

    `own` are the ArgumentBits of each tensor argument: none that is OWN may require a gradient
    while gradients are on, and where the program `writes` to arguments, none may share a storage
    with another one that has any of them, nor memory if one of the two is WRITTEN. `places` are
    those of the last call, and `storage_offset` is where a TensorImpl has its storage.

    `symbols` are SymbolRecords, for `km_symbols`; there are none where sizes cannot be read so.
    `inner` are registers: of the objects that the call will change, `changed_count` of them, then
    of the others that are looked into. None of the first may be another of all.
    """

    _fields_ = (
        ("settings", word),
        ("watch_count", word),
        ("watch", pointer),
        ("step_count", word),
        ("steps", pointer),
        ("register_count", word),
        ("tensor_count", word),
        ("sources", pointer),
        ("scalars", pointer),
        ("arguments", pointer),
        ("tensor_type", pointer),
        ("parameter_type", pointer),
        ("impl_offset", word),
        ("tuple_items", word),
        ("binding", word),
        ("writes", word),
        ("own", pointer),
        ("places", pointer),
        ("storage_offset", word),
        ("symbol_count", word),
        ("symbols", pointer),
        ("changed_count", word),
        ("inner_count", word),
        ("inner", pointer),
    )


class Flags(ctypes.Structure):
    """Functions of torch that give a bool of its global context: the `count` of them whose
    addresses begin at `functions` are the bits FLAGS of the word of settings, lowest first."""

    _fields_ = (("count", word), ("functions", pointer))


class Changes(ctypes.Structure):
    """The changes so far of watched dicts and classes: `count` of them, and in the `last_count`
    words at `last` the objects of the last ones, that of change n at n modulo their number. The
    watchers are the numbers that CPython has given ours."""

    _fields_ = (
        ("count", word),
        ("dict_watcher", word),
        ("type_watcher", word),
        ("last_count", word),
        ("last", pointer),
    )


class FrameHeader(ctypes.Structure):
    """The memory of one call at a time; the addresses of all buffers come directly behind it.

    The last field is the address of `status`, so that it is buffer number -1; before it, as number
    -2, that of one cache line for each thread, in which the threads of a super kernel meet.

    Where threads are held up (native/contention.c), calls have no more than `limit` (0: no limit)
    until `limited_until`, and a trial of more lasts as long again; `pause` is how long that was to
    be, and at `try_at` there is a trial in any case: nanoseconds of CLOCK_MONOTONIC. `free_ticks`
    the processors had been free at `asked_at`, and `ran` nanoseconds the process' threads had run.
    `lost` is how many more nanoseconds threads have
    lost, as they did not run or waited for one, than regions took, and `held_up` how often it came
    to a limit. `callers` is the address of a word that counts calls under way in the process.
    """

    _fields_ = (
        ("table", pointer),
        ("values", pointer),
        ("arena", pointer),
        ("scratch", pointer),
        ("scratch_bytes", word),
        ("threads", word),
        ("calls", word),
        ("status", word),
        ("limit", word),
        ("limited_until", word),
        ("try_at", word),
        ("pause", word),
        ("asked_at", word),
        ("free_ticks", word),
        ("ran", word),
        ("lost", word),
        ("held_up", word),
        ("callers", pointer),
        ("lines", pointer),
        ("status_address", pointer),
    )


def words(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """An array of words."""
    return (word * len(numbers))(*numbers)


def records(kind: type[ctypes.Structure], rows: Sequence[ctypes.Structure]) -> ctypes.Array[Any]:
    """An array of structures."""
    return (kind * len(rows))(*rows)
