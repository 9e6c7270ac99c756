"""The programs of one function: bound in this process, kept on disk, and traced if none of these
fits a call.

`cache_compile` and `kernelmill.compile` both call them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from kernelmill.artifact import container
from kernelmill.artifact.bind import Bound, GuardResult, evaluate_guards
from kernelmill.artifact.container import Artifact
from kernelmill.artifact.fingerprint import name_of
from kernelmill.artifact.manifest import Manifest
from kernelmill.artifact.program_set import ProgramSet, program_set, with_objects
from kernelmill.artifact.results import NoClass
from kernelmill.artifact.target import Target, Values
from kernelmill.artifact.tensors import tensors_of
from kernelmill.artifact.versions import of_decompositions, versions
from kernelmill.backend.entry import Decompositions
from kernelmill.backend.replacements import passes_text
from kernelmill.config import CompilerConfig
from kernelmill.core.after_fork import RenewedLock
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigTypeError, InputError, NoCodeError
from kernelmill.core.log import get_logger
from kernelmill.core.target.isa import target_isa
from kernelmill.inference.cache_directories import class_folder, ranks_folder
from kernelmill.runtime.counters import summed
from kernelmill.runtime.quick import REFUSED
from kernelmill.runtime.weights.packed_files import PackedFiles
from kernelmill.store.folder import FirstWarnings, Folder, OnUntrusted, when_untrusted
from kernelmill.store.sealed import Damaged
from kernelmill.store.store import open_store
from kernelmill.torch_internals.registry import counters

if TYPE_CHECKING:
    from kernelmill.backend.quantization import Quantization
    from kernelmill.backend.record import Recording

MOST_ENTRIES = 16
PATIENCE_SECONDS = 600.0
"""Longest wait for another process' trace of the same function."""

_log = get_logger("inference")


def folder_given(given: object) -> str | None:
    """Return the given `cache_dir`. ConfigTypeError for a value that names no folder."""
    if given is None:
        return None
    if not isinstance(given, (str, os.PathLike)):
        raise ConfigTypeError(f"cache_dir: {type(given).__name__} names no folder")
    return os.fspath(given)


def check_kind(kind: type, **arguments: object) -> None:
    """Raise ConfigTypeError for an argument of another class."""
    for name, value in arguments.items():
        if type(value) is not kind:
            raise ConfigTypeError(f"{name}: {value!r} is no {kind.__name__}")


@dataclass(frozen=True)
class Options:
    """Options of the programs. `dynamic` is torch.compile's; `ranks` are the global, tensor and
    pipeline one; `gears` are sizes by dims by the names of arguments; `module` is the compiled one
    where `function` is its forward, and `quantized` the outcome for its layers."""

    function: Callable[..., Any]
    config: CompilerConfig
    dynamic: bool | None
    cache_dir: str | None = None
    ranks: tuple[int | None, int | None, int | None] = (None, None, None)
    decompositions: Decompositions | None = None
    map_packed: bool = False
    ge_cache: bool = False
    max_entries: int = MOST_ENTRIES
    gears: Mapping[str, Mapping[int, Sequence[int]]] | None = None
    module: torch.nn.Module | None = None
    quantized: Quantization | None = None


@dataclass(frozen=True)
class KeptProgram:
    """A program of this process: `loaded` from an entry, or traced here. `names` are those in its
    code."""

    bound: Bound
    manifest: Manifest
    programs: ProgramSet
    loaded: bool
    names: frozenset[str]


def current_first(programs: Iterable[KeptProgram]) -> Iterator[KeptProgram]:
    """Yield those of the current state, then the others, which need a survey: a model may go to
    and fro between states. A single one is not looked at."""
    known, others = list(programs), list[KeptProgram]()
    for each in known:
        if not known[1:] or each.bound.is_current():
            yield each
        else:
            others.append(each)
    yield from others


class KeptPrograms:
    """The programs of a function. `statistics` counts entries loaded, traces, and calls without an
    entry. Can be copied and pickled with its module."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._target = Target.of(options.function)
        self._count = self._target.binder.count
        self._bound: tuple[KeptProgram, ...] = ()  # never changed, but replaced: others go through
        self._quick: Callable[[Values], Any] = lambda values: REFUSED
        self._making = RenewedLock(threading.RLock)  # held for as long as a trace takes
        self._changing = RenewedLock()
        self._warn = FirstWarnings(_log)
        self.statistics = {"loaded": 0, "traced": 0, "uncached": 0}
        owner, function = self._target.owner, options.function
        # Parts of the folder's name: now, while the model is being built, not at the first call.
        self._ingredients = {
            **versions(target_isa(options.config.target)),
            # ATen's packing of four-bit weights depends on it.
            "kernels of torch": torch.backends.cpu.get_cpu_capability(),
            **dict(options.config.ingredients()),
            "class": name_of(function if owner is None else type(owner)),
            "dynamic": str(options.dynamic),
            "decompositions": of_decompositions(options.decompositions or {}),
        }
        if options.gears:
            self._ingredients["gears"] = repr(sorted(options.gears.items()))

    def __getstate__(self) -> Options:
        return self._options

    def __setstate__(self, options: Options) -> None:
        type(self).__init__(self, options)

    # ---- calls ------------------------------------------------------------------------------

    def _by_one_of(self, programs: Iterable[KeptProgram], values: Values) -> Any:
        """Return the result of the first program to accept these values; REFUSED for none."""
        for each in current_first(programs):
            try:
                result = each.bound(values)
            except InputError:
                continue
            self._take(each)
            return result
        return REFUSED

    def _first_call(self, values: Values, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Serve a call that no bound program accepts: from the folder, else by a trace."""
        target = Target.of(self._options.function)
        folder = Folder(self.folder, self._on_untrusted())
        others = list(self._bound)
        result = self._from_folder(folder, target, values, others)
        if result is not REFUSED:
            return result
        with ExitStack() as turn:
            waited = False
            with suppress(OSError):
                waited = turn.enter_context(folder.lock("trace", PATIENCE_SECONDS))
            if waited:
                result = self._from_folder(folder, target, values, others)
            if result is not REFUSED:
                return result
            with self._around_trace(values, args, kwargs, others):
                return self._trace(folder, target, args, kwargs)

    def _may_serve(self, program: KeptProgram) -> bool:
        """Return whether a program is valid for a call under the current grad mode."""
        return True

    def _around_trace(
        self,
        values: Values,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        others: Sequence[KeptProgram],
    ) -> AbstractContextManager[Any]:
        """Return the context manager of a trace for a call. `others` are programs of the same
        function, for arguments of other sizes or kinds."""
        return nullcontext()

    def _from_folder(
        self, folder: Folder, target: Target, values: Values, others: list[KeptProgram]
    ) -> Any:
        """Return the result of an entry for the call; REFUSED when there is none. Entries whose
        guards hold except for the arguments are added to `others`."""
        for name, artifact in container.entries(folder):
            manifest, tensors = artifact.manifest, tensors_of(artifact)
            seen = evaluate_guards(manifest, target, values, tensors)
            if seen.reason:
                _log.info("%s: not %s: %s", manifest.spec.name, name, seen.reason)
                continue
            try:
                program = self._bind(artifact, tensors, target, seen)
                others.append(program)
                if not self._may_serve(program):
                    continue
                result = program.bound(values)
            except (InputError, NoClass, NoCodeError, Damaged) as error:
                _log.info("%s: not %s: %s", manifest.spec.name, name, error)
                continue
            self._take(program)
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

        # Without it all sizes are static except those that `_around_trace` marks.
        dynamic = self._options.gears is not None or self._options.dynamic is True
        recording = record(
            target, args, kwargs, config=self._options.config, dynamic=dynamic,
            decompositions=self._options.decompositions or {}, ingredients=self._key(),
            gradients=self._traces_gradients and torch.is_grad_enabled(),
        )  # fmt: skip
        self.statistics["traced"] += 1
        artifact = recording.artifact
        if artifact is None:
            return self._not_kept(recording)
        self._keep(folder, artifact)
        try:
            self._take(self._bind(artifact, tensors_of(artifact), target))
        except InputError as error:  # the call has changed its own dependences
            return self._not_kept(replace(recording, artifact=None, reason=str(error)))
        return recording.returned

    _traces_gradients = False
    """True to refuse a trace whose inputs require grad while gradients are on."""

    def _not_kept(self, recording: Recording) -> Any:
        """Return the result of a call whose trace cannot be kept."""
        raise NotImplementedError

    def _take(self, program: KeptProgram) -> None:
        """Move a program to the front, so that calls try it first."""
        if self._bound[:1] != (program,):
            with self._changing.lock:
                others = [other for other in self._bound if other is not program]
                self._bound = (program, *others)[: self._options.max_entries]
        self._quick = program.bound.quick

    def _keep(self, folder: Folder, artifact: Artifact) -> None:
        most, name = self._options.max_entries, artifact.manifest.spec.name
        try:
            if self._options.ge_cache:
                artifact = with_objects(artifact, self._options.config)
            container.save(folder, artifact)
            for old in container.names(folder)[most:]:
                folder.remove(old, (container.SUFFIX,))
                _log.warning(
                    "%s has more than %d entries: the least recently used is removed. Pass other "
                    "max_entries, or a module that is traced less often", name, most,
                )  # fmt: skip
        except OSError as error:
            self._warn(
                "unwritable",
                f"{folder.path} cannot be written ({error.strerror}): {name} is traced again by "
                "the next process",
            )

    def _counts(self, programs: Iterable[KeptProgram]) -> dict[str, int]:
        """Return the counters of these programs, added up, and those of the process."""
        counts = chain.from_iterable(each.bound.counts() for each in programs)
        return {**summed(counts), **counters()}

    # ---- places -----------------------------------------------------------------------------

    @property
    def folder(self) -> str:
        """Folder of the entries of this function."""
        name = getattr(self._options.function, "__name__", "")
        return os.path.join(self._class_folder(), ranks_folder(*self._options.ranks), name)

    def _key(self) -> dict[str, str]:
        """Return the ingredients of the folder's name, with replacements registered since."""
        return {**self._ingredients, "custom passes": passes_text(self._options.config)}

    def _class_folder(self) -> str:
        owner, options = self._target.owner, self._options
        kind = type(owner).__name__ if owner is not None else "function"
        return class_folder(options.cache_dir, kind, options.dynamic, self._key())

    def _on_untrusted(self) -> OnUntrusted:
        return when_untrusted(self._options.config.on_untrusted)

    def _bind(
        self,
        artifact: Artifact,
        tensors: Sequence[torch.Tensor],
        target: Target,
        seen: GuardResult | None = None,
    ) -> KeptProgram:
        place = None
        if self._options.map_packed:
            # All methods and ranks of a class share the files.
            place = PackedFiles(os.path.join(self._class_folder(), "packed"), self._on_untrusted())
        config = self._options.config
        store = open_store(config.experimental_config.kernel_meta_dir, config.on_untrusted)
        with container.used(artifact.file):
            programs = program_set(artifact, store, place, config)
        bound = Bound(artifact.manifest, programs, tensors, target, seen)
        names = frozenset(artifact.manifest.guards.names)
        return KeptProgram(bound, artifact.manifest, programs, seen is not None, names)
