"""Kernels as ranges in torch's profiler.

Calls do not check for a profiler. When one starts, probes (probes.py) are inserted before the
kernels of all programs, and when it stops they are removed. torch_internals/profiler.py detects
both; with a torch that does not report them kernels have no ranges.
"""

from __future__ import annotations

import ctypes
import weakref

from kernelmill.core.after_fork import RenewedLock
from kernelmill.core.errors import CodegenError
from kernelmill.core.log import get_logger
from kernelmill.runtime.calls.engine import Engine
from kernelmill.runtime.probes import Kind, Probes, available, call_sites
from kernelmill.torch_internals.profiler import listen

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
