"""The manifest of an artifact: its calling convention, its guards, the contents of its file.

It is data alone, kept as JSON with a line for each field; reading it needs no torch.

    CallSpec    parameters, guards of arguments, inputs of the program, results, sizes, effects
    Guards      state outside of the arguments that a trace depended on; empty if compiled ahead
    Gears       choice among several plans, where there are several

Shapes of the values that a call returns or sets, as JSON: a grammar checked without torch.

{"result": N} {"input": PATH} {"constant": JSON}     a result of the program, an object that it
{"constant": HEX, "float": true}                     was given, data, a float exactly
{"item": N}                                          `item()` of result N
{"dtype": NAME} {"device": NAME}                     "float32", "cpu"
{"list": [...]} {"tuple": [...]} {"dict": [[K, V]]}   containers
{"dict": [[K, V]], "ordered": true}                   an OrderedDict
{"named": NAME, "names": [...], "items": [...]}       a named tuple or one of
                                                      torch.return_types, by "module:Class"
{"object": NAME, "fields": [[NAME, V]]}               a dataclass (ModelOutput), the same way

Values of declared types, made from JSON.

str, bool, float, None, int     unchanged; an int has 64 bits
DATA                            one of these, an int of any length
tuple, Mapping                  from a list, from an object
a dataclass                     from the list of its fields
X | None, int | Expr            the first that fits; an Expr from its text
Annotated[T, check]             a T for which `check` does not return False
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from kernelmill.artifact.paths import Path, Tree, check_path, read_places, text_of
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import Dim, Expr, parse, sym
from kernelmill.core.errors import StoreError
from kernelmill.plan.ir import Padding

FORMAT = 20
"""Raised when a file of an older kernelmill could be misunderstood, or its kernels have a fault: a
file of `aot.compile` brings its machine code along."""

COUNTED = ("presence", "class", "keys", "all", "layout", "attributes")
"""Extents of a guard on a root: each of the first four covers more than the one before it."""

Condition = tuple[str, str, str]
"""Relation, left and right side as texts of scalars (core/scalar.py): ("==", "s0 % 8", "0")."""


@dataclass(unsafe_hash=True)  # a frozen one takes three times as long to make, of thousands
class Guard:
    """A condition, besides the contents of tensors, under which a program is valid; never changes.

    `found` is the found value as text. `place` and `other_place` are the numbers of the paths in
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
        """Return whether it can differ in each call."""
        return self.path[0][0] == "argument"

    def text(self) -> str:
        """Return the guard as text for people."""
        name = f".{self.name}" if self.name else ""
        same = f" and {text_of(self.other)}" if self.other else ""
        return f"{text_of(self.path)}{name}{same}"


@dataclass(frozen=True)
class CodeUse:
    """One function with the `digest` of its code and defaults. `globals` are the names in its
    module that its code may read, with the texts of those that are data, functions or classes.
    `name` is empty when the digest is of the whole file."""

    module: str
    name: str
    digest: str
    globals: Mapping[str, str]


@dataclass(frozen=True)
class Parameter:
    """A parameter of the function. `keyword`: keyword-only."""

    name: str
    keyword: bool = False


@dataclass(frozen=True)
class Source:
    """The origin of a program input. With an `axis` it is an integer read from the tensor there: by
    its `part` the n of a "size" that is `times` * n + `plus`, a "stride", or the "offset" in its
    storage (axis 0). `place` is the number of the path in the manifest's tree."""

    path: Path
    axis: Annotated[int, lambda axis: axis >= -1] = -1
    times: Annotated[int, bool] = 1
    plus: int = 0
    part: Annotated[str, {"size", "stride", "offset"}.__contains__] = "size"
    place: int = field(default=-1, compare=False)

    @property
    def own(self) -> bool:
        """True for an input that each call brings."""
        return self.path[0][0] == "argument"

    @property
    def what(self) -> str:
        """Part and axis of the tensor that is read; "" for an input used unchanged."""
        return f"{self.part} {self.axis}" if self.axis >= 0 else ""


@dataclass(frozen=True)
class Root:
    """A start of the survey of objects: a path from outside of call and artifact, and the extent of
    its guard: "all"; of a dict its "class" or its "keys", while values taken from it have roots of
    their own; of a tensor also its "layout", or its "attributes"; the "presence" alone."""

    path: Path
    what: Annotated[str, COUNTED.__contains__] = "all"
    place: int = field(default=-1, compare=False)


@dataclass(frozen=True)
class Effect:
    """A side effect of a call on an object that it was passed, at `path`. `kind` is "attribute",
    "item" or "append", `key` the name, number or key, and `value` a shape (results.py)."""

    path: Path
    kind: Annotated[str, {"attribute", "item", "append"}.__contains__]
    key: DATA
    value: Shape
    place: int = field(default=-1, compare=False)

    def text(self) -> str:
        """Return the effect as text for people."""
        if self.kind == "append":
            return f"{text_of(self.path)}.append({json.dumps(self.value)})"
        return f"{text_of((*self.path, (self.kind, self.key)))} = {json.dumps(self.value)}"


@dataclass(frozen=True)
class Limit:
    """Bounds of `symbol`, `low` to `high` (None: no bound); `where` names a dim of that size."""

    symbol: str
    low: int
    high: int | None
    where: str

    def text(self) -> str:
        """Return the allowed range in words."""
        if self.low == self.high:
            return str(self.low)
        return f"at least {self.low}" + ("" if self.high is None else f" and at most {self.high}")


@dataclass(frozen=True)
class CallSpec:
    """The calling convention of a program.

    name        of the traced function: "module.Class.method"
    parameters  of the function, without self
    checks      guards of arguments besides those that the plan has for tensors
    inputs      origin of each input of the program
    result      construction of the returned value from results (results.py)
    limits, conditions   on sizes, besides those of the plan
    effects     values set in arguments after the program has run
    in_order    whether the dims of tensors need the order in memory that they had in the trace: the
                layout of results may depend on it
    """

    name: str
    parameters: tuple[Parameter, ...]
    checks: tuple[Guard, ...]
    inputs: tuple[Source, ...]
    result: Shape
    limits: tuple[Limit, ...] = ()
    conditions: tuple[Condition, ...] = ()
    effects: tuple[Effect, ...] = ()
    in_order: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(parameter.name for parameter in self.parameters)


@dataclass(frozen=True)
class Guards:
    """State outside of the arguments that a trace depended on; all of it must be unchanged.

    code        functions that the trace went through
    names       in this code, which select the attributes of objects and classes to compare
    whole       whether all attributes of objects of a user's classes are compared, since code reads
                the `__dict__` of some
    roots       starts of the survey of the owner (owned.py), and the `lines` it wrote
    settings    of torch, by name (settings.py)
    packages    versions of the installed packages that the code is from, by name
    function    digest of the code of the function itself: an object may have several of one name
    """

    code: tuple[CodeUse, ...] = ()
    names: tuple[str, ...] = ()
    whole: bool = False
    roots: tuple[Root, ...] = ()
    lines: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    packages: Mapping[str, str] = field(default_factory=dict[str, str])
    function: str = ""


@dataclass(frozen=True)
class Gears:
    """The choice among several plans, by integers read from inputs (axis -1) or their sizes.

    `table` maps those to plans by number; `kept` are the inputs, of `count`, passed to them.
    `otherwise` is the number of the plan for all other sizes, -1 for none; `padding` describes the
    padding of other sizes to a gear, if they are padded.
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
    """A tensor of the file. It begins `offset` bytes into the weights; `storage` is the begin and
    the size in bytes of the stored part of its storage. Strides are in elements. Tensors of one
    storage share it in the file, too. `role` is "parameter", "buffer" or "constant"."""

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    storage: tuple[int, int]


@dataclass(frozen=True)
class PackedBuffers:
    """Weights in a kernel's layout: packed by `recipe` from the tensors number `sources`. `places`
    are (offset, bytes) in the section of packed weights."""

    recipe: str
    sources: tuple[int, ...]
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Manifest:
    """All of an artifact but texts, machine code and the bytes of tensors.

    tensors     in the file: weights and constants of the traced code
    objects     location of machine code in its section: (name, offset, bytes)
    options     of the config that are not at their default, by dotted name
    ingredients of the keys of machine code, and versions, by name
    tree        the paths of reads and inputs; only a result of `read_manifest` has them
    """

    spec: CallSpec
    guards: Guards = Guards()
    gears: Gears | None = None
    tensors: tuple[StoredTensor, ...] = ()
    packed: tuple[PackedBuffers, ...] = ()
    objects: tuple[tuple[str, int, int], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ingredients: Mapping[str, str] = field(default_factory=dict[str, str])
    tree: Tree = field(default_factory=Tree, compare=False)

    def text(self) -> str:
        """Return the manifest as JSON, a line for each field. Other dataclasses are rows of their
        fields, dims are texts.

        `places` has each step of all paths once, as [PLACE BEFORE IT, STEP...]; guards and inputs
        have the number of their place. `texts` has the values of guards.
        """
        tree, texts = Tree(), dict[str, int]()

        def row(value: Any) -> Any:
            if isinstance(value, Expr):
                return str(value)
            if isinstance(value, Guard):
                found = texts.setdefault(value.found, len(texts))
                place, other = tree.number(value.path), tree.number(value.other)
                return [value.kind, place, found, value.name, other]
            parts = [getattr(value, name) for name in kept_fields(type(value))]
            if isinstance(value, (Source, Effect, Root)):
                parts[0] = tree.number(value.path)
            return parts

        lines = {
            name: json.dumps(getattr(self, name), default=row) for name in kept_fields(Manifest)
        }
        lines["places"] = json.dumps([[before, *step] for before, step in tree.rows])
        lines |= {"texts": json.dumps([*texts]), "format": str(FORMAT)}
        return "{" + ",\n ".join(f'"{name}": {lines[name]}' for name in sorted(lines)) + "}"


def read_manifest(text: str | bytes) -> Manifest:
    """Parse the result of `Manifest.text`, checking the type of each value and every number of a
    place, text, tensor, input or parameter. StoreError for any other text."""
    try:
        data = of_type(json.loads(text), dict)
        if data.get("format") != FORMAT:
            raise StoreError(
                f"it is of the format {data.get('format', 1)!r:.20}, and this kernelmill reads "
                f"{FORMAT}"
            )
        tree, texts = read_places(data["places"]), maker(tuple[str, ...], {})(data["texts"])
        own = _makers(tree.paths(), texts)
        makers = {name: maker(kind, own) for name, kind in kept_fields(Manifest).items()}
        manifest = Manifest(**{name: make(data[name]) for name, make in makers.items()}, tree=tree)
        _check_numbers(manifest)
        return manifest
    except UNFIT as error:
        raise StoreError(f"it has no manifest of a program: {error!r}") from error


def _check_numbers(manifest: Manifest) -> None:
    """Raise ValueError for a number or name that refers to nothing in the manifest."""
    spec, gears, count = manifest.spec, manifest.gears, len(manifest.tensors)
    tensors = [number for packed in manifest.packed for number in packed.sources]
    roots = [step for before, step in manifest.tree.rows if before < 0]
    tensors += [step[1] for step in roots if step[0] == "tensor"]
    inputs = [] if gears is None else [*gears.kept, *(number for number, _ in gears.sources)]
    names = {step[1] for step in roots if step[0] == "argument"} - {*spec.names}
    wrong = [*names, *(n for n in tensors if not 0 <= n < count)]
    wrong += [n for n in inputs if gears and not 0 <= n < gears.count]
    wrong += [e.key for e in spec.effects if e.kind == "attribute" and type(e.key) is not str]
    if wrong:
        raise ValueError(f"there is no {wrong[0]!r:.60}")


def _makers(paths: Sequence[Path], texts: Sequence[str]) -> Mapping[Any, Callable[[Any], Any]]:
    """Return the constructors of the dataclasses that hold numbers of paths and texts. A guard that
    compares no second path has -1 there."""

    def guard(row: Any) -> Guard:
        kind, place, found, name, other = row
        if not type(kind) is type(name) is str:
            raise TypeError(f"no guard: {row!r:.60}")
        text, compared = _at(texts, found), () if other == -1 else _at(paths, other)
        return Guard(kind, _at(paths, place), text, name, compared, place, other)

    def placed(kind: Any) -> Callable[[Any], Any]:
        makers = [maker(part, {Shape: read_shape}) for part in kept_fields(kind).values()]

        def make(row: Any) -> Any:
            place, *rest = of_type(row, list)
            return kind(_at(paths, place), *made_of(makers[1:], rest), place=place)

        return make

    return {
        Guard: guard, Source: placed(Source), Effect: placed(Effect), Root: placed(Root),
        Shape: read_shape, Any: _option,
    }  # fmt: skip


def _at(values: Sequence[Any], number: Any) -> Any:
    """Return the element of this number. ValueError for a number out of range."""
    if type(number) is not int or not 0 <= number < len(values):
        raise ValueError(f"no number of one of {len(values)}: {number!r:.40}")
    return values[number]


def _option(value: Any) -> Any:
    """Check and return an option: data, or a list or table of data."""
    parts = value.values() if isinstance(value, dict) else value
    for part in parts if isinstance(value, (dict, list)) else (value,):
        maker(DATA, {})(part)
    return value


Make = Callable[[Any], Any]

DATA = bool | int | float | str | None

UNFIT = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors raised for data in a file that is malformed."""

_LARGEST = 1 << 63


def maker(kind: Any, own: Mapping[Any, Make]) -> Make:
    """Return a function that makes values of a type, and raises one of `UNFIT` for others. `own`
    are makers of the types that the caller makes itself."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in own:
        return own[kind]
    if kind is int:
        return _integer
    if kind is Expr:
        return _dim
    if origin is Annotated:
        return _checked(maker(args[0], own), *args[1:])
    if origin is Mapping:
        make = maker(args[1], own)
        return lambda value: {name: make(part) for name, part in of_type(value, dict).items()}
    if origin is tuple and args[-1] is Ellipsis:
        make = maker(args[0], own)
        return lambda rows: tuple([make(row) for row in of_type(rows, list)])
    if origin is tuple or is_dataclass(kind):
        makers = [maker(part, own) for part in args or kept_fields(kind).values()]
        whole: Any = kind if is_dataclass(kind) else lambda *parts: parts
        return lambda row: whole(*made_of(makers, row))
    if origin in (Union, UnionType):
        return _first([maker(part, own) for part in args]) if kind != DATA else _data
    return lambda value: of_type(value, kind)


def kept_fields(kind: Any) -> dict[str, Any]:
    """Return the types of the fields that a dataclass is saved with: those it is compared by."""
    types = get_type_hints(kind, include_extras=True)
    return {each.name: types[each.name] for each in fields(kind) if each.compare}


def of_type(value: Any, *kinds: type) -> Any:
    """Return the value. TypeError where its class is none of these."""
    if type(value) not in kinds:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"expected {names}, and there is {value!r:.60}")
    return value


def made_of(makers: Sequence[Make], row: Any) -> list[Any]:
    """Return the values made from the parts of a list, which has as many parts as makers."""
    return [make(part) for make, part in zip(makers, of_type(row, list), strict=True)]


def _first(makers: Sequence[Make]) -> Make:
    def made(value: Any) -> Any:
        for make in makers[:-1]:
            try:
                return make(value)
            except TypeError:
                continue
        return makers[-1](value)

    return made


def _checked(make: Make, check: Callable[[Any], Any]) -> Make:
    def made(value: Any) -> Any:
        if check(found := make(value)) is False:
            raise ValueError(f"there cannot be {value!r:.60}")
        return found

    return made


def _data(value: Any) -> Any:
    return of_type(value, bool, int, float, str, NoneType)


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected int, and there is {value!r:.60}")
    if not -_LARGEST <= value < _LARGEST:
        raise ValueError(f"out of range: {value!r:.40}")
    return value


def _dim(value: Any) -> Dim:
    names = re.findall(r"[^\W\d]\w*", of_type(value, str))
    return parse(value, {name: sym(name) for name in names})


Shape = Annotated[Mapping[str, Any], "a shape"]

DEEPEST = 100
"""Limit on nested containers. Each is built by a few nested calls."""

_Number = Annotated[int, lambda number: number >= 0]
_Exact = Annotated[str, float.fromhex]

_GRAMMAR: Mapping[tuple[str, ...], tuple[Any, ...]] = {
    ("result",): (_Number,),
    ("item",): (_Number,),
    ("input",): (Annotated[tuple[tuple[DATA, ...], ...], check_path],),
    ("constant",): (DATA,),
    ("constant", "float"): (_Exact, bool),
    ("dtype",): (str,),
    ("device",): (str,),
    ("list",): (tuple[Shape, ...],),
    ("tuple",): (tuple[Shape, ...],),
    ("dict",): (tuple[tuple[DATA, Shape], ...],),
    ("dict", "ordered"): (tuple[tuple[DATA, Shape], ...], bool),
    ("named", "names", "items"): (str, tuple[str, ...], tuple[Shape, ...]),
    ("object", "fields"): (str, tuple[tuple[str, Shape], ...]),
}
"""The types of the parts of a shape, by its names."""


def shapes_in(value: Any) -> Iterator[Shape]:
    """Yield a shape and all those inside of it, each checked. TypeError or ValueError for a value
    that is none, or nests too deep."""
    level, depth = [value], 0
    while level:
        if depth > DEEPEST:
            raise ValueError(f"what it returns nests deeper than {DEEPEST}")
        inner: list[Any] = []
        for shape in level:
            kinds = _GRAMMAR.get(tuple(of_type(shape, dict)))
            if kinds is None:
                raise ValueError(f"it returns {shape!r:.60}")
            for kind, part in zip(kinds, shape.values(), strict=True):
                maker(kind, {Shape: inner.append})(part)
            yield shape
        level, depth = inner, depth + 1


def read_shape(value: Any) -> Shape:
    """Check a value as a whole and return it."""
    shape, *_ = shapes_in(value)
    return shape


def results_in(shape: Shape) -> int:
    """Return the number of results that a shape needs from the program."""
    return 1 + max(part.get("result", part.get("item", -1)) for part in shapes_in(shape))
