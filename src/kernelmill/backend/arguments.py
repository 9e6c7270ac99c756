"""Names and roles of a graph's arguments, from what Dynamo and AOTAutograd know of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from torch import fx

from kernelmill.core.roles import InputRole

_ITEM = re.compile(r"\[(?:'([^']*)'|\"([^\"]*)\"|(\w+))\]")
_CONTAINER = re.compile(r"\b_(?:modules|parameters|buffers)\b\.?")


def readable(source: str) -> str:
    """A Dynamo source as the user would write it.

    >>> readable("L['self']._modules['layer']._modules['0']._parameters['weight']")
    'layer.0.weight'
    >>> readable("L['input_ids']")
    'input_ids'
    >>> readable("L['kwargs']['input_ids']")
    'input_ids'
    """
    text = source.removeprefix("L").removeprefix("G")
    text = _ITEM.sub(lambda match: "." + next(part for part in match.groups() if part), text)
    text = _CONTAINER.sub("", text).strip(".")
    text = re.sub(r"\.{2,}", ".", text)
    return text.removeprefix("self.").removeprefix("kwargs.")


def dynamo_sources(gm: fx.GraphModule) -> list[str]:
    """The source of each placeholder of Dynamo's graph; its own name where Dynamo gives none."""
    found: list[str] = []
    for node in gm.graph.find_nodes(op="placeholder"):
        source = getattr(node, "_dynamo_source", None)
        found.append(str(node.target) if source is None else str(source.name))
    return found


def argument_names(placeholders: Sequence[fx.Node], sources: Sequence[str]) -> list[str]:
    """A name for people for each argument of AOTAutograd's graph."""
    return [
        node.name if index is None else readable(sources[index])
        for node, index in ((node, _position(node, len(sources))) for node in placeholders)
    ]


def argument_roles(
    placeholders: Sequence[fx.Node], sources: Sequence[str], static: Sequence[int]
) -> list[InputRole]:
    """Parameters and buffers are the static arguments among those at `static`."""
    roles = [InputRole.USER] * len(placeholders)
    for position in static:
        if position < len(placeholders):
            index = _position(placeholders[position], len(sources))
            buffer = index is not None and "_buffers" in sources[index]
            roles[position] = InputRole.BUFFER if buffer else InputRole.PARAM
    return roles


def shared_memory(placeholders: Sequence[fx.Node]) -> list[fx.Node]:
    """The arguments that stand for the memory below several of Dynamo's arguments.

    AOTAutograd makes one where arguments overlap and one of them is written to. How large it is
    depends on what the caller cut them from, so no size that was traced can be relied on.
    """
    made = ("SyntheticBaseAOTInput", "ViewBaseAOTInput")
    return [node for node in placeholders if type(node.meta.get("desc")).__name__ in made]


def in_order(placeholders: Sequence[fx.Node], count: int) -> bool:
    """Whether AOTAutograd's graph takes Dynamo's `count` arguments, all and as they are."""
    return [_position(node, count) for node in placeholders] == list(range(count))


def _position(node: fx.Node, count: int) -> int | None:
    """Which of Dynamo's arguments this is, where it is one as it came."""
    desc: Any = node.meta.get("desc")
    index = getattr(desc, "idx", None) if type(desc).__name__ == "PlainAOTInput" else None
    return index if index is not None and index < count else None
