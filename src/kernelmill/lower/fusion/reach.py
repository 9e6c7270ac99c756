"""Ancestors and descendants of nodes, and the test whether a kernel with a node makes a cycle.

Nodes are numbered in program order, from 1; in sets of nodes, which are integers, number n is the
bit of value 1 << (n - 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernelmill.graph.ir import Graph, Node
from kernelmill.lower.fusion.groups import OpenGroup


class Reach:
    """Ancestors and descendants of the nodes of one graph, and the groups that nodes are in.
    `after` are nodes that come after another one though they do not read it."""

    def __init__(self, graph: Graph, after: Mapping[Node, Node]) -> None:
        self.bit = {node: 1 << i for i, node in enumerate(graph.nodes)}
        self.ancestors: dict[Node, int] = {}
        self.descendants: dict[Node, int] = dict.fromkeys(graph.nodes, 0)
        self.grouped = 0
        self._groups: dict[int, OpenGroup] = {}
        self._spans = _Spans(len(graph.nodes) + 1)
        for node in graph.nodes:
            bits = 0
            for before in _before(node, after):
                bits |= self.ancestors[before] | self.bit[before]
            self.ancestors[node] = bits
        for node in reversed(graph.nodes):
            for before in _before(node, after):
                self.descendants[before] |= self.descendants[node] | self.bit[node]

    def add(self, node: Node, group: OpenGroup) -> None:
        """Note that `group` computes the node."""
        bit = self.bit[node]
        number, before = bit.bit_length(), group.member_bits
        group.member_bits |= bit
        group.descendant_bits |= self.descendants[node]
        self.grouped |= bit
        self._groups[number] = group
        if before:
            self._spans.add(group, number, _first(before))
            self._spans.add(group, _last(before), number)

    def makes_cycle(self, node: Node, group: OpenGroup) -> bool:
        """Return whether another kernel would run both after and before `group` if that computed
        `node`. Nodes that come after the two together also come after everything that shares their
        kernel."""
        both = group.member_bits | self.bit[node]
        after = group.descendant_bits | self.descendants[node]
        waiting = [other for other in self._around(both) if other is not group]
        while True:
            reached = [other for other in waiting if other.member_bits & after]
            if not reached:
                return False
            if any(other.descendant_bits & both for other in reached):
                return True
            waiting = [other for other in waiting if not other.member_bits & after]
            for other in reached:
                after |= other.descendant_bits

    def _around(self, both: int) -> list[OpenGroup]:
        """The groups with nodes between the first and the last of these, or as far as groups reach
        that have nodes on either side of an end: from beyond there is no way back."""
        low, high = _first(both), _last(both)
        while True:
            across = {*self._spans.across(low - 1), *self._spans.across(high)}
            first = min([low, *(_first(group.member_bits) for group in across)])
            last = max([high, *(_last(group.member_bits) for group in across)])
            if (first, last) == (low, high):
                break
            low, high = first, last
        inside = (self.grouped >> (low - 1)) & ((1 << (high - low + 1)) - 1)
        return list(dict.fromkeys(self._groups[low - 1 + n] for n in _numbers(inside)))


class _Spans:
    """From the first to the last node of each group: which groups have nodes on either side.

    A tree over places between nodes: each part of a span stands at log(n) of its nodes.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._groups: dict[int, set[OpenGroup]] = {}

    def add(self, group: OpenGroup, first: int, last: int) -> None:
        """Add a group that spans the places between the numbers `first` and `last`."""
        low, high = first + self._places, last + self._places
        while low < high:
            if low & 1:
                self._groups.setdefault(low, set()).add(group)
                low += 1
            if high & 1:
                high -= 1
                self._groups.setdefault(high, set()).add(group)
            low, high = low >> 1, high >> 1

    def across(self, number: int) -> Iterator[OpenGroup]:
        """Yield the groups that have nodes up to this number and behind it."""
        place = number + self._places
        while place:
            yield from self._groups.get(place, ())
            place >>= 1


def _before(node: Node, after: Mapping[Node, Node]) -> Iterator[Node]:
    for operand in node.operands:
        if operand.node is not None:
            yield operand.node
    if node in after:
        yield after[node]


def _first(bits: int) -> int:
    return (bits & -bits).bit_length()


def _last(bits: int) -> int:
    return bits.bit_length()


def _numbers(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length()
        bits ^= low
