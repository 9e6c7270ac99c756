"""Conversion of Dynamo's guards into reads: what a trace depended on, in a form that can be kept.

The table of artifact/guard_kinds.py has the supported kinds of guards.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import field
from itertools import combinations
from typing import Any, cast

import torch

from kernelmill.artifact import fingerprint, guard_kinds, paths
from kernelmill.artifact.bytecode import WITH_GLOBAL, Compared, is_library
from kernelmill.artifact.fingerprint import TOLD_OTHERWISE, is_constant, is_data, is_told_apart
from kernelmill.artifact.guard_kinds import WHOLE, strides_name
from kernelmill.artifact.manifest import COUNTED, Guard, Root
from kernelmill.artifact.paths import MISSING, MissingPath, Path, Roots, find_at, follow, is_outside
from kernelmill.backend.gears import symbolic
from kernelmill.backend.sources import SourceReader, is_known_by_version
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import UnsupportedError
from kernelmill.frontend.symbols import range_of
from kernelmill.torch_internals import dynamo, trace_notes
from kernelmill.torch_internals.dynamo import asked_of


@dataclass
class Reads:
    """Reads of a trace. `arguments` are guards of arguments, without the values that they find;
    `outside` are paths of all others, with the parts that matter there (`Root`).
    `tensors` are roots of tensors whose layout or attributes are read."""

    arguments: list[Guard] = field(default_factory=list[Guard])
    outside: dict[Path, str] = field(default_factory=dict[Path, str])
    tensors: dict[Root, None] = field(default_factory=dict[Root, None])
    _asked: set[str] = field(default_factory=set[str])

    def add(self, guard: Guard) -> None:
        """Add the reads of one guard."""
        if guard.of_argument:
            named = {guard.name, *_names_in(guard.path), *_names_in(guard.other)}
            self._asked |= named
            plain = not guard.other and not guard_kinds.is_about_layout(guard)
            if plain and _TYPE in guard.path and named.isdisjoint(TOLD_OTHERWISE):
                # All of a class that has one of these names is compared with it.
                guard = Guard("class", guard.path[: guard.path.index(_TYPE)])
            self.arguments.append(guard)
            return
        if guard_kinds.is_about_layout(guard):
            self.tensors[Root(guard.path, "layout")] = None
        elif guard.kind in ("absent", "has"):
            self.tensors[Root(guard.path, "attributes")] = None
        if not guard_kinds.is_about_layout(guard):
            self._asked.add(guard.name)
        into = {"contains": "item", "absent": "attribute", "has": "attribute"}.get(guard.kind)
        if into is not None:
            self._count((*guard.path, (into, guard.name)), "presence")
        counted = {"shape": "keys", "keys": "keys", "value": "all"}.get(guard.kind, "class")
        for path in (guard.path, guard.other):
            if path and not is_known_by_version(path):
                self._count(path, "presence" if path[-1][0] == "bytes" else counted)

    def _count(self, path: Path, what: str) -> None:
        self.outside[path] = max(what, self.outside.get(path, what), key=COUNTED.index)

    def names(self, inputs: Iterable[Path]) -> frozenset[str]:
        """Return the names of the read attributes and keys, and of those on the way to them and to
        these inputs."""
        return frozenset(self._asked.union(*map(_names_in, (*self.outside, *inputs))))


def _names_in(path: Path) -> Iterator[str]:
    return (part for _, *parts in path for part in parts if type(part) is str)


_TYPE = ("type",)
"""The step to the class of a value."""


def reads_of(guards: Iterable[Any], reader: SourceReader, roots: Roots, layouts: Layouts) -> Reads:
    """The reads behind Dynamo's guards. Tensors that are inputs of the program are checked with
    these, and need none.

    UnsupportedError names what cannot be kept.
    """
    kinds = {name: kind for kind, row in guard_kinds.KINDS.items() for name in row.dynamo}
    found = Reads()
    for guard in guards:
        what = guard.create_fn_name()
        if what in guard_kinds.ELSEWHERE:
            continue
        if what not in kinds:
            raise UnsupportedError(f"it depends on {guard.name} by a guard {what}")
        try:
            if kinds[what] == guard_kinds.LAYOUT:
                for each in layouts.guards(guard, reader):
                    found.add(each)
            elif not reader.is_of_call(guard.originating_source):
                read = _read(guard, what, kinds[what], reader, roots)
                if not all(map(is_known_by_version, filter(None, (read.path, read.other)))):
                    found.add(read)
        except MissingPath as gone:
            raise UnsupportedError(f"it reads {gone}, which no name finds again") from gone
    for each in layouts.integers(reader):
        found.add(each)
    return found


def _read(guard: Any, what: str, kind: str, reader: SourceReader, roots: Roots) -> Guard:
    """Return the read that stands for all that a guard compares, without the value that it
    finds."""
    parameter = guard_kinds.KINDS[kind].about
    asked = asked_of(guard, parameter) if parameter else (guard.originating_source, "")
    if asked is None:
        raise UnsupportedError(f"it depends on {guard.name} ({what})")
    source, about = asked
    path, whole = reader.path(source), WHOLE.get(what, is_told_apart if kind == "value" else None)
    if kind == "same":
        read = Guard(kind, path, other=reader.path(about))
        if read.of_argument != (read.other[0][0] == "argument"):
            raise UnsupportedError(f"an argument is what it reads elsewhere too ({guard.name})")
        return read
    if isinstance(about, bytes) and path[0][0] != "argument":
        return Guard("value", bytes_key(path, about))
    if not isinstance(about, str):
        # All keys are compared: a file has only text to say which is meant. Of a dict not what it
        # holds under them, which is read by itself.
        kind = "shape" if isinstance(follow(path, roots), dict) else "value"
        about, whole = "", _has_data_as_keys
    if whole is not None and not whole(value := follow(path, roots)):
        raise UnsupportedError(
            f"it depends on {guard.name} ({what}), which is a {fingerprint.name_of(type(value))}"
        )
    return Guard(kind, path, name=about)


def bytes_key(path: Path, key: bytes) -> Path:
    """Return the path of a value under a bytes key, of which only the presence is compared."""
    return (*path, ("bytes", key.decode("latin-1")))


def missed(errors: Iterable[trace_notes.CaughtError], reader: SourceReader) -> Iterator[Guard]:
    """Return guards that names which the trace did not find are still missing."""
    for error in errors:
        path: Path | None
        if error.source is not None:
            path = reader.path(error.source)
        elif error.made is not None and issubclass(error.kind, KeyError):
            continue  # entries of a container made by the code are part of the trace
        else:
            path = None if error.made is None else paths.path_of_class(error.made)
        if path is None and is_library(error.file):
            continue  # as inspect does of functions
        if path is None:
            raise UnsupportedError(f"it catches a {error.kind.__name__} of what no name finds")
        if is_known_by_version(path):
            continue
        if issubclass(error.kind, AttributeError):
            yield Guard("has", path, name=error.name)
        elif isinstance(error.name, str):
            yield Guard("contains", path, name=error.name)
        elif isinstance(error.name, bytes) and is_outside(path):
            yield Guard("value", bytes_key(path, error.name))
        else:
            yield Guard("shape", path)


_MOST_PAIRS = 256
_BOTH = 2


def identities(
    compared: Compared, inputs: Iterable[Path], reads: Reads, roots: Roots
) -> list[Guard]:
    """Return guards that values in arguments are one object or two, as in the trace, if its code
    compares some by identity, since Dynamo does not report different objects.

    UnsupportedError if an argument may be compared with an object that is no argument, or if there
    are too many.
    """
    if not compared:
        return []
    given = [(("argument", name),) for name in roots.arguments]
    paths = (*inputs, *(read.path for read in reads.arguments), *reads.outside, *given)
    seen = {path: find_at(path, roots) for path in dict.fromkeys(paths)}
    marks = {path: value for path, value in seen.items() if _is_mark(value)}
    found = {
        path: value
        for path, value in seen.items()
        if _is_tensor(value)
        or (path[0][0] == "argument" and value is not MISSING and not is_constant(value))
    }
    names = {path[-1][-1] for path in found}
    sides = [sides for sides in compared - {WITH_GLOBAL} if names.issuperset(sides)]
    if all(len(names) == _BOTH for names in sides):
        named = {name for names in sides for name in names}
        found = {path: value for path, value in found.items() if path[-1][-1] in named}
    found |= marks
    outside = {path for path in found if path[0][0] != "argument"}
    own = found.keys() - outside
    for kind in (_is_tensor, _is_mark):
        if all(any(kind(found[path]) for path in paths) for paths in (own, outside)):
            raise UnsupportedError("it compares by identity, and not arguments alone")
    pairs = list(combinations(sorted(own, key=repr), 2))
    if len(pairs) > _MOST_PAIRS:
        raise UnsupportedError("it compares by identity, and there is much that it may compare")
    return [Guard("same", path, other=other) for path, other in pairs]


def keys_of_objects(reads: Reads, roots: Roots) -> list[Guard]:
    """Return guards of all that objects in arguments have in their `__dict__`, where code reads
    that."""
    own = {read.path: find_at(read.path, roots) for read in reads.arguments}
    kinds = (torch.Tensor, type, types.FunctionType, types.ModuleType)
    return [
        Guard("keys", (*path, ("attribute", "__dict__")))
        for path, value in own.items()
        if isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, kinds)
    ]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_mark(value: Any) -> bool:
    return type(value) is object


def _has_data_as_keys(value: Any) -> bool:
    kinds = (dict, set, frozenset)
    return isinstance(value, kinds) and all(is_data(key, 1) for key in cast(Iterable[Any], value))


_ASK_STRIDES, _ASKS_OFFSET = {"is_contiguous", "stride"}, "storage_offset"


class Layouts:
    """Dynamo's sizes and strides of the tensors of one trace, whose graph has these `sources` as
    inputs, and the integers beside them. `methods` are what its code may call; `flags` are what
    it may ask of tensors besides: their "class", and "requires_grad".

    A dim may have any size from FREE_FROM on if nothing depends on it: its symbol is in no
    condition, has no bounds, and is no other tensor's size. If it is that of an input's dim, the
    two have to be equal. Every other size has to be what it was. Where the code asks for strides,
    those have to be what they were, or what a dense tensor has.
    """

    def __init__(
        self, output: Any, sources: Sequence[Any], methods: Collection[str], flags: Collection[str]
    ) -> None:
        self._flags = flags
        self._found, env = dynamo.tensor_sizes(output), output.shape_env
        self._asks = {*_ASK_STRIDES, _ASKS_OFFSET} & {*methods}
        self._inputs = {source.name for source in sources}
        self._of_inputs: dict[Any, tuple[Any, int]] = {}
        used: Counter[Any] = Counter()
        for source, (sizes, _) in self._found.items():
            symbols = list(map(_symbol, sizes))
            used.update(symbols)
            if source.name in self._inputs:
                for axis, symbol in enumerate(symbols):
                    self._of_inputs.setdefault(symbol, (source, axis))
        # A symbol that Dynamo replaced by another, or that is in a condition, is not free.
        expressions = [*(guard.expr for guard in env.guards), *env.replacements.values()]
        asked = {*env.replacements, *(s for each in expressions for s in each.free_symbols)}
        self._free = {
            symbol
            for symbol, count in used.items()
            if symbol is not None and count == 1 and symbol not in asked
            and range_of(symbol, env) == (guard_kinds.FREE_FROM, None)
        }  # fmt: skip
        self._places = env.var_to_sources
        of_tensors = dynamo.source_classes.require().TensorPropertySource
        self._fixed = [
            source
            for symbol, its in env.var_to_sources.items()
            if symbol in asked or used[symbol]
            for source in its
            if source.name not in self._inputs and not isinstance(source, of_tensors)
        ]

    def integers(self, reader: SourceReader) -> Iterator[Guard]:
        """Return guards of integers that the trace has compared, with a size or with each other,
        and that are no inputs of its program: they must not change."""
        for source in self._fixed:
            path = reader.path(source)
            if not is_known_by_version(path):
                yield Guard("value", path)

    def guards(self, guard: Any, reader: SourceReader) -> Iterator[Guard]:
        """Yield guards for one of Dynamo's guards of a tensor; for an input only those of strides,
        offset and flags. UnsupportedError if its sizes are unknown."""
        source = guard.originating_source
        is_input = source.name in self._inputs
        if is_input and not (self._asks or self._flags):
            return
        path = reader.path(source)
        if is_known_by_version(path):
            return
        # Of what is no argument Dynamo has guards of the class.
        if (
            is_input
            and self._flags
            and (path[0][0] == "argument" or "requires_grad" in self._flags)
        ):
            yield Guard(guard_kinds.FLAGS, path)
        if source not in self._found:
            raise UnsupportedError(f"it depends on the sizes of {guard.name}")
        # Of a dim of one, the layout of a tensor that is no input does not say the stride either.
        if self._asks and (counting := " ".join(self._counting(source))):
            yield Guard(guard_kinds.STRIDES, path, name=counting)
        if is_input:
            return
        free: list[str] = []
        for axis, symbol in enumerate(map(_symbol, self._found[source][0])):
            if symbol in self._free:
                free.append(str(axis))
            elif symbol is not None and symbol in self._of_inputs and path[0][0] == "argument":
                other, its_axis = self._of_inputs[symbol]
                its: Path = reader.path(other)
                if its[0][0] == "argument":
                    free.append(str(axis))
                    yield Guard(guard_kinds.SIZE, path, name=f"{axis} {its_axis}", other=its)
        yield Guard(guard_kinds.LAYOUT, path, name=" ".join(free))

    def _counting(self, source: Any) -> Iterator[str]:
        """Yield the dims whose strides the code may read and that are no inputs of the graph.
        UnsupportedError for a stride that is neither a number nor the extent of a dim, and for an
        offset."""
        found = self._found[source]
        sizes, strides = (list(map(symbolic, each or ())) for each in found)  # none: sparse tensors
        names = [f"{source.name}.stride()[{n}]" for n in range(len(strides))]

        def is_known(n: int) -> bool:
            # A symbol of its own that is no input is used by no computation.
            own = {its.name for its in self._places.get(strides[n], ())} == {names[n]}
            return names[n] in self._inputs or strides[n].is_Integer or own

        dims = following(sizes, strides, is_known) if self._asks & _ASK_STRIDES else []
        if dims is None:
            raise UnsupportedError(f"it takes strides of {source.name} for other sizes")
        yield from (strides_name([dim]) for dim in dims if names[dim[0]] not in self._inputs)
        offset = f"{source.name}.storage_offset()"
        if _ASKS_OFFSET in self._asks and offset not in self._inputs:
            raise UnsupportedError(f"it takes {offset} for another size")


def following(
    sizes: Sequence[Any], strides: Sequence[Any], is_known: Callable[[int], bool]
) -> list[tuple[int, int]] | None:
    """Return the origins of a tensor's strides, sympy expressions as its sizes are: for each dim
    (dim, -1) where its stride is known by itself, else (dim, the dim with that extent). None where
    a stride is neither."""
    found: list[tuple[int, int]] = []
    left = list(range(len(strides)))
    taken: dict[Any, int] = {}  # extents (size times stride) of the dims found
    while left:
        n = next((n for n in left if is_known(n) or strides[n] in taken), None)
        if n is None:
            return None
        found.append((n, -1 if is_known(n) else taken[strides[n]]))
        taken[sizes[n] * strides[n]] = n
        left.remove(n)
    return found


def _symbol(size: Any) -> Any:
    """Return the sympy symbol of a size; None for a number or another expression."""
    expr = symbolic(size)
    return expr if expr.is_symbol else None
