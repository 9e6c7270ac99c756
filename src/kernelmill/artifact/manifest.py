"""The document that says what an entry is: how it is called, what it depends on, what it holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from kernelmill.artifact.code import CodeUse
from kernelmill.artifact.paths import Path, Tree
from kernelmill.artifact.reads import Read
from kernelmill.core.errors import StoreError

FORMAT = 4
"""Raised when an entry of an older kernelmill could be misunderstood."""


@dataclass(frozen=True)
class ConstantTensor:
    """A tensor that the traced code held: its bytes begin at `offset` of the .constants file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


@dataclass(frozen=True)
class Gears:
    """How one of several plans is chosen: by integers read from arguments (axis -1) or their sizes.

    `table` maps those to plans by number; `kept` of `count` arguments are those that they take.
    `otherwise` is the number of the plan for all other sizes, -1 where there is none; `padding` is
    how calls of other sizes are padded to a gear, if they are (artifact/padding.py).
    """

    sources: tuple[tuple[int, int], ...]
    symbols: tuple[str, ...]
    table: tuple[tuple[tuple[int, ...], int], ...]
    kept: tuple[int, ...]
    count: int
    otherwise: int
    padding: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Manifest:
    """All of an entry but the texts of plans, graphs and kernels.

    function    "module.Class.method"
    parameters  names of the function's parameters, without self
    inputs      where each argument of the program is found; ("size", PATH, AXIS) for an integer
                that is a size
    result      how results become what the function returns (results.py)
    reads, code what the trace depended on
    conditions  on sizes besides what the plan says: ("==", "s0 % 8", "0")
    exact       sizes at which alone the program is right, by symbol
    names       names that the traced code uses: a class is compared by those of its methods
    state       torch's global settings by name
    packages    versions of the installed packages that the traced code is of, by name
    ingredients what the folder of the entry stands for, by name
    plans       how many plans the .plan file has
    updates     whether arguments are written to
    tree        the paths of reads and inputs, which have the places `input_places` there; only
                what `read_manifest` gives has them
    """

    function: str
    parameters: tuple[str, ...]
    inputs: tuple[Any, ...]
    result: Any
    reads: tuple[Read, ...]
    code: tuple[CodeUse, ...]
    conditions: tuple[tuple[str, str, str], ...]
    exact: Mapping[str, int]
    names: tuple[str, ...]
    state: Mapping[str, str]
    ingredients: Mapping[str, str]
    plans: int
    constants: tuple[ConstantTensor, ...] = ()
    gears: Gears | None = None
    updates: bool = False
    packages: Mapping[str, str] = field(default_factory=dict[str, str])
    format: int = FORMAT

    tree: Tree = field(default_factory=Tree, compare=False)
    input_places: tuple[int, ...] = field(default=(), compare=False)

    def text(self) -> str:
        """The manifest as JSON, a line for each field.

        `places` has each step of all paths once, as [PLACE BEFORE IT, STEP...]; reads and inputs
        say the number of their place. `texts` has what reads found.
        """
        tree, texts = Tree(), dict[str, int]()
        reads = [
            [
                read.kind,
                tree.number(read.path),
                texts.setdefault(read.found, len(texts)),
                read.name,
                tree.number(read.other) if read.other else -1,
            ]
            for read in self.reads
        ]
        inputs = [
            [tree.number(path_of(entry)), entry[2] if entry[0] == "size" else -1]
            for entry in self.inputs
        ]
        lists = ("reads", "inputs", "code", "constants", "gears", "tree", "input_places")
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in lists}
        data = {
            **plain,
            "code": [asdict(use) for use in self.code],
            "constants": [asdict(constant) for constant in self.constants],
            "gears": None if self.gears is None else asdict(self.gears),
            "places": [[before, *step] for before, step in tree.rows],
            "texts": list(texts),
            "reads": reads,
            "inputs": inputs,
        }
        lines = (f"{json.dumps(name)}: {json.dumps(data[name])}" for name in sorted(data))
        return "{" + ",\n ".join(lines) + "}"


def read_manifest(text: str | bytes) -> Manifest:
    """The inverse of `Manifest.text`. StoreError when it is of another format."""
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise StoreError(f"an entry of format {data['format']}, not {FORMAT}")
        gears, found = data["gears"], data.pop("texts")
        tree = Tree([(row[0], tuple(row[1:])) for row in data.pop("places")])
        paths = [*tree.paths(), ()]
        inputs = [(paths[place], axis) for place, axis in data["inputs"]]
        changed: dict[str, Any] = {
            "parameters": tuple(data["parameters"]),
            "inputs": tuple(path if axis < 0 else ("size", path, axis) for path, axis in inputs),
            "reads": tuple(
                Read(kind, paths[place], found[number], name, paths[other], place, other)
                for kind, place, number, name, other in data["reads"]
            ),
            "code": tuple(CodeUse(**use) for use in data["code"]),
            "conditions": frozen(data["conditions"]),
            "names": tuple(data["names"]),
            "constants": tuple(
                ConstantTensor(**{**c, "shape": frozen(c["shape"])}) for c in data["constants"]
            ),
            "gears": None if gears is None else Gears(**{k: frozen(v) for k, v in gears.items()}),
            "tree": tree,
            "input_places": tuple(place for place, _ in data["inputs"]),
        }
        return Manifest(**{**data, **changed})
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"no manifest of an entry: {error!r}") from error


def frozen(value: Any) -> Any:
    """JSON's lists as tuples, all the way down."""
    return tuple(frozen(part) for part in value) if isinstance(value, list) else value


def path_of(value: Any) -> Path:
    """The path in an entry of `inputs`."""
    return value[1] if value[0] == "size" else value
