"""`cache_compile`: a method that is traced and compiled once, and loaded by every later process.

The first call looks for an entry whose dependences are as they were (artifact/bind.py says which);
it is loaded, or the method is traced and an entry made. Later calls try the programs bound so far,
the one of the last call first, then entries on disk, then a trace.
"""

from __future__ import annotations

import copy
import inspect
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import chain
from typing import Any

import torch

from kernelmill.artifact import container
from kernelmill.artifact.bind import Bound, GuardResult, evaluate_guards, refuse_gradients
from kernelmill.artifact.container import Artifact
from kernelmill.artifact.fingerprint import name_of
from kernelmill.artifact.objects import with_objects
from kernelmill.artifact.program_set import program_set
from kernelmill.artifact.results import NoClass
from kernelmill.artifact.settings import modes
from kernelmill.artifact.target import Target
from kernelmill.artifact.tensors import tensors_of
from kernelmill.artifact.versions import of_decompositions, versions
from kernelmill.backend.entry import Backend, Decompositions, given_decompositions
from kernelmill.config import CompilerConfig, given_config
from kernelmill.core.after_fork import RenewedLock
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError, ConfigTypeError, InputError, NoCodeError
from kernelmill.core.garbage import collection_paused
from kernelmill.core.log import get_logger
from kernelmill.core.target.isa import target_isa
from kernelmill.inference.cache_directories import class_folder, ranks_folder
from kernelmill.runtime.counters import summed
from kernelmill.runtime.quick import REFUSED
from kernelmill.runtime.weights.packed_files import PackedFiles
from kernelmill.store.folder import Folder, OnUntrusted, when_untrusted
from kernelmill.store.sealed import Damaged
from kernelmill.store.store import Store, open_store
from kernelmill.torch_internals.inventory import counters

MOST_ENTRIES = 16
PATIENCE_SECONDS = 600.0
"""Longest wait for another process' trace of the same method."""

_log = get_logger("inference")


def cache_compile(
    func: Callable[..., Any],
    *,
    config: object = None,
    backend: object = None,
    dynamic: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
    global_rank: int | None = None,
    tp_rank: int | None = None,
    pp_rank: int | None = None,
    custom_decompositions: Decompositions | None = None,
    ge_cache: bool = False,
    mmap_packed_weights: bool = False,
    max_entries: int = MOST_ENTRIES,
) -> CachedMethod:
    """A function that computes what the method `func` of a module does, for inference.

    backend       of `get_backend`: its options and decompositions, in place of `config`'s
    dynamic       trace for all sizes; False: for the sizes of the call, an entry for each
    cache_dir     folder of the cache; else $KERNELMILL_CACHE_HOME, else
                  $XDG_CACHE_HOME/kernelmill/methods, with ~/.cache where that is unset
    *_rank        this process' place in a distributed job; the global one is asked of torch
    ge_cache      keep the compiled objects in the entry, so that a load compiles nothing
    mmap_packed_weights   keep packed weights in files, which all processes map and share
    max_entries   how many traces (other dtypes, ranks, constants) are kept of the method

    Raises InputError (a ValueError) when `func` is no plain method of a module, ConfigError for
    options of the wrong kind or value. The first call raises what torch.compile does when the
    method is no whole graph, and StoreError when others can write to the cache folder.
    """
    _check_method(func)
    ranks = {"global_rank": global_rank, "tp_rank": tp_rank, "pp_rank": pp_rank}
    for name, rank in ranks.items():
        _check_rank(name, rank)
    switches = {
        "dynamic": dynamic,
        "ge_cache": ge_cache,
        "mmap_packed_weights": mmap_packed_weights,
    }
    for name, value in switches.items():
        _check_kind(name, value, bool)
    _check_kind("max_entries", max_entries, int)
    # As it is now: it may be changed for the next method before this one is traced.
    if backend is not None:
        config, custom_decompositions = _parts_of(backend, config, custom_decompositions)
    config = copy.deepcopy(given_config(config))
    if max_entries < 1:
        raise InputError(f"max_entries is {max_entries}, and at least 1 entry is needed")
    options = Options(
        func, config, dynamic, _folder(cache_dir), (global_rank, tp_rank, pp_rank),
        given_decompositions(custom_decompositions), mmap_packed_weights, ge_cache, max_entries,
    )  # fmt: skip
    return CachedMethod(options)


def _parts_of(
    backend: object, config: object, decompositions: Decompositions | None
) -> tuple[CompilerConfig, Decompositions]:
    """The options and decompositions of a backend, with those given beside it."""
    if not isinstance(backend, Backend):
        raise ConfigTypeError(f"backend: {backend!r:.60} is none of kernelmill.get_backend()")
    if config is not None:
        raise ConfigError("cache_compile is given a config and a backend, which has its own: one")
    return backend.config, {**backend.custom_decompositions, **(decompositions or {})}


def _folder(given: object) -> str | None:
    if given is None:
        return None
    if not isinstance(given, (str, os.PathLike)):
        raise ConfigTypeError(f"cache_dir: {type(given).__name__} names no folder")
    return os.fspath(given)


def _check_kind(name: str, value: object, kind: type) -> None:
    if type(value) is not kind:
        raise ConfigTypeError(f"{name}: {value!r} is no {kind.__name__}")


def _check_rank(name: str, rank: int | None) -> None:
    if rank is None:
        return
    _check_kind(name, rank, int)
    if rank < 0:
        raise ConfigError(f"{name}: {rank} is no rank: they count from 0")


def _what_instead(func: object) -> str:
    if isinstance(func, torch.nn.Module):
        return f"a module ({type(func).__name__}): pass model.forward"
    name = str(getattr(func, "__qualname__", ""))
    owner, _, method = name.rpartition(".")
    if inspect.isfunction(func) and owner and not owner.endswith("<locals>"):
        return (
            f"the function {name}, as a decorator does: call it in __init__, "
            f"self.call = cache_compile(self.{method})"
        )
    return f"{name or type(func).__name__}"


def _check_method(func: Any) -> None:
    owner = getattr(func, "__self__", None)
    plain = getattr(func, "__func__", None)
    if not isinstance(owner, torch.nn.Module) or plain is None:
        raise InputError(
            "cache_compile takes a method of a torch.nn.Module object (self.method), got "
            f"{_what_instead(func)}"
        )
    name = getattr(func, "__name__", "")
    code = getattr(plain, "__code__", None)
    if hasattr(plain, "__wrapped__") or code is None or code.co_name != name:
        raise InputError(
            f"the method {name_of(func)} is decorated: put its body into a plain method, and call "
            "that one through cache_compile"
        )


@dataclass(frozen=True)
class Options:
    """What `cache_compile` was given; `ranks` are the global, tensor and pipeline one."""

    function: Callable[..., Any]
    config: CompilerConfig
    dynamic: bool
    cache_dir: str | None
    ranks: tuple[int | None, int | None, int | None]
    decompositions: Decompositions
    map_packed: bool
    ge_cache: bool
    max_entries: int


class CachedMethod:
    """What `cache_compile` gives. `statistics` counts entries loaded, traces, and calls that no
    entry serves. It can be copied and pickled with its module."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._target = Target.of(options.function)
        self._count = self._target.binder.count
        self._bound: tuple[Bound, ...] = ()  # never changed, but replaced: others go through it
        self._quick: Callable[[tuple[Any, ...]], Any] = lambda values: REFUSED
        self._uncached: Callable[..., Any] | None = None
        self._making = RenewedLock(threading.RLock)  # held for as long as a trace takes
        self._changing = RenewedLock()
        self.statistics = {"loaded": 0, "traced": 0, "uncached": 0}
        # Of the folder's name: now, while the model is being built, not at the first call.
        self._ingredients = {
            **versions(target_isa(options.config.target)),
            # How ATen packs weights of four bits depends on it.
            "kernels of torch": torch.backends.cpu.get_cpu_capability(),
            **dict(options.config.ingredients()),
            "class": name_of(type(self._target.owner)),
            "dynamic": str(options.dynamic),
            "decompositions": of_decompositions(options.decompositions),
        }

    def __getstate__(self) -> Options:
        return self._options

    def __setstate__(self, options: Options) -> None:
        CachedMethod.__init__(self, options)

    # ---- calls ------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the method. InputError names an argument that cannot be taken."""
        if not kwargs and len(args) == self._count:
            result = self._quick(args)
            if result is not REFUSED:
                return result
        return self._called(args, kwargs)

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if active := modes():
            return self._under_modes(active, args, kwargs)
        values = self._target.values(args, kwargs)
        if values is not args:  # which the quick way has not seen
            result = self._quick(values)
            if result is not REFUSED:
                return result
        tried = self._bound
        result = self._by_one_of(tried, values)
        if result is not REFUSED:
            return result
        if (uncached := self._uncached) is None:
            with self._making.lock, collection_paused():
                # What another thread has loaded or traced while this one waited.
                result = self._by_one_of([b for b in self._bound if b not in tried], values)
                if result is not REFUSED:
                    return result
                if (uncached := self._uncached) is None:
                    return self._first_call(values, args, kwargs)
        return self._by(uncached, args, kwargs)

    def _by_one_of(self, bound: Sequence[Bound], values: tuple[Any, ...]) -> Any:
        """The result of the first that takes these values; REFUSED when none does."""
        for each in bound:
            try:
                result = each(values)
            except InputError:
                continue
            self._take(each)
            return result
        return REFUSED

    def _under_modes(
        self, active: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """The method as it is: modes of torch see, and may replace, each of its operators."""
        _log.info("%s runs uncompiled under %s", name_of(self._options.function), ", ".join(active))
        return self._by(self._options.function, args, kwargs)

    def _by(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """A call that no entry serves."""
        self._refuse_gradients(args, kwargs)
        with self._changing.lock:
            self.statistics["uncached"] += 1
        with torch.no_grad():
            return function(*args, **kwargs)

    def _refuse_gradients(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if torch.is_grad_enabled():
            by_position = zip(self._target.binder.names, args, strict=False)
            refuse_gradients((*by_position, *kwargs.items()))

    def _first_call(
        self, values: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call that no bound program takes: from the folder, else by a trace."""
        target = Target.of(self._options.function)
        self._refuse_gradients(args, kwargs)
        folder = Folder(self.folder, self._on_untrusted())
        result = self._from_folder(folder, target, values)
        if result is not REFUSED:
            return result
        with ExitStack() as turn:
            waited = False
            with suppress(OSError):
                waited = turn.enter_context(folder.lock("trace", PATIENCE_SECONDS))
            if waited:
                result = self._from_folder(folder, target, values)
            return self._trace(folder, target, args, kwargs) if result is REFUSED else result

    def _from_folder(self, folder: Folder, target: Target, values: tuple[Any, ...]) -> Any:
        """What an entry gives for the call; REFUSED when there is none for it."""
        for name, artifact in container.entries(folder):
            manifest, tensors = artifact.manifest, tensors_of(artifact)
            seen = evaluate_guards(manifest, target, values, tensors)
            if seen.reason:
                _log.info("%s: not %s: %s", manifest.spec.name, name, seen.reason)
                continue
            try:
                bound = self._bind(artifact, tensors, target, seen)
                result = bound(values)
            except (InputError, NoClass, NoCodeError, Damaged) as error:
                _log.info("%s: not %s: %s", manifest.spec.name, name, error)
                continue
            self._take(bound)
            self.statistics["loaded"] += 1
            with suppress(OSError):
                folder.touch(f"{name}{container.SUFFIX}")
            return result
        return REFUSED

    def _trace(
        self, folder: Folder, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        # The only way here that imports torch._dynamo and the compiler.
        from kernelmill.backend.record import record

        recording = record(
            target, args, kwargs, config=self._options.config, dynamic=self._options.dynamic,
            decompositions=self._options.decompositions, ingredients=self._ingredients,
        )  # fmt: skip
        self.statistics["traced"] += 1
        artifact = recording.artifact
        if artifact is None:
            self._uncached = recording.compiled
            self.statistics["uncached"] += 1
            _log.warning(
                "%s cannot be cached: %s. It runs as torch.compile compiles it, and every process "
                "traces it anew", name_of(self._options.function), recording.reason,
            )  # fmt: skip
            return recording.returned
        self._keep(folder, artifact)
        self._take(self._bind(artifact, tensors_of(artifact), target))
        return recording.returned

    def _take(self, bound: Bound) -> None:
        """Have calls try it first."""
        if self._bound[:1] != (bound,):
            with self._changing.lock:
                others = [other for other in self._bound if other is not bound]
                self._bound = (bound, *others)[: self._options.max_entries]
        self._quick = bound.quick

    def _keep(self, folder: Folder, artifact: Artifact) -> None:
        most, name = self._options.max_entries, artifact.manifest.spec.name
        try:
            if self._options.ge_cache:
                artifact = with_objects(artifact, self._store())
            container.save(folder, artifact)
            for old in container.names(folder)[most:]:
                folder.remove(old, (container.SUFFIX,))
                _log.warning(
                    "%s has more than %d entries: the least recently used is removed. Pass other "
                    "max_entries, or a module that is traced less often", name, most,
                )  # fmt: skip
        except OSError as error:
            _log.warning(
                "%s cannot be written (%s): %s is traced again by the next process",
                folder.path, error.strerror, name,
            )  # fmt: skip

    def report(self) -> dict[str, int]:
        """Counters of all programs of this process so far, added up: `calls`, `repacks` and others;
        `streamed` calls packed weights as they came to them, and `packing` parts are still to be
        packed for good. `without_...` names a private part of torch, or of another package, that
        is not as expected and that calls do without."""
        counts = chain.from_iterable(bound.counts() for bound in self._bound)
        return {**summed(counts), **counters()}

    # ---- places -----------------------------------------------------------------------------

    @property
    def folder(self) -> str:
        """The folder of this method's entries."""
        name = getattr(self._options.function, "__name__", "")
        return os.path.join(self._class_folder(), ranks_folder(*self._options.ranks), name)

    def _class_folder(self) -> str:
        kind, options = type(self._target.owner).__name__, self._options
        return class_folder(options.cache_dir, kind, options.dynamic, self._ingredients)

    def _store(self) -> Store:
        """Where the objects are that entries do not bring."""
        config = self._options.config
        return open_store(config.experimental_config.kernel_meta_dir, config.on_untrusted)

    def _on_untrusted(self) -> OnUntrusted:
        return when_untrusted(self._options.config.on_untrusted)

    def _bind(
        self,
        artifact: Artifact,
        tensors: Sequence[torch.Tensor],
        target: Target,
        seen: GuardResult | None = None,
    ) -> Bound:
        place = None
        if self._options.map_packed:
            # All methods and ranks of a class share the files.
            place = PackedFiles(os.path.join(self._class_folder(), "packed"), self._on_untrusted())
        store = self._store()
        with container.used(artifact.file):
            programs = program_set(artifact, store, place, self._options.config)
        return Bound(artifact.manifest, programs, tensors, target, seen)
