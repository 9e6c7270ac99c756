"""Probes: code put before kernels for a while, which reports each of their calls.

A probe is a function with a kernel's arguments that records the call and makes it. Inserting probes
changes the addresses in a program's records (layout.py), and removing them restores these. The
driver of a super kernel is linked again with probes in place of sub-kernels.

Two kinds exist: `RECORD` appends a `CallRecord` to a log (recorder.py), `PROFILE` opens a range of
torch's profiler.

Calls do not check for a profiler. When one starts, probes are inserted before the
kernels of all programs, and when it stops they are removed. torch_internals/profiler.py detects
both; with a torch that does not report them kernels have no ranges.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache

from kernelmill.core.after_fork import RenewedLock
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import CodegenError
from kernelmill.core.log import get_logger
from kernelmill.plan.ir import Launch, sub_launches
from kernelmill.runtime.calls.engine import Engine
from kernelmill.runtime.layout import fields
from kernelmill.runtime.linking import linker
from kernelmill.torch_internals.libraries import address_of
from kernelmill.torch_internals.profiler import listen

_SLOTS = 128
"""Probes of one piece of machine code."""


class Kind(Enum):
    """Kinds of probes, each with the functions of torch and the C library that it calls."""

    RECORD = ("clock_gettime", "pthread_self")
    PROFILE = ("aoti_record_function_start", "aoti_record_function_end")


def available(kind: Kind) -> bool:
    """Return whether this torch and this C library have the functions that such probes call."""
    return all(address_of(name) for name in kind.value)


class Slot(ctypes.Structure):
    """Data of a probe: the kernel that it calls, its log or name, and a number for the log."""

    _fields_ = fields("kernel* log* number")


class CallRecord(ctypes.Structure):
    """A record of a kernel's call: the number in the slot, the address of its buffers' addresses,
    its tasks from `first` up to `last`, CLOCK_MONOTONIC before and after in nanoseconds, and
    pthread_self of the thread."""

    _fields_ = fields("number buffers first last begin end thread")


class LogHeader(ctypes.Structure):
    """A log of calls: the number of calls made, the capacity, and the address of the records."""

    _fields_ = fields("count capacity records*")


@dataclass(frozen=True)
class CallSite:
    """A place that calls a kernel: a launch of the plan by its number in the native table (those of
    `plan.prepare` come last), which is that `step` of the plan, or -1 minus its number in
    `plan.prepare`. Inside of a super kernel several launches of one kernel are one site; both are
    then those of the super kernel's first."""

    launch: int
    step: int
    kernel: str
    inside: bool = False


class Probes:
    """Probes for all launches of one engine. `tell` maps each site to its slot's `log` and
    `number`; the memory they point to has to live as long as the probes."""

    def __init__(
        self, engine: Engine, kind: Kind, tell: Mapping[CallSite, tuple[int, int]]
    ) -> None:
        self._records = engine.tables.launch_records
        self._kernels = [record.kernel for record in self._records]
        sites = [site for site in tell if not site.inside]
        inside = [site for site in tell if site.inside]
        self._keep: list[object] = []
        addresses = self._make(kind, [(engine.kernels[s.kernel], *tell[s]) for s in inside])
        drivers = self._drivers(engine, dict(zip(inside, addresses, strict=True)))
        targets = [drivers.get(site.kernel) or self._kernels[site.launch] for site in sites]
        made = self._make(
            kind, [(at, *tell[site]) for at, site in zip(targets, sites, strict=True)]
        )
        self._probes = {site.launch: at for site, at in zip(sites, made, strict=True)}

    def put(self) -> None:
        """Insert the probes before the kernels, for later calls."""
        for launch, address in self._probes.items():
            self._records[launch].kernel = address

    def remove(self) -> None:
        """Restore the addresses of kernels. Calls in progress may still be in a probe."""
        for record, address in zip(self._records, self._kernels, strict=True):
            record.kernel = address

    def keep(self, what: object) -> None:
        """Keep an object alive as long as the probes."""
        self._keep.append(what)

    def _make(self, kind: Kind, rows: Sequence[tuple[int, int, int]]) -> list[int]:
        found: list[int] = []
        for start in range(0, len(rows), _SLOTS):
            part = rows[start : start + _SLOTS]
            slots = (Slot * _SLOTS)(*(Slot(*row) for row in part))
            imports = {name: address_of(name) or 0 for name in kind.value}
            imports["slots"] = ctypes.addressof(slots)
            names = [f"probe_{number}" for number in range(len(part))]
            code = linker.link(names, _image(kind), imports)
            found += [code[name] for name in names]
            self._keep += [slots, code]
        return found

    def _drivers(self, engine: Engine, inside: Mapping[CallSite, int]) -> dict[str, int]:
        """Return the drivers of super kernels, linked to probes, by name."""
        found: dict[str, int] = {}
        for number, whole in engine.tables.supers.items():
            probes = {s.kernel: at for s, at in inside.items() if s.launch == number}
            code = linker.link([whole.kernel], engine.drivers[whole.kernel], probes)
            found[whole.kernel] = code[whole.kernel]
            self._keep.append(code)
        return found


def call_sites(engine: Engine) -> list[CallSite]:
    """Return all sites at which a program calls kernels."""
    plan, supers = engine.plan, engine.tables.supers
    launches = [(n, step) for n, step in enumerate(plan.steps) if isinstance(step, Launch)]
    launches += [(-1 - n, step) for n, step in enumerate(plan.prepare)]
    spans = {s.name: list(sub_launches(plan, s)) for s in plan.supers}
    found: list[CallSite] = []
    within: set[int] = set()
    for number, (step, launch) in enumerate(launches):
        whole = supers.get(number)
        if whole is not None:
            subs = spans[whole.kernel]
            within.update(range(number, number + len(subs)))
            found.append(CallSite(number, step, whole.kernel))
            kernels = dict.fromkeys(sub.kernel for sub in subs)
            found += [CallSite(number, step, name, True) for name in kernels]
        elif number not in within:
            found.append(CallSite(number, step, launch.kernel))
    return found


@cache
def _image(kind: Kind) -> bytes:
    body = _RECORD if kind is Kind.RECORD else _PROFILE
    text = "\n".join([_HEAD, body, *map(_stub, range(_SLOTS))])
    return linker.assembled(text, "runtime/probes.py", 1)


def _stub(number: int) -> str:
    slot = f"getelementptr ([{_SLOTS} x %Slot], ptr @slots, i64 0, i64 {number})"
    return (
        f"define void @probe_{number}(ptr %b, ptr %d, i64 %first, i64 %last, ptr %s) {{\n"
        f"  call void @probed(ptr {slot}, ptr %b, ptr %d, i64 %first, i64 %last, ptr %s)\n"
        "  ret void\n}"
    )


_HEAD = f"""
%Slot = type {{ ptr, ptr, i64 }}
%Log = type {{ i64, i64, ptr }}
%Record = type {{ i64, i64, i64, i64, i64, i64, i64 }}
@slots = external global [{_SLOTS} x %Slot]
"""

_RECORD = """
declare i32 @clock_gettime(i32, ptr)
declare i64 @pthread_self()

define internal i64 @now() {
  %time = alloca { i64, i64 }
  %failed = call i32 @clock_gettime(i32 1, ptr %time)          ; CLOCK_MONOTONIC
  %seconds = load i64, ptr %time
  %rest.at = getelementptr { i64, i64 }, ptr %time, i32 0, i32 1
  %rest = load i64, ptr %rest.at
  %scaled = mul i64 %seconds, 1000000000
  %nanoseconds = add i64 %scaled, %rest
  ret i64 %nanoseconds
}

define internal void @probed(ptr %slot, ptr %b, ptr %d, i64 %first, i64 %last, ptr %s) {
  %it = load %Slot, ptr %slot
  %kernel = extractvalue %Slot %it, 0
  %log = extractvalue %Slot %it, 1
  %number = extractvalue %Slot %it, 2
  %begin = call i64 @now()
  call void %kernel(ptr %b, ptr %d, i64 %first, i64 %last, ptr %s)
  %end = call i64 @now()
  %place = atomicrmw add ptr %log, i64 1 monotonic
  %capacity.at = getelementptr %Log, ptr %log, i32 0, i32 1
  %capacity = load i64, ptr %capacity.at
  %room = icmp ult i64 %place, %capacity
  br i1 %room, label %write, label %done
write:
  %records.at = getelementptr %Log, ptr %log, i32 0, i32 2
  %records = load ptr, ptr %records.at
  %record = getelementptr %Record, ptr %records, i64 %place
  %buffers = ptrtoint ptr %b to i64
  %thread = call i64 @pthread_self()
  %r0 = insertvalue %Record poison, i64 %number, 0
  %r1 = insertvalue %Record %r0, i64 %buffers, 1
  %r2 = insertvalue %Record %r1, i64 %first, 2
  %r3 = insertvalue %Record %r2, i64 %last, 3
  %r4 = insertvalue %Record %r3, i64 %begin, 4
  %r5 = insertvalue %Record %r4, i64 %end, 5
  %r6 = insertvalue %Record %r5, i64 %thread, 6
  store %Record %r6, ptr %record
  br label %done
done:
  ret void
}
"""

_PROFILE = """
declare i32 @aoti_record_function_start(ptr, ptr, ptr, i64, ptr)
declare i32 @aoti_record_function_end(ptr)

define internal void @probed(ptr %slot, ptr %b, ptr %d, i64 %first, i64 %last, ptr %s) {
  %range = alloca ptr
  %it = load %Slot, ptr %slot
  %kernel = extractvalue %Slot %it, 0
  %name = extractvalue %Slot %it, 1
  %failed = call i32 @aoti_record_function_start(ptr %name, ptr null, ptr null, i64 0, ptr %range)
  call void %kernel(ptr %b, ptr %d, i64 %first, i64 %last, ptr %s)
  %begun = icmp eq i32 %failed, 0
  br i1 %begun, label %close, label %done
close:
  %open = load ptr, ptr %range
  %ignored = call i32 @aoti_record_function_end(ptr %open)
  br label %done
done:
  ret void
}
"""


_log = get_logger("runtime")
_lock = RenewedLock()
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_probes: weakref.WeakKeyDictionary[Engine, Probes] = weakref.WeakKeyDictionary()


class _State:
    """State of the profiler: whether we listen to torch's, and whether it runs."""

    told = False
    running = False


def show(engine: Engine) -> None:
    """Show the kernels of a program in every session of the profiler, the current one too."""
    with _lock.lock:
        _engines.add(engine)
        if not _State.told:
            _State.told = True
            _listen()
        if _State.running:
            _put(engine)


def _listen() -> None:
    if not available(Kind.PROFILE):
        _log.info("this torch has no ranges for its profiler: kernels are not shown in it")
        return
    _State.running = bool(listen(_started, _stopped))


def _started() -> None:
    with _lock.lock:
        _State.running = True
        for engine in list(_engines):
            _put(engine)


def _stopped() -> None:
    with _lock.lock:
        _State.running = False
        for probes in list(_probes.values()):
            probes.remove()


def _put(engine: Engine) -> None:
    """Insert the probes of an engine. Failures are warnings: profiles may lack ranges."""
    try:
        probes = _probes.get(engine)
        if probes is None:
            probes = _probes[engine] = _named(engine)
        probes.put()
    except (CodegenError, OSError) as error:
        _log.warning("kernels of %s have no ranges in the profile: %s", engine.plan.name, error)


def _named(engine: Engine) -> Probes:
    """Return probes with the titles of kernels and the names of super kernels."""
    titles = {ref.name: ref.title for ref in engine.plan.kernels}
    texts = {
        site: ctypes.create_string_buffer(titles.get(site.kernel, site.kernel).encode())
        for site in call_sites(engine)
    }
    made = Probes(engine, Kind.PROFILE, {s: (ctypes.addressof(t), 0) for s, t in texts.items()})
    made.keep(texts)
    return made
