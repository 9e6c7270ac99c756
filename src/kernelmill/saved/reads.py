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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelmill.saved.fingerprint import class_text, fingerprint, shape_of
from kernelmill.saved.paths import Gone, Path, Roots, follow, text_of


@dataclass(frozen=True)
class Read:
    """See the file's docstring. `found` is what was found, as text."""

    kind: str
    path: Path
    found: str = ""
    name: str = ""
    other: Path = ()

    @property
    def of_argument(self) -> bool:
        """Whether it can be different in each call."""
        return self.path[0][0] == "argument"

    def now(self, roots: Roots, names: frozenset[str]) -> str:
        """What is there now. Gone when there is nothing."""
        value = follow(self.path, roots)
        if self.kind == "value":
            return fingerprint(value)
        if self.kind == "class":
            return class_text(type(value), names)
        if self.kind == "shape":
            return shape_of(value)
        if self.kind == "absent":
            return str(self.name not in getattr(value, "__dict__", {}))
        if self.kind == "contains":
            return str(self.name in value)
        if self.kind == "has":
            return str(hasattr(value, self.name))
        return str(value is follow(self.other, roots))

    def text(self) -> str:
        """For people."""
        name = f".{self.name}" if self.name else ""
        same = f" and {text_of(self.other)}" if self.other else ""
        return f"{text_of(self.path)}{name}{same}"


def changes(reads: Sequence[Read], roots: Roots, names: frozenset[str]) -> Iterator[str]:
    """What is not as it was found, in words."""
    for read in reads:
        try:
            now = read.now(roots, names)
        except Gone as gone:
            yield f"{gone} is not there"
            continue
        if now != read.found:
            yield f"{read.text()}: was {read.found}, is {now}"
