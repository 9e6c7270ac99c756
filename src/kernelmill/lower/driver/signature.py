"""When two fusion groups are the same kernel: a structural key free of names and buffer numbers.

Twenty-four equal layers then cost one lowering. Buffers are numbered in the order of the walk, so
groups with equal signatures also share memory between operands in the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import field

from kernelmill.core.dataclass import dataclass
from kernelmill.graph.ir import Value
from kernelmill.lower.elements.emitter import Location
from kernelmill.lower.fusion.groups import Group


@dataclass
class Signature:
    """`key` compares; `buffers` are the plan's buffers by local number."""

    key: tuple[Hashable, ...] = ()
    buffers: list[int] = field(default_factory=list[int])

    def local(self, buffer: int) -> int:
        """Return the local number of a plan buffer, a new one at first sight."""
        if buffer not in self.buffers:
            self.buffers.append(buffer)
        return self.buffers.index(buffer)


def signature_of(
    group: Group, targets: Mapping[Value, Location], stored: Callable[[Value], Location | None]
) -> Signature:
    """Return the signature of a group. `stored` must give None for the group's own members."""
    return _Walk(group, targets, stored).run()


class _Walk:
    def __init__(
        self,
        group: Group,
        targets: Mapping[Value, Location],
        stored: Callable[[Value], Location | None],
    ) -> None:
        self.group = group
        self.targets = targets
        self.stored = stored
        self.signature = Signature()
        self.numbers: dict[Value, int] = {}
        self.entries: list[Hashable] = []

    def run(self) -> Signature:
        group = self.group
        roots = tuple(
            (self._visit(value), index, self._place(self.targets[value]))
            for value, index in group.roots.items()
        )
        seed = () if group.seed is None else tuple(map(self._visit, group.seed.results))
        internal = tuple((self._visit(value), index) for value, index in group.internal.items())
        extents = tuple(group.extents.items())
        axes = (tuple(a.name for a in group.outer), tuple(a.name for a in group.inner))
        self.signature.key = (
            group.kind, roots, seed, internal, extents, axes, tuple(self.entries),
        )  # fmt: skip
        return self.signature

    def _place(self, location: Location) -> Hashable:
        buffer = self.signature.local(location.buffer)
        return (buffer, location.dtype, location.strides, location.elements, location.offset)

    def _visit(self, value: Value) -> int:
        known = self.numbers.get(value)
        if known is not None:
            return known
        location = self.stored(value)
        entry: Hashable
        if location is not None:
            entry = (self._place(location), value.shape)
        elif value.node is None:
            raise AssertionError(f"{value} is neither stored nor computed")
        else:
            node = value.node
            operands = tuple([self._visit(operand) for operand in node.operands])
            attrs = tuple([(name, repr(attr)) for name, attr in sorted(node.attrs.items())])
            which = node.results.index(value)
            entry = (node.op, operands, attrs, which, value.dtype, value.shape)
        number = self.numbers[value] = len(self.entries)
        self.entries.append(entry)
        return number
