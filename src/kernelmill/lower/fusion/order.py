"""The order in which the kernels of a graph run; kernels in a cycle have none.

Ancestors and descendants of nodes, and the test whether a kernel with a node makes a cycle.

Nodes are numbered in program order, from 1; in sets of nodes, which are integers, number n is the
bit of value 1 << (n - 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from kernelmill.graph.ir import Graph, Node, Value
from kernelmill.lower.fusion.groups import GroupKind, OpenGroup


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
    """The spans from the first to the last node of each group, to find groups with nodes on both
    sides of a place.

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


Needs = Mapping[OpenGroup, AbstractSet[OpenGroup]]
"""The groups that have to run before each."""


class Cycle(Exception):
    """Kernels wait for each other, since they compute the values `late` together with others."""

    def __init__(self, late: AbstractSet[Value]) -> None:
        super().__init__()
        self.late = late


def ordered(groups: Sequence[OpenGroup], needs: Needs, reach: Reach) -> list[OpenGroup]:
    """Return the groups that compute something, each after those it needs. Raises `Cycle`."""
    alive = [group for group in groups if group.roots or group.kind is GroupKind.ATEN]
    alive.sort(key=lambda group: group.member_bits)
    done: dict[OpenGroup, None] = {}
    for group in alive:
        _visit(group, needs, reach, done, [])
    return list(done)


def _visit(
    group: OpenGroup, needs: Needs, reach: Reach,
    done: dict[OpenGroup, None], path: list[OpenGroup],
) -> None:  # fmt: skip
    if group in done:
        return
    if group in path:
        raise Cycle(_late_members(path[path.index(group) :], reach))
    path.append(group)
    for other in sorted(needs[group] - {group}, key=lambda g: g.member_bits):
        _visit(other, needs, reach, done, path)
    path.pop()
    done[group] = None


def _late_members(cycle: Sequence[OpenGroup], reach: Reach) -> frozenset[Value]:
    """Return the values of a kernel of the cycle that depend on another one of its kernels."""
    found: set[Value] = set()
    for group in cycle:
        others = 0
        for other in cycle:
            others |= other.member_bits if other is not group else 0
        found.update(
            value
            for value in (*group.internal, *group.roots)
            if value.node not in (None, group.seed) and reach.ancestors[value.node] & others
        )
    return frozenset(found)
