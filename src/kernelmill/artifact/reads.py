"""What a trace read besides the contents of tensors, and whether it is still so.

kinds   "value"    the whole value: data, or the name of a class or function
        "class"    its class, with how that finds its methods
        "shape"    the class of a container, and its length or keys
        "absent"   the instance holds nothing of this name ("name" of the read)
        "contains" whether "name" is in it
        "has"      whether hasattr says so (for "name")
        "same"     the value at "other" is the same object
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelmill.artifact.fingerprint import class_text, fingerprint, shape_of
from kernelmill.artifact.paths import GONE, Path, Roots, follow, text_of

Classes = dict[type, str]
"""Texts of classes that were made already."""


@dataclass(unsafe_hash=True)  # a frozen one takes three times as long to make, of thousands
class Read:
    """See the file's docstring; never changes. `found` is what was found, as text; `place` and
    `other_place` are the numbers of the paths in the tree of the manifest that holds the read."""

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

    def now(self, roots: Roots, names: frozenset[str]) -> str:
        """What is there now. Gone when there is nothing."""
        other = follow(self.other, roots) if self.kind == "same" else None
        return self.seen(follow(self.path, roots), other, names, {})

    def seen(self, value: Any, other: Any, names: frozenset[str], classes: Classes) -> str:
        """What these values at `path` and `other` are, as text to compare with `found`."""
        if self.kind == "value":
            return fingerprint(value)
        if self.kind == "class":
            kind: type = type(value)
            if kind not in classes:
                classes[kind] = class_text(kind, names)
            return classes[kind]
        if self.kind == "shape":
            return shape_of(value)
        if self.kind == "absent":
            return str(self.name not in getattr(value, "__dict__", {}))
        if self.kind == "contains":
            return str(self.name in value)
        if self.kind == "has":
            return str(hasattr(value, self.name))
        return str(value is other)

    def text(self) -> str:
        """For people."""
        name = f".{self.name}" if self.name else ""
        same = f" and {text_of(self.other)}" if self.other else ""
        return f"{text_of(self.path)}{name}{same}"


def changes(reads: Iterable[Read], values: Sequence[Any], names: frozenset[str]) -> Iterator[str]:
    """What is not as it was found, in words; `values` are those of the tree."""
    classes: Classes = {}
    for read in reads:
        value, other = values[read.place], values[read.other_place] if read.other else None
        if value is GONE or other is GONE:
            yield f"{text_of(read.path if value is GONE else read.other)} is not there"
            continue
        now = read.seen(value, other, names, classes)
        if now != read.found:
            yield f"{read.text()}: was {read.found}, is {now}"
