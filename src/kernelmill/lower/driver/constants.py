"""Values that depend only on parameters, and so are computed once for all calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import symbols
from kernelmill.graph.ir import Value
from kernelmill.lower.elements.emitter import Location
from kernelmill.lower.fusion.prepacked import is_symbolic
from kernelmill.plan.ir import BufferKind, BufferSpec


@dataclass(frozen=True)
class Constants:
    """A test for values of parameters alone. `parameters`, and buffers packed from them, are
    constant; `stored` gives a value's memory, None for computed ones; `buffers` may grow."""

    parameters: Collection[Value]
    buffers: Sequence[BufferSpec]
    stored: Callable[[Value], Location | None]

    def decide(self, values: Iterable[Value]) -> bool:
        """Return whether these values are computed from parameters alone."""
        pending = list(values)
        seen: set[Value] = set()
        found = False
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            location, node = self.stored(value), value.node
            if location is not None:
                found = True
                packed = self.buffers[location.buffer].kind == BufferKind.PACKED
                given = value in self.parameters and not symbols(location.elements)
                if not packed and not given:
                    return False
            elif node is None or any(map(is_symbolic, (value.shape, *node.attrs.values()))):
                return False
            else:
                pending += node.operands
        return found
