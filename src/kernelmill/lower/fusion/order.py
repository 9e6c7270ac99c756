"""The order in which the kernels of a graph run; kernels that wait for each other have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from kernelmill.graph.ir import Value
from kernelmill.lower.fusion.groups import GroupKind, OpenGroup
from kernelmill.lower.fusion.reach import Reach

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
