"""The document of an artifact: how it is called, what it depends on, what its file holds.

It is data alone, kept as JSON with a line for each field; reading it needs no torch.

    CallSpec    parameters, what is asked of arguments, inputs of the program, results, sizes,
                effects
    Guards      what a trace depended on outside of the arguments; empty for one compiled ahead
    Gears       which of several plans runs, where there are several
"""

# Without annotations as texts: the types of fields say how they are read, and texts of types would
# be compiled at each load.

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from kernelmill.artifact.paths import Path, Tree, is_outside, read_places, text_of
from kernelmill.artifact.shapes import Shape, check_shape, each_of_type, of_type
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, parse, sym
from kernelmill.core.errors import StoreError
from kernelmill.plan.padding import Padding

FORMAT = 16
"""Raised when a file of an older kernelmill could be misunderstood, or its kernels have a fault: a
file of `aot.compile` brings its machine code along."""

Condition = tuple[str, str, str]
"""Relation, left and right side as texts of dims: ("==", "s0 % 8", "0")."""


@dataclass(unsafe_hash=True)  # a frozen one takes three times as long to make, of thousands
class Guard:
    """Something besides the contents of tensors that a program is right for; never changes.

    `found` is what was found, as text. `place` and `other_place` are the numbers of the paths in
    the tree of the manifest. The kinds are those of guard_kinds.py, some with a `name`.
    """

    kind: str
    path: Path
    found: str = ""
    name: str = ""
    other: Path = ()
    place: int = field(default=-1, compare=False)
    other_place: int = field(default=-1, compare=False)

    @property
    def of_argument(self) -> bool:
        """Whether it can be different in each call."""
        return self.path[0][0] == "argument"

    def text(self) -> str:
        """For people."""
        name = f".{self.name}" if self.name else ""
        same = f" and {text_of(self.other)}" if self.other else ""
        return f"{text_of(self.path)}{name}{same}"


@dataclass(frozen=True)
class CodeUse:
    """One function, and what it was: `digest` of its code and defaults. `globals` are the names in
    its module that its code may read, with what they are when they are data, functions or classes.
    `name` is empty when the whole file stands for it."""

    module: str
    name: str
    digest: str
    globals: Mapping[str, str]


@dataclass(frozen=True)
class Parameter:
    """A parameter of the function. `keyword`: it is passed by name alone."""

    name: str
    keyword: bool = False


@dataclass(frozen=True)
class Source:
    """Where an input of the program is found. With an `axis` it is an integer that the tensor there
    tells: by its `part` the n of a "size" that is `times` * n + `plus`, a "stride", or the "offset"
    in its storage (axis 0). `place` is the number of the path in the manifest's tree."""

    path: Path
    axis: int = -1
    times: int = 1
    plus: int = 0
    part: str = "size"
    place: int = field(default=-1, compare=False)

    @property
    def own(self) -> bool:
        """Whether each call brings it."""
        return self.path[0][0] == "argument"

    @property
    def what(self) -> str:
        """What it is of the tensor that it is found in; "" where it is the input as found."""
        return f"{self.part} {self.axis}" if self.axis >= 0 else ""


@dataclass(frozen=True)
class Effect:
    """What a call leaves in an object that it was passed: the one at `path`. `kind` is "attribute",
    "item" or "append", `key` the name, number or key, and `value` a shape (effects.py)."""

    path: Path
    kind: str
    key: Any
    value: Shape
    place: int = field(default=-1, compare=False)

    def text(self) -> str:
        """For people."""
        if self.kind == "append":
            return f"{text_of(self.path)}.append({json.dumps(self.value)})"
        return f"{text_of((*self.path, (self.kind, self.key)))} = {json.dumps(self.value)}"


@dataclass(frozen=True)
class Limit:
    """`symbol` is from `low` to `high` (None: without end); `where` names what has that size."""

    symbol: str
    low: int
    high: int | None
    where: str

    def text(self) -> str:
        """What is allowed, in words."""
        if self.low == self.high:
            return str(self.low)
        return f"at least {self.low}" + ("" if self.high is None else f" and at most {self.high}")


@dataclass(frozen=True)
class CallSpec:
    """How a program is called.

    name        what was traced: "module.Class.method"
    parameters  of the function, without self
    checks      what is asked of arguments besides what the plan asks of tensors
    inputs      where each input of the program is found
    result      how results become what the function returns (results.py)
    limits, conditions   on sizes, besides what the plan says
    effects     what is set in arguments when the program has run
    """

    name: str
    parameters: tuple[Parameter, ...]
    checks: tuple[Guard, ...]
    inputs: tuple[Source, ...]
    result: Shape
    limits: tuple[Limit, ...] = ()
    conditions: tuple[Condition, ...] = ()
    effects: tuple[Effect, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return tuple(parameter.name for parameter in self.parameters)


@dataclass(frozen=True)
class Guards:
    """What a trace depended on outside of the arguments; all of it has to be as it was.

    reads, code what it read, and which code it went through
    names       that this code uses: a class is compared by those of its methods
    settings    of torch, by name (settings.py)
    packages    versions of the installed packages that the code is of, by name
    function    digest of the code of the function itself: an object may have several of one name
    objects     how many the tensors are that neither calls nor the artifact bring, where code
                compares some by identity; -1 where it does not
    """

    reads: tuple[Guard, ...] = ()
    code: tuple[CodeUse, ...] = ()
    names: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    packages: Mapping[str, str] = field(default_factory=dict[str, str])
    function: str = ""
    objects: int = -1

    def tensor_places(self, inputs: Iterable[Source]) -> Iterator[int]:
        """Where in the tree those may be."""
        yield from (each.place for each in (*inputs, *self.reads) if is_outside(each.path))


@dataclass(frozen=True)
class Gears:
    """How one of several plans is chosen: by integers read from inputs (axis -1) or their sizes.

    `table` maps those to plans by number; `kept` of `count` inputs are those that they take.
    `otherwise` is the number of the plan for all other sizes, -1 where there is none; `padding` is
    how calls of other sizes are padded to a gear, if they are.
    """

    sources: tuple[tuple[int, int], ...]
    symbols: tuple[str, ...]
    table: tuple[tuple[tuple[int, ...], int], ...]
    kept: tuple[int, ...]
    count: int
    otherwise: int
    padding: Padding | None = None


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of the file. It begins `offset` bytes into the weights; `storage` is where what is
    kept of its storage begins, and its bytes. Strides are in elements. Tensors of one storage have
    one in the file, too. `role` is "parameter", "buffer" or "constant"."""

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    storage: tuple[int, int]


@dataclass(frozen=True)
class Packed:
    """Weights as kernels want them: packed by `recipe` from the tensors number `sources`. `places`
    are (offset, bytes) in the section of packed weights."""

    recipe: str
    sources: tuple[int, ...]
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Manifest:
    """All of an artifact but texts, machine code and the bytes of tensors.

    tensors     that the file holds: weights, and what the traced code held
    objects     where a file has machine code in its section: (name, offset, bytes)
    options     of the config that are not at their default, by dotted name
    ingredients of the keys of machine code, and versions, by name
    tree        the paths of reads and inputs; only what `read_manifest` gives has them
    """

    spec: CallSpec
    guards: Guards = Guards()
    gears: Gears | None = None
    tensors: tuple[StoredTensor, ...] = ()
    packed: tuple[Packed, ...] = ()
    objects: tuple[tuple[str, int, int], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ingredients: Mapping[str, str] = field(default_factory=dict[str, str])
    tree: Tree = field(default_factory=Tree, compare=False)

    def text(self) -> str:
        """The manifest as JSON, a line for each field. Other dataclasses are rows of their fields,
        dims are texts.

        `places` has each step of all paths once, as [PLACE BEFORE IT, STEP...]; guards and inputs
        say the number of their place. `texts` has what guards found.
        """
        tree, texts = Tree(), dict[str, int]()

        def row(value: Any) -> Any:
            if isinstance(value, Expr):
                return str(value)
            if isinstance(value, Guard):
                found = texts.setdefault(value.found, len(texts))
                place, other = tree.number(value.path), tree.number(value.other)
                return [value.kind, place, found, value.name, other]
            parts = [getattr(value, name) for name in _fields(type(value))]
            if isinstance(value, (Source, Effect)):
                parts[0] = tree.number(value.path)
            return parts

        lines = {name: json.dumps(getattr(self, name), default=row) for name in _fields(Manifest)}
        lines["places"] = json.dumps([[before, *step] for before, step in tree.rows])
        lines |= {"texts": json.dumps([*texts]), "format": str(FORMAT)}
        return "{" + ",\n ".join(f'"{name}": {lines[name]}' for name in sorted(lines)) + "}"


def read_manifest(text: str | bytes) -> Manifest:
    """The inverse of `Manifest.text`, with the type of each value and every number of a place,
    text, tensor or parameter checked. StoreError for any other text."""
    try:
        data = of_type(json.loads(text), dict)
        if data.get("format") != FORMAT:
            raise StoreError(
                f"it is of the format {data.get('format', 1)!r:.20}, and this kernelmill reads "
                f"{FORMAT}"
            )
        tree = read_places(data["places"])
        reader = _Reader(each_of_type(data["texts"], str), tree.paths())
        types = _fields(Manifest)
        manifest = Manifest(**{n: reader.maker(types[n])(data[n]) for n in types}, tree=tree)
        _check_numbers(manifest)
        return manifest
    except (LookupError, RecursionError, TypeError, ValueError) as error:
        raise StoreError(f"it has no manifest of a program: {error!r}") from error


def _check_numbers(manifest: Manifest) -> None:
    """ValueError for a number or name of what the manifest does not have."""
    spec, gears, count = manifest.spec, manifest.gears, len(manifest.tensors)
    for _, (kind, *names) in manifest.tree.rows:
        if kind == "argument" and names[0] not in spec.names:
            raise ValueError(f"no parameter {names[0]!r}")
        if kind == "tensor" and not 0 <= names[0] < count:
            raise ValueError(f"no tensor {names[0]}")
    for source in spec.inputs:
        parts = {"size": source.axis >= -1, "stride": source.axis >= 0, "offset": source.axis == 0}
        if not parts[source.part] or not source.times:
            raise ValueError(f"no integer of a tensor: {source}")
    for effect in spec.effects:
        if effect.kind not in ("attribute", "item", "append"):
            raise ValueError(f"no effect {effect.kind!r}")
        of_type(effect.key, *((str,) if effect.kind == "attribute" else (str, int, bool, NoneType)))
    for packed in manifest.packed:
        if not all(0 <= number < count for number in packed.sources):
            raise ValueError(f"packs no tensor: {packed.sources}")
    if gears is not None:
        read = [number for number, _ in gears.sources]
        if not all(0 <= n < gears.count for n in (*read, *gears.kept)):
            raise ValueError("gears of no input")


def _fields(kind: Any) -> dict[str, Any]:
    """The types of the fields that a dataclass is kept by, which are those it is compared by."""
    return {each.name: each.type for each in fields(kind) if each.compare}


_LARGEST = 1 << 63
"""Numbers are those of an int64."""


@dataclass(frozen=True)
class _Reader:
    """Makes what a manifest has of JSON's values. A guard that compares nothing has no other path,
    of the number -1."""

    texts: list[str]
    paths: list[Path]

    def maker(self, kind: Any) -> Callable[[Any], Any]:
        """What makes values of a type, and raises TypeError or ValueError for any other value."""
        origin, args = get_origin(kind), get_args(kind)
        if kind is Guard:
            return self._guard
        if kind is Shape:
            return _shape
        if kind in (Source, Effect):
            makers = [self.maker(part) for part in list(_fields(kind).values())[1:]]
            return lambda row: kind(
                self.paths[_number(row[0], self.paths)], *_each(makers, row[1:]), place=row[0]
            )
        if origin is Mapping:
            make = self.maker(args[1])
            return lambda value: {n: make(v) for n, v in of_type(value, dict).items()}
        if origin is tuple and args[-1] is Ellipsis:
            make = self.maker(args[0])
            return lambda rows: tuple([make(row) for row in of_type(rows, list)])
        if origin is tuple or is_dataclass(kind):
            makers = [self.maker(part) for part in args or _fields(kind).values()]
            whole: Any = kind if is_dataclass(kind) else lambda *parts: parts
            return lambda row: whole(*_each(makers, row))
        if origin in (Union, UnionType):  # a dim, or what may be None
            return self._one_of(args)
        if kind is int:
            return _integer
        return _option if kind is Any else lambda value: of_type(value, kind)

    def _one_of(self, kinds: Sequence[Any]) -> Callable[[Any], Any]:
        make, of_dims, optional = self.maker(kinds[0]), Expr in kinds, NoneType in kinds

        def made(value: Any) -> Any:
            if value is None and optional:
                return None
            return _dim(value) if of_dims and isinstance(value, str) else make(value)

        return made

    def _guard(self, row: Any) -> Guard:
        kind, place, found, name, other = of_type(row, list)
        kind, name = of_type(kind, str), of_type(name, str)
        path, text = self.paths[_number(place, self.paths)], self.texts[_number(found, self.texts)]
        compared = () if other == -1 else self.paths[_number(other, self.paths)]
        return Guard(kind, path, text, name, compared, place, other)


def _each(makers: Sequence[Callable[[Any], Any]], row: Any) -> list[Any]:
    return [make(part) for make, part in zip(makers, of_type(row, list), strict=True)]


def _number(value: Any, of: Sequence[Any]) -> int:
    """The number of one of these."""
    if not 0 <= of_type(value, int) < len(of):
        raise ValueError(f"no number of one of {len(of)}: {value}")
    return value


def _integer(value: Any) -> int:
    if not -_LARGEST <= of_type(value, int) < _LARGEST:
        raise ValueError(f"out of range: {value!r:.40}")
    return value


def _option(value: Any) -> Any:
    """Data, or a list or table of data."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in (value,) if not isinstance(value, (dict, list)) else parts:
        of_type(part, str, int, float, bool, NoneType)
    return value


def _shape(value: Any) -> Shape:
    check_shape(value)
    return value


def _dim(text: str) -> Dim:
    """The dim of a text, whose names are symbols."""
    return parse(text, {name: sym(name) for name in re.findall(r"[^\W\d]\w*", text)})
