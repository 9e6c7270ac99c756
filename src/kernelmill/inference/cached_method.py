"""`cache_compile`: a method that is traced and compiled once, and loaded by every later process.

The first call loads an entry whose guards hold (artifact/bind.py), or traces the method and makes
an entry. Later calls try the bound programs, that of the last call first, then entries on disk,
then a trace.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from kernelmill.artifact.bind import refuse_gradients
from kernelmill.artifact.fingerprint import name_of
from kernelmill.artifact.settings import modes
from kernelmill.backend.entry import Backend, Decompositions, given_decompositions
from kernelmill.config import CompilerConfig, given_config
from kernelmill.core.errors import ConfigError, ConfigTypeError, InputError
from kernelmill.core.interpreter import collection_paused
from kernelmill.core.log import get_logger
from kernelmill.inference.kept_programs import (
    MOST_ENTRIES,
    KeptPrograms,
    Options,
    check_kind,
    folder_given,
)
from kernelmill.runtime.quick import REFUSED

if TYPE_CHECKING:
    from kernelmill.backend.record import Recording

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
    """Return a function with the results of the method `func` of a module, for inference.

    config        a `CompilerConfig`; None: the default options
    backend       a backend of `get_backend`, whose options and decompositions replace `config`
    dynamic       True: one trace for all sizes; False: an entry for each set of sizes
    cache_dir     folder of the cache; by default `$KERNELMILL_CACHE_HOME`, else
                  `$XDG_CACHE_HOME/kernelmill/methods`, else ~/.cache/kernelmill/methods
    *_rank        ranks of this process; the default of the global one is torch.distributed's
    ge_cache      keep the compiled objects in the entry, so that a load compiles nothing
    mmap_packed_weights   keep packed weights in files, which all processes map and share
    max_entries   limit of the method's entries (for other dtypes, ranks or constants)

    Raises InputError (a ValueError) if `func` is not a plain method of a module, ConfigError for
    options of the wrong kind or value. The first call raises torch.compile's errors if the method
    is not one graph, and StoreError if others can write to the cache folder.
    """
    _check_method(func)
    ranks = {"global_rank": global_rank, "tp_rank": tp_rank, "pp_rank": pp_rank}
    for name, rank in ranks.items():
        if rank is not None:
            check_kind(int, **{name: rank})
        if (rank or 0) < 0:
            raise ConfigError(f"{name}: {rank} is no rank: they count from 0")
    check_kind(bool, dynamic=dynamic, ge_cache=ge_cache, mmap_packed_weights=mmap_packed_weights)
    check_kind(int, max_entries=max_entries)
    # As it is now: it may be changed for the next method before this one is traced.
    if backend is not None:
        config, custom_decompositions = _parts_of(backend, config, custom_decompositions)
    config = copy.deepcopy(given_config(config))
    if max_entries < 1:
        raise InputError(f"max_entries is {max_entries}, and at least 1 entry is needed")
    options = Options(
        func, config, dynamic, folder_given(cache_dir), (global_rank, tp_rank, pp_rank),
        given_decompositions(custom_decompositions), mmap_packed_weights, ge_cache, max_entries,
    )  # fmt: skip
    return CachedMethod(options)


def _parts_of(
    backend: object, config: object, decompositions: Decompositions | None
) -> tuple[CompilerConfig, Decompositions]:
    """Return options and decompositions of a backend, with the given ones added."""
    if not isinstance(backend, Backend):
        raise ConfigTypeError(f"backend: {backend!r:.60} is not from kernelmill.get_backend()")
    backend.config.refuse_another(config)
    return backend.config, {**backend.custom_decompositions, **(decompositions or {})}


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


class CachedMethod(KeptPrograms):
    """A cached method. A call takes the arguments of the method. `statistics` counts loaded
    entries, traces, and calls without an entry (`loaded`, `traced`, `uncached`)."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._uncached: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the method. InputError names an argument that it does not accept."""
        if not kwargs and len(args) == self._count:
            result = self._quick(args)
            if result is not REFUSED:
                return result
        return self._called(args, kwargs)

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if active := modes():  # they see, and may replace, each operator of the original method
            function, names = self._options.function, ", ".join(active)
            _log.info("%s runs uncompiled under %s", name_of(function), names)
            return self._by(function, args, kwargs)
        values = self._target.values(args, kwargs)
        if values is not args:  # the fast path has not had these values
            result = self._quick(values)
            if result is not REFUSED:
                return result
        tried = self._bound
        result = self._by_one_of(tried, values)
        if result is not REFUSED:
            return result
        if (uncached := self._uncached) is None:
            with self._making.lock, collection_paused():
                # A program that another thread has loaded or traced while this one waited.
                result = self._by_one_of([b for b in self._bound if b not in tried], values)
                if result is not REFUSED:
                    return result
                if (uncached := self._uncached) is None:
                    self._refuse_gradients(args, kwargs)
                    return self._first_call(values, args, kwargs)
        return self._by(uncached, args, kwargs)

    def _by(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Call a function without gradients, where no entry serves the call."""
        self._refuse_gradients(args, kwargs)
        with self._changing.lock:
            self.statistics["uncached"] += 1
        with torch.no_grad():
            return function(*args, **kwargs)

    def _refuse_gradients(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if torch.is_grad_enabled():
            by_position = zip(self._target.binder.names, args, strict=False)
            refuse_gradients((*by_position, *kwargs.items()))

    def _not_kept(self, recording: Recording) -> Any:
        self._uncached = recording.compiled
        self.statistics["uncached"] += 1
        _log.warning(
            "%s cannot be cached: %s. torch.compile compiles it, and every process "
            "traces it again", name_of(self._options.function), recording.reason,
        )  # fmt: skip
        return recording.returned

    def report(self) -> dict[str, int]:
        """Return the sums of the counters of this process's programs: `calls`, `repacks` and
        others. `streamed` counts calls that packed weights on the fly, `packing` parts that are
        not packed yet. `without_...` names a private part of torch, or of another package, that is
        not as expected and is not used."""
        return self._counts(self._bound)
