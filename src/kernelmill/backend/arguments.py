"""Names and roles of a graph's arguments, from the sources of Dynamo and AOTAutograd."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from torch import fx

from kernelmill.core.dtype import InputRole
from kernelmill.torch_internals.autograd import position_of

_ITEM = re.compile(r"\[(?:'([^']*)'|\"([^\"]*)\"|(\w+))\]")
_CONTAINER = re.compile(r"^\.\w+\.__self__\b\.?|\b_(?:modules|parameters|buffers)\b\.?")


def readable(source: str) -> str:
    """Return a Dynamo source as the user would write it.

    >>> readable("L['self']._modules['layer']._modules['0']._parameters['weight']")
    'layer.0.weight'
    >>> readable("L['input_ids']")
    'input_ids'
    >>> readable("L['kwargs']['input_ids']")
    'input_ids'
    >>> readable("L['fn'].__self__._modules['0']._parameters['weight']")
    '0.weight'
    """
    text = source.removeprefix("L").removeprefix("G")
    text = _ITEM.sub(lambda match: "." + (match[1] or match[2] or match[3] or ""), text)
    text = _CONTAINER.sub("", text).strip(".")
    text = re.sub(r"\.{2,}", ".", text)
    return text.removeprefix("self.").removeprefix("kwargs.")


def names_of(sources: Sequence[str]) -> list[str]:
    """Return a unique name for people for each of Dynamo's sources: as the user would write it or,
    where another is written like that, as Dynamo does.

    >>> names_of(["L['x']", "L['self']._buffers['x']", "L['y']"])
    ["L['x']", "L['self']._buffers['x']", 'y']
    """
    names = list(map(readable, sources))
    often = Counter(names)
    return [
        source if often[name] > 1 or not name else name
        for name, source in zip(names, sources, strict=True)
    ]


def argument_names(placeholders: Sequence[fx.Node], sources: Sequence[str]) -> list[str]:
    """Return a name for people for each argument of AOTAutograd's graph."""
    positions, names = _positions(placeholders, len(sources)), names_of(sources)
    pairs = zip(placeholders, positions, strict=True)
    return [node.name if place is None else names[place] for node, place in pairs]


def argument_roles(
    placeholders: Sequence[fx.Node], sources: Sequence[str], static: Sequence[int]
) -> list[InputRole]:
    """Return the roles of arguments: parameters and buffers are those at `static`."""
    roles, marked = [InputRole.USER] * len(placeholders), set(static)
    for number, place in enumerate(_positions(placeholders, len(sources))):
        if number in marked:
            buffer = place is not None and "_buffers" in sources[place]
            roles[number] = InputRole.BUFFER if buffer else InputRole.PARAM
    return roles


def in_order(placeholders: Sequence[fx.Node], count: int) -> bool:
    """Return whether AOTAutograd's graph takes Dynamo's `count` arguments, all and unchanged."""
    return _positions(placeholders, count) == list(range(count))


def _positions(placeholders: Sequence[fx.Node], count: int) -> list[int | None]:
    """Return each argument's position among Dynamo's, None if it is not one of them."""
    found = map(position_of, placeholders)
    return [place if place is not None and place < count else None for place in found]
