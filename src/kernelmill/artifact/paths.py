"""Access paths of values that a traced function read: a root and the steps from it, as data.

A path is a JSON list. Its root is one of

    ["self"]                    the module whose method was traced
    ["argument", NAME]          a parameter of the traced function
    ["free", NAME]              a variable of a function around it
    ["global", MODULE, NAME]    a name in an imported module
    ["module", NAME]            that module itself
    ["tensor", N]               a tensor that the artifact holds

and each step one of

    ["attribute", NAME]         o.NAME
    ["item", KEY]               o[KEY]
    ["bytes", TEXT]             o[TEXT as bytes], as os.environ has names
    ["key", N], ["nth", N]      the key number N of a dict, and the value under that key
    ["slice", START, STOP, STEP]
    ["field", NAME]             what o.__dict__ holds under NAME
    ["type"], ["namespace"]     its class; the __dict__ of a class
    ["context"], ["context", DEFAULT]   what a ContextVar holds, or else DEFAULT
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from itertools import product
from types import CellType, NoneType
from typing import Any, NamedTuple

from kernelmill.core.dataclass import dataclass

Path = tuple[tuple[Any, ...], ...]
"""The root, then the steps."""


def is_outside(path: Path) -> bool:
    """Return whether a path starts neither in a call nor in an artifact."""
    return path[0][0] not in ("argument", "tensor")


class MissingPath(Exception):
    """A path that leads nowhere now; the text is the path up to its end."""


@dataclass
class Roots:
    """Values of the roots of paths: a module or None, arguments, cells of free variables,
    tensors."""

    owner: object
    arguments: Mapping[str, Any]
    cells: Mapping[str, CellType]
    tensors: Sequence[Any] = ()

    def find(self, root: Sequence[Any]) -> Any:
        """Return the value of a root. MissingPath when there is none."""
        kind, *names = root
        try:
            if kind == "self":
                return self.owner
            if kind in ("module", "global"):
                module = sys.modules[names[0]]
                return module if kind == "module" else vars(module)[names[1]]
            if kind == "free":
                return self.cells[names[0]].cell_contents
            return {"argument": self.arguments, "tensor": self.tensors}[kind][names[0]]
        except (IndexError, KeyError, ValueError) as error:  # the last of a cell without a value
            raise MissingPath(text_of((tuple(root),))) from error


class _Step(NamedTuple):
    """A kind of step: the function that takes it from a value and its operands, its text, and the
    types that each operand can have."""

    make: Callable[..., Any]
    text: str
    follows: tuple[Any, ...] = ()


CONTEXT = "context"
"""The one step whose value may differ between threads and tasks."""


def _under(value: Any, key: Any) -> Any:
    """Return the value of a container under a key. Tensors take text for letters, and warn; a
    defaultdict adds missing keys."""
    if isinstance(value, dict):
        found: Any = dict.get(value, key, MISSING)
        if found is MISSING:
            raise KeyError(key)
        return found
    if isinstance(key, str) and not hasattr(value, "keys"):
        raise KeyError(key)
    return value[key]


def as_bytes(text: str) -> bytes:
    """Return the bytes that a step of a path has as text."""
    return text.encode("latin-1")


_NAME, _NUMBER, _BOUND = (str,), (int,), (int, NoneType)
_KEY = (str, int, bool, float, NoneType)

_STEPS: Mapping[str, _Step] = {
    "attribute": _Step(getattr, "{}.{}", (_NAME,)),
    "item": _Step(_under, "{}[{!r}]", (_KEY,)),
    "bytes": _Step(lambda o, text: _under(o, as_bytes(text)), "{}[{!r}]", (_NAME,)),
    "key": _Step(lambda o, number: list(o)[number], "{}[{!r}]", (_NUMBER,)),
    "nth": _Step(lambda o, number: list(o.values())[number], "{}[{!r}]", (_NUMBER,)),
    "slice": _Step(lambda o, start, stop, step: o[start:stop:step], "{}[{}:{}:{}]", (_BOUND,) * 3),
    "field": _Step(lambda o, name: vars(o)[name], "{}.{}", (_NAME,)),
    "type": _Step(type, "type({})"),
    "namespace": _Step(vars, "vars({})"),
    CONTEXT: _Step(ContextVar.get, "{}.get()", (_KEY,)),
}

_ROOTS = {
    "self": (), "argument": (_NAME,), "free": (_NAME,), "global": (_NAME, _NAME),
    "module": (_NAME,), "tensor": (_NUMBER,),
}  # fmt: skip


def _signatures(kinds: Mapping[str, tuple[Any, ...]]) -> frozenset[tuple[Any, ...]]:
    return frozenset((kind, *types) for kind, parts in kinds.items() for types in product(*parts))


_OF_ROOTS = _signatures(_ROOTS)
_OF_STEPS = _signatures({kind: step.follows for kind, step in _STEPS.items()}) | {(CONTEXT,)}
"""The name of each root and step, with the types of its operands."""


def check_step(step: Sequence[Any], is_root: bool) -> None:
    """Raise TypeError or ValueError for a step that a path from a file cannot have there."""
    kind, *parts = step
    if (kind, *map(type, parts)) not in (_OF_ROOTS if is_root else _OF_STEPS):
        raise ValueError(f"no step of a path: {[*step]!r:.60}")


def check_path(path: Sequence[Sequence[Any]]) -> None:
    """Check every step of a path, which has one at least, as `check_step` does."""
    check_step(path[0], is_root=True)
    for step in path[1:]:
        check_step(step, is_root=False)


_NOTHING_THERE = (AttributeError, LookupError, TypeError)
"""Errors of a step that leads nowhere."""


def step_into(value: Any, step: Sequence[Any]) -> Any:
    """Take one step. Raises the error of the lookup when it leads nowhere."""
    return _STEPS[step[0]].make(value, *step[1:])


def follow(path: Path, roots: Roots) -> Any:
    """Return the value at the end of a path. MissingPath names the part that leads nowhere."""
    value = roots.find(path[0])
    for number, step in enumerate(path[1:], 2):
        try:
            value = step_into(value, step)
        except _NOTHING_THERE as error:
            raise MissingPath(text_of(path[:number])) from error
    return value


def find_at(path: Path, roots: Roots) -> Any:
    """Return the value at the end of a path; MISSING when it leads nowhere."""
    try:
        return follow(path, roots)
    except MissingPath:
        return MISSING


def path_of_class(kind: type) -> Path | None:
    """Return the path by which other processes find a class; None if its name does not find it."""
    first, *inner = kind.__qualname__.split(".")
    root = ("global", kind.__module__, first)
    path = (root, *(("attribute", name) for name in inner))
    try:
        return path if follow(path, Roots(None, {}, {})) is kind else None
    except MissingPath:
        return None


def read_places(rows: Any) -> Tree:
    """Return the tree of these rows, lists [PLACE BEFORE IT, STEP...]. TypeError or ValueError for
    anything else."""
    found: list[tuple[int, tuple[Any, ...]]] = []
    for before, *step in rows:
        if type(before) is not int or not -1 <= before < len(found):
            raise ValueError(f"no place in front of place {len(found)}: {before!r:.40}")
        check_step(step, before < 0)
        found.append((before, tuple(step)))
    return Tree(found)


MISSING = MissingPath()
"""The value in `Tree.values` of a path that leads nowhere."""


class Tree:
    """The paths of an entry as one tree, so that shared steps are taken once.

    `rows` has, for each place, the number of the place before it (-1 for a root) and the step from
    there; the place before it comes earlier.
    """

    def __init__(self, rows: Sequence[tuple[int, tuple[Any, ...]]] = ()) -> None:
        self.rows = list(rows)
        self._numbers: dict[tuple[int, str], int] = {}

    def number(self, path: Path) -> int:
        """Return the place of a path, adding it if it is new."""
        place = -1
        for step in path:
            # True is 1 as a key of a dict, and no step is another's text.
            key = place, repr(step)
            if key not in self._numbers:
                self._numbers[key] = len(self.rows)
                self.rows.append((place, step))
            place = self._numbers[key]
        return place

    def paths(self) -> list[Path]:
        """Return the path of each place."""
        found: list[Path] = []
        for before, step in self.rows:
            found.append((step,) if before < 0 else (*found[before], step))
        return found

    def values(self, roots: Roots) -> list[Any]:
        """Return the current value of each place; MISSING where a path leads nowhere."""
        found: list[Any] = []
        for before, step in self.rows:
            found.append(find_at((step,), roots) if before < 0 else _taken(found[before], step))
        return found


def _taken(value: Any, step: Sequence[Any]) -> Any:
    """Return the value behind a step; MISSING where it leads nowhere, or from nowhere."""
    try:
        return value if value is MISSING else step_into(value, step)
    except _NOTHING_THERE:
        return MISSING


class ArgumentReader:
    """A reader of the places inside of arguments, at each call, from a value for each of the
    parameters `names`. `numbers` maps places to positions in its result."""

    def __init__(self, tree: Tree, names: Sequence[str]) -> None:
        self.numbers: dict[int, int] = {}
        self._steps: list[tuple[int, tuple[Any, ...]]] = []
        for place, (before, step) in enumerate(tree.rows):
            if before in self.numbers:
                self.numbers[place] = len(names) + len(self._steps)
                self._steps.append((self.numbers[before], step))
            elif before < 0 and step[0] == "argument":
                self.numbers[place] = names.index(step[1])

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """Return the values, then those inside of them; MISSING where a path leads nowhere."""
        found = list(values)
        for before, step in self._steps:
            found.append(_taken(found[before], step))
        return found


_BY_NAME = ("argument", "kwargs")


def name_of_argument(path: Path) -> str:
    """Return the name of a value inside of the arguments for error messages; inside of `kwargs`,
    which wrappers use for keyword arguments, the name starts with the key.

    >>> name_of_argument((("argument", "pair"), ("item", 1), ("item", "q")))
    'pair.1.q'
    >>> name_of_argument((("argument", "kwargs"), ("item", "input_ids")))
    'input_ids'
    """
    if path[0] == _BY_NAME and len(path) > 1 and type(path[1][-1]) is str:
        path = (("argument", path[1][-1]), *path[2:])
    plain = all(kind in ("argument", "item", "attribute", "field") for kind, *_ in path)
    return ".".join(str(step[-1]) for step in path) if plain else text_of(path)


def text_of(path: Path) -> str:
    """Return a path as Python code would have it.

    >>> text_of((("self",), ("attribute", "layers"), ("item", 0)))
    'self.layers[0]'
    """
    kind, *names = path[0]
    text = "self" if kind == "self" else ".".join(map(str, names))
    if kind == "tensor":
        text = f"tensor {text}"
    for kind, *parts in path[1:]:
        text = _STEPS[kind].text.format(text, *parts)
    return _TABLES.sub(lambda match: "." + match[1].strip("'"), text)


_TABLES = re.compile(r"\._(?:modules|parameters|buffers)\[([^]]*)\]")
"""A step into a table of a module, which user code writes as an attribute."""
