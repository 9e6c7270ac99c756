"""A saved program bound to the module, globals and closure that it reads.

Each call looks at what may have changed without tracing: torch's settings, what was read outside of
the arguments (by identity), the arguments that are no tensors. Tensors are checked by the native
entry. Nothing is run when something does not fit: Mismatch says what.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import getitem
from typing import Any

import torch

from kernelmill.artifact.arguments import check_of, getter
from kernelmill.artifact.load import Loaded
from kernelmill.artifact.manifest import Manifest, path_of
from kernelmill.artifact.packages import version_of
from kernelmill.artifact.paths import GONE, Path, Roots, follow, text_of
from kernelmill.artifact.reads import changes
from kernelmill.artifact.results import Builder
from kernelmill.artifact.settings import SettingsCheck, difference
from kernelmill.artifact.shortcut import Shortcut, shortcut_of
from kernelmill.artifact.watch import Place, Watch
from kernelmill.runtime.quick import REFUSED, NativeWatch, supported


class Mismatch(Exception):
    """A program is not right for this call, or any more; the text says why."""


@dataclass(frozen=True)
class Target:
    """What a traced function is bound to: itself, the module it is a method of, its signature
    (without self), the variables of the functions around it."""

    function: Callable[..., Any]
    owner: object
    signature: inspect.Signature
    free: Mapping[str, Any]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Target:
        """The target of a function or bound method."""
        plain: Any = getattr(function, "__func__", function)
        free: dict[str, Any] = {}
        cells = getattr(plain, "__closure__", None) or ()
        for name, cell in zip(plain.__code__.co_freevars, cells, strict=True):
            try:
                free[name] = cell.cell_contents
            except ValueError:
                continue
        owner = getattr(function, "__self__", None)
        return cls(function, owner, inspect.signature(function), free)

    def values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """A value for each parameter, defaults filled in. TypeError as Python raises it."""
        names, defaults, positional = self._simple
        given = len(args)
        if given == len(names) == positional and not kwargs:
            return args
        if given <= positional:
            rest = names[given:]
            try:
                found = [kwargs[name] if name in kwargs else defaults[name] for name in rest]
            except KeyError:
                found = []
            if len(found) == len(rest) and sum(name in kwargs for name in rest) == len(kwargs):
                return (*args, *found)
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return tuple(bound.arguments[name] for name in self.signature.parameters)

    @cached_property
    def _simple(self) -> tuple[tuple[str, ...], Mapping[str, Any], int]:
        """Names, defaults, and how many may be given by position: -1 when there are parameters
        that cannot be given by name."""
        parameters = self.signature.parameters.values()
        by_position = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        named = sum(p.kind is p.KEYWORD_ONLY for p in parameters)
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        simple = by_position + named == len(parameters)
        return tuple(self.signature.parameters), defaults, by_position if simple else -1

    def roots(self) -> Roots:
        """The roots of all paths but those of arguments."""
        return Roots(self.owner, {}, self.free)


@dataclass(frozen=True)
class Seen:
    """What an entry depends on, looked at in full. `reason` says in words why it does not fit,
    empty when it does; `values` are those of the manifest's tree."""

    reason: str
    values: Sequence[Any] = ()


def look(manifest: Manifest, target: Target, arguments: Sequence[Any] | None = None) -> Seen:
    """Whether an entry is for this target now and, where values for all parameters are given, for
    a call with them (tensors aside)."""
    if differs := difference(manifest.state):
        return Seen(differs)
    for name, value in manifest.packages.items():
        if version_of(name) != value:
            return Seen(f"version of {name}: was {value}, is {version_of(name)}")
    if tuple(target.signature.parameters) != manifest.parameters:
        return Seen("the parameters of the function")
    for use in manifest.code:
        if differs := use.differs():
            return Seen(differs)
    given = {} if arguments is None else dict(zip(manifest.parameters, arguments, strict=True))
    values = manifest.tree.values(Roots(target.owner, given, target.free))
    reads = (read for read in manifest.reads if arguments is not None or not read.of_argument)
    return Seen(next(changes(reads, values, frozenset(manifest.names)), ""), values)


class Bound:
    """A saved program bound to what it reads: call it with a value for each parameter.

    `quick` is the same with fewer steps; it gives REFUSED when something is not as in the last
    call.
    """

    def __init__(
        self, manifest: Manifest, loaded: Loaded, target: Target, seen: Seen | None = None
    ) -> None:
        """Mismatch when the entry is stale; `seen` is what `look` has just found, which looks by
        itself otherwise."""
        builder = Builder()
        build = builder.build(manifest.result)
        passed = [_finder(path, manifest, target) for path in builder.paths]
        self._build, self._passed = build, passed
        self._shortcut = shortcut_of(
            manifest,
            loaded.program,
            (lambda results, values: build(results, [find(values) for find in passed]))
            if passed
            else build,
        )
        self._watched = _Watched(manifest, target, seen, self._shortcut)
        self._gather = _gatherer(manifest, self._watched)
        self._checks = _checks(manifest)
        self._run, self.report = loaded.call, loaded.report
        self._settings = SettingsCheck(manifest.state)

    @property
    def quick(self) -> Callable[[tuple[Any, ...]], Any]:
        """The quick way as it is now; each call in full can replace it."""
        return _refuse if self._shortcut is None else self._shortcut.call

    def __call__(self, values: tuple[Any, ...]) -> Any:
        """The call in full. Mismatch and InputError say what it is not for."""
        if differs := self._settings.difference():
            raise Mismatch(differs)
        self._watched.check()
        for check, text in self._checks:
            try:
                right = check(values)
            except (AttributeError, KeyError, IndexError, TypeError):
                right = False
            if not right:
                raise Mismatch(text)
        generation = 0 if self._shortcut is None else self._shortcut.generation
        inputs, own = self._gather(values)
        if torch.is_grad_enabled():
            refuse_gradients(own)
        results = self._run(*inputs)
        if self._shortcut is not None:
            self._shortcut.learn(values, inputs, generation)
        passed = self._passed
        return self._build(results, [find(values) for find in passed] if passed else ())


def _refuse(values: tuple[Any, ...]) -> Any:
    return REFUSED


def refuse_gradients(tensors: Iterable[Any]) -> None:
    """RuntimeError when one of these requires grad."""
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            raise RuntimeError(
                "an argument requires grad, and a cached method is for inference only: call it "
                "under torch.no_grad() or torch.inference_mode(), or pass argument.detach()"
            )


class _Watched:
    """The watch over what lies outside of the arguments, made anew when something has moved."""

    def __init__(
        self, manifest: Manifest, target: Target, seen: Seen | None, shortcut: Shortcut | None
    ) -> None:
        self._manifest, self._target = manifest, target
        self._native = shortcut or (NativeWatch() if supported() else None)
        self.places: list[Place] = []
        self.look_again(seen)

    def check(self) -> None:
        """Mismatch when what was read is not the same any more."""
        native = self._native
        if native is not None and native.unmoved():
            return
        if not self.watch.unchanged():
            self.look_again()
        elif native is not None:
            self.watch.note_moved(native.rows)
            native.watch(self.watch.rows())

    def look_again(self, seen: Seen | None = None) -> None:
        """Mismatch when what was read is not the same any more."""
        manifest, target = self._manifest, self._target
        seen = seen or look(manifest, target)
        if seen.reason:
            raise Mismatch(seen.reason)
        watch = Watch(manifest.tree, seen.values, target.roots())
        for read in manifest.reads:
            watch.add_read(read)
        for use in manifest.code:
            watch.add_code(use)
        places: list[Place] = []
        for entry, number in zip(manifest.inputs, manifest.input_places, strict=True):
            if path_of(entry)[0][0] != "argument":
                if seen.values[number] is GONE:
                    raise Mismatch(f"{text_of(path_of(entry))} is not there")
                place = watch.place(number)
                if place is not None:
                    watch.add_input(place)
                places.append(place or ([seen.values[number]], 0))
        self.watch = watch
        self.places[:] = places
        if self._native is not None:
            self._native.watch(watch.rows())


Gather = Callable[[Sequence[Any]], tuple[list[Any], Sequence[Any]]]


def _gatherer(manifest: Manifest, watched: _Watched) -> Gather:
    """Gives the program's arguments from a call's values, and those that are the call's own."""
    outside = [n for n, entry in enumerate(manifest.inputs) if path_of(entry)[0][0] != "argument"]
    own = [n for n in range(len(manifest.inputs)) if n not in set(outside)]
    gets = [_input_getter(manifest.inputs[n], manifest.parameters) for n in own]
    positions = [0] * len(manifest.inputs)
    for place, n in enumerate((*own, *outside)):
        positions[n] = place
    in_order = positions == list(range(len(positions)))
    whole = [path_of(manifest.inputs[n]) for n in own] == [
        (("argument", name),) for name in manifest.parameters
    ]
    places, updates = watched.places, manifest.updates

    def gather(values: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
        try:
            mine = values if whole else [get(values) for get in gets]
        except (AttributeError, KeyError, IndexError, TypeError) as error:
            raise Mismatch(f"an argument is built otherwise: {error!r}") from error
        if updates:
            _refuse_shared(mine)
        try:
            found = [*mine, *[getitem(owner, key) for owner, key in places]]
        except (KeyError, IndexError) as error:
            raise Mismatch(f"{error} is not there") from error
        return found if in_order else [found[n] for n in positions], mine

    return gather


def _refuse_shared(tensors: Sequence[Any]) -> None:
    storages = [
        t.untyped_storage()._cdata for t in tensors if isinstance(t, torch.Tensor) and t.numel()
    ]
    if len(set(storages)) != len(storages):
        raise Mismatch("arguments share memory, and some are written to")


def _input_getter(entry: Any, parameters: Sequence[str]) -> Callable[[Sequence[Any]], Any]:
    if entry[0] == "size":
        _, path, axis = entry
        get = getter(path, parameters)
        return lambda values: get(values).shape[axis]
    return getter(entry, parameters)


def _finder(path: Path, manifest: Manifest, target: Target) -> Callable[[Sequence[Any]], Any]:
    if path[0][0] == "argument":
        return getter(path, manifest.parameters)
    roots = target.roots()
    return lambda values: follow(path, roots)


def _checks(manifest: Manifest) -> list[tuple[Callable[[Sequence[Any]], bool], str]]:
    names = frozenset(manifest.names)
    return [
        (
            check_of(read, manifest.parameters, names),
            f"argument {text_of(read.path)}: the program was compiled for {read.found}",
        )
        for read in manifest.reads
        if read.of_argument
    ]
