"""The prepare launches of a plan, in components that can be run independently."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from kernelmill.core.dataclass import dataclass
from kernelmill.core.digest import digest_of
from kernelmill.plan.ir import BufferKind, Plan


@dataclass(frozen=True)
class Component:
    """Prepare launches that share packed buffers, and so run together, in order. `launches` are
    numbers in `plan.prepare`; `sources` the arguments they read."""

    launches: tuple[int, ...]
    buffers: tuple[int, ...]
    sources: frozenset[int]


def components(plan: Plan) -> tuple[Component, ...]:
    """Return the prepare launches, split into components without a common packed buffer."""
    parts: dict[int, tuple[set[int], set[int]]] = {}  # launches and packed buffers, by any of them
    for number, launch in enumerate(plan.prepare):
        launches = {number}
        buffers = {
            b for b in launch.buffers if b >= 0 and plan.buffers[b].kind == BufferKind.PACKED
        }
        for part in [parts[b] for b in buffers if b in parts]:
            launches |= part[0]
            buffers |= part[1]
        parts.update(dict.fromkeys(buffers, (launches, buffers)))
    return tuple(
        Component(tuple(sorted(launches)), tuple(sorted(buffers)), _sources(plan, launches))
        for launches, buffers in {min(part[0]): part for part in parts.values()}.values()
    )


def _sources(plan: Plan, launches: set[int]) -> frozenset[int]:
    return frozenset(
        plan.buffers[buffer].source
        for launch in launches
        for buffer in plan.prepare[launch].buffers
        if buffer >= 0 and plan.buffers[buffer].kind == BufferKind.INPUT
    )


def recipe(plan: Plan, component: Component, kernels: Mapping[str, Hashable]) -> Hashable:
    """Return a key of a component's packing, equal for two programs that pack alike: kernels, sizes
    and buffers of its launches. Sources and packed buffers count by their order."""
    order = {buffer: ("packed", place) for place, buffer in enumerate(component.buffers)}

    def described(buffer: int) -> Hashable:
        if buffer < 0:
            return buffer
        spec = plan.buffers[buffer]
        place = order.get(buffer) or ("source", sorted(component.sources).index(spec.source))
        return (*place, spec.dtype, spec.shape, spec.strides)

    launches = [plan.prepare[number] for number in component.launches]
    return tuple(
        (kernels[step.kernel], step.dims, step.tasks, tuple(map(described, step.buffers)))
        for step in launches
    )


def lasting_recipe(plan: Plan, component: Component, identities: Mapping[str, str]) -> str:
    """Return `recipe` as a digest that is the same in every process."""
    text = str(recipe(plan, component, identities))
    return digest_of(text.encode())
