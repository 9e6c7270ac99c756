"""Side effects of a program: attributes, elements and entries of the objects that a call passes,
set once the program has run.

The value of an effect is a shape (results.py) of one of these kinds: a result of the program, an
object at a path of the call, data, or a tuple of them. All are read before the first is set, so
`a.x, a.y = a.y, a.x` is two effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import setitem
from typing import Any

from kernelmill.artifact.manifest import CallSpec, Manifest
from kernelmill.artifact.paths import MISSING, Path, Tree
from kernelmill.artifact.results import Build, Find, build_of
from kernelmill.artifact.shapes import Shape

_INTO = ("attribute", "field", "item", "key", "nth")
"""Steps into an object."""


def is_new_value(shape: Shape) -> bool:
    """Return whether a shape is built from values that did not exist before the call."""
    if "tuple" in shape:
        return all(map(is_new_value, shape["tuple"]))
    return not shape.keys().isdisjoint(("result", "item", "constant", "dtype", "device"))


def build_all(spec: CallSpec, find: Find) -> Build:
    """Return a builder of a call's result; with effects, of that and a tuple of their values."""
    returned = build_of(spec.result, find)
    if not spec.effects:
        return returned
    its = build_of({"tuple": [effect.value for effect in spec.effects]}, find)
    return lambda results, given: (returned(results, given), its(results, given))


def plain(path: Path) -> Path:
    """What an object's __dict__ holds under a name is its attribute."""
    return tuple(("attribute", *step[1:]) if step[0] == "field" else step for step in path)


def looked_into(tree: Tree) -> dict[Path, int]:
    """The places that the tree goes on from into an object, each once, by their paths."""
    into = {before for before, (kind, *_) in tree.rows if before >= 0 and kind in _INTO}
    paths = tree.paths()
    return {plain(paths[place]): place for place in sorted(into)}


class Effects:
    """The effects of one program, where it has some. `changed` are the places of the objects that
    they set something in, `others` those that are looked into besides."""

    def __init__(self, manifest: Manifest, numbers: Mapping[int, int]) -> None:
        """`numbers` has, for places, where their values stand among those of a call."""
        spec, tree = manifest.spec, manifest.tree
        changed = {plain(effect.path): effect.place for effect in spec.effects}
        into = looked_into(tree)
        own = {path: place for path, place in into.items() if path[0][0] == "argument"}
        self.changed: Sequence[int] = list(changed.values())
        self.others = [place for path, place in own.items() if path not in changed]
        self._outside: frozenset[int] = frozenset()
        self._numbers = [numbers[place] for place in (*self.changed, *self.others)]
        order = list(changed)
        self._sets = [
            (PUTS[effect.kind], order.index(plain(effect.path)), effect.key)
            for effect in spec.effects
        ]

    def keep_apart_from(self, owned: frozenset[int]) -> None:
        """The ids of all objects outside of the arguments that the program depends on."""
        self._outside = owned

    def owners(self, found: Sequence[Any]) -> list[Any] | None:
        """Return the objects of this call that are changed. None where one is missing, or where two
        are one object: what is read of one would then be what is set of the other."""
        owners = [found[number] for number in self._numbers]
        count = len(self.changed)
        changed = {id(owner) for owner in owners[:count]}
        if len(changed) < count or id(MISSING) in changed:
            return None
        apart = changed.isdisjoint(map(id, owners[count:])) and self.are_apart(owners[:count])
        return owners[:count] if apart else None

    def are_apart(self, owners: Sequence[Any]) -> bool:
        """Whether none of these is looked into outside of the arguments, too."""
        return self._outside.isdisjoint(map(id, owners))

    def apply(self, owners: Sequence[Any], made: tuple[Any, Sequence[Any]]) -> Any:
        """Set the values made by `build_all`, and return the result of the call."""
        returned, values = made
        for (put, number, key), value in zip(self._sets, values, strict=True):
            put(owners[number], key, value)
        return returned


_Put = Callable[[Any, Any, Any], None]


PUTS: dict[str, _Put] = {
    "attribute": setattr, "item": setitem, "append": lambda owner, _, value: owner.append(value),
}  # fmt: skip
"""Setter of each kind of effect."""
