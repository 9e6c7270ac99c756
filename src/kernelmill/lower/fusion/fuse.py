"""Choice of the values that are stored, and of the nodes that share a kernel.

Nodes are visited from the results backwards. At a node, all kernels that read it are known, each
with its index, and so how often each would compute the node's elements. The costs (costs.py) decide
between computing it in all of them and storing it: a node that one kernel reads element by element
always becomes part of that kernel. A stored value is stored by one of its readers if no other
kernel runs between, else by a new kernel. Views cost nothing: they only change the index.

Pointwise nodes that follow a contraction element by element become its epilogue. This is decided
first, in program order: such a node is computed once, and nothing goes through memory.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from heapq import nsmallest

from kernelmill.core.dataclass import dataclass
from kernelmill.core.dim import product, recombine
from kernelmill.core.log import get_logger
from kernelmill.graph.effects import turns
from kernelmill.graph.ir import Graph, Node, OpKind, Value
from kernelmill.graph.ops import OPS
from kernelmill.lower.elements import views
from kernelmill.lower.elements.axes import (  # fmt: skip
    enumerates,
    fresh_axes,
    is_reduction,
    is_view,
    operand_index,
    reduced_dims,
    used_axes,
    viewed,
)
from kernelmill.lower.elements.views import Index
from kernelmill.lower.fusion import costs
from kernelmill.lower.fusion.costs import MOST_COPIES, Alternatives, Blocks, Costs, elements, extent
from kernelmill.lower.fusion.groups import SEEDS, FusionGroup, GroupKind, OpenGroup
from kernelmill.lower.fusion.order import Cycle, Reach, ordered
from kernelmill.lower.fusion.prepacked import Prepacked

_log = get_logger("lower")

_MOST_CANDIDATES = 8
"""Readers of a value that are asked whether they can store it."""

Readers = Mapping[OpenGroup, list[Index | None]]
"""The groups that read a value, with the indices at which they do; None for any index."""


_NOTHING_PREPACKED = Prepacked()


@dataclass(frozen=True)
class Fusion:
    """The outcome: kernels in an order in which they can run."""

    groups: tuple[FusionGroup, ...]
    kept: frozenset[Value]
    """Stored views that their readers take from memory; all others are read through."""


def fuse(
    graph: Graph,
    costs: Costs,
    forced: Iterable[Value],
    separate: bool = False,
    in_place: AbstractSet[Value] = frozenset(),
    prepacked: Prepacked = _NOTHING_PREPACKED,
    aliases: AbstractSet[Value] = frozenset(),
    kept: AbstractSet[Value] = frozenset(),
) -> Fusion:
    """Group the nodes of `graph`, as its `costs` advise. `forced` values are stored whatever their
    readers are: the program's results and updates, and what ATen reads. Those that readers compute
    `in_place` never are; those that are `prepacked` alone are, each by a kernel of its own. Those
    in `aliases` are views in the memory of what they are of, those `kept` views that readers take
    from memory.

    With `separate` every operator that computes is a group of its own.

    Kernels that wait for each other are split: what made them do so is computed alone.
    """
    forced = set(forced)
    while True:
        try:
            return _Fuser(graph, costs, forced, separate, in_place, prepacked, aliases, kept).run()
        except Cycle as cycle:
            assert not cycle.late <= prepacked.alone
            prepacked = replace(prepacked, alone=prepacked.alone | cycle.late)


class _Fuser:
    def __init__(
        self, graph: Graph, costs: Costs, forced: AbstractSet[Value], separate: bool,
        in_place: AbstractSet[Value], prepacked: Prepacked, aliases: AbstractSet[Value],
        kept: AbstractSet[Value],
    ) -> None:  # fmt: skip
        self.prepacked, self.alone = prepacked, prepacked.alone
        self.aliases = aliases
        self.graph = graph
        self.separate = separate
        self.in_place = in_place
        self.forced = set(forced)
        self.turns = turns(graph)
        self.reach = Reach(graph, self.turns)
        self.costs = costs
        self.explain = _log.isEnabledFor(logging.DEBUG)
        self.seeds: dict[Node, OpenGroup] = {}
        self.groups: list[OpenGroup] = []
        self.home: dict[Value, OpenGroup] = {}
        self.accesses: dict[Value, dict[OpenGroup, list[Index | None]]] = {}
        self.blocks = Blocks()
        self.depth: dict[Value, int] = {}
        self.within_blocks: dict[tuple[Value, OpenGroup], dict[Index | None, set[int]]] = {}
        self.epilogue: dict[Node, OpenGroup] = {}
        self.kept = set(kept)

    def run(self) -> Fusion:
        for node in self.graph.nodes:
            self._seed_or_absorb(node)
        for node in reversed(self.graph.nodes):
            self._place(node)
        groups = tuple(group.closed() for group in ordered(self.groups, self._needs(), self.reach))
        return Fusion(groups, frozenset(self.kept))

    def _needs(self) -> dict[OpenGroup, set[OpenGroup]]:
        """Map each group to the groups that must run before it: those that store values it reads,
        and those whose turn is earlier."""
        needs: dict[OpenGroup, set[OpenGroup]] = {group: set() for group in self.groups}
        for value, readers in self.accesses.items():
            home = self.home.get(value)
            if home is None or (is_view(value) and value not in self.kept):
                continue
            for group in readers:
                needs[group].add(home)
        for node, before in self.turns.items():
            needs[self.seeds[node]].add(self.seeds[before])
        return needs

    # ---- epilogues, in program order -----------------------------------------------------------

    def _seed_or_absorb(self, node: Node) -> None:
        kind = OPS[node.op].kind
        if kind in SEEDS:
            group = OpenGroup(SEEDS[kind], node)
            if group.kind.is_product:
                group.outer, index = fresh_axes(node.result.shape, "d", group.extents)
                group.internal[node.result] = index
                self.epilogue[node] = group
            self.reach.add(node, group)
            self.groups.append(group)
            self.seeds[node] = group
        elif kind is OpKind.POINTWISE and not self.separate and not self._is_apart(node):
            self._absorb(node)

    def _is_apart(self, node: Node) -> bool:
        """Return whether the node is computed by a kernel of its own, or by each of its readers."""
        value = node.result
        alone = value in self.alone and value not in self.prepacked.folded
        return alone or value in self.in_place

    def _absorb(self, node: Node) -> None:
        """Make a pointwise node part of the epilogue of the last contraction it follows."""
        found: tuple[OpenGroup, Index] | None = None
        for operand in node.operands:
            forward = self._follow(operand)
            if forward is None or self.prepacked.separates(operand, node.result):
                continue
            if found is None or self._position(forward[0]) > self._position(found[0]):
                found = forward
        if found is None or len(found[0].internal) > costs.MOST_EPILOGUE:
            return
        group, index = found
        if product(node.result.shape) != product(group.extents.values()):
            return
        if not self._only_through(group, node, index):
            return
        # What the group needs anyway comes before it; only another kernel may need both.
        assert group.seed is not None
        new = self.reach.ancestors[node] & ~(self.reach.ancestors[group.seed] | group.member_bits)
        if new & self.reach.grouped and self.reach.makes_cycle(node, group):
            return
        group.internal[node.result] = index
        self.epilogue[node] = group
        self.reach.add(node, group)

    def _position(self, group: OpenGroup) -> int:
        assert group.seed is not None
        return self.reach.bit[group.seed]

    def _follow(self, value: Value) -> tuple[OpenGroup, Index] | None:
        """Return the epilogue group of `value` through reshapes and permutes, and its index."""
        node = value.node
        if node is None:
            return None
        group = self.epilogue.get(node)
        if group is not None:
            return group, group.internal[value]
        if node.op not in ("reshape", "permute"):
            return None
        below = self._follow(node.operands[0])
        if below is None:
            return None
        group, index = below
        if node.op == "reshape":
            return group, views.reshape_index(index, node.operands[0].shape, value.shape)
        dims = node.attrs["dims"]
        assert isinstance(dims, tuple)
        return group, tuple(index[d] for d in dims if isinstance(d, int))

    def _only_through(self, group: OpenGroup, node: Node, index: Index) -> bool:
        """Return whether `node` reads of the group only its own element of members."""
        pending: list[tuple[Value, Index]] = [(operand, index) for operand in node.operands]
        assert group.seed is not None
        seed_bit = self.reach.bit[group.seed]
        while pending:
            value, at = pending.pop()
            if value.node is None:
                continue
            if value in group.internal:
                known = group.internal[value]
                if any(recombine(a - b) != 0 for a, b in zip(at, known, strict=True)):
                    return False
            elif (self.reach.ancestors[value.node] | self.reach.bit[value.node]) & seed_bit:
                if OPS[value.node.op].kind is not OpKind.VIEW or value.node.op == "concat":
                    return False
                found = views.sources(value.node, at)
                if any(source.conditions for source in found) or len(found) != 1:
                    return False
                pending.append((found[0].operand, found[0].index))
        return True

    # ---- everything else, backwards ------------------------------------------------------------

    def _place(self, node: Node) -> None:
        definition = OPS[node.op]
        own = self.epilogue.get(node)
        if definition.kind in SEEDS:
            self._place_seed(node)
        elif own is not None:
            self._place_absorbed(node, own)
        elif definition.kind is OpKind.REDUCE:
            self._place_reduction(node)
        elif definition.kind is OpKind.SCORES:
            self._place_scores(node)
        elif definition.transparent or definition.kind is OpKind.SOURCE:
            self._place_view(node)
        else:
            self._place_pointwise(node)

    def _readers(self, value: Value) -> Readers:
        return self.accesses.get(value, {})

    def _access(
        self, value: Value, group: OpenGroup, index: Index | None, blocks: Iterable[int] = (0,)
    ) -> None:
        indices = self.accesses.setdefault(value, {}).setdefault(group, [])
        if index is None or index not in indices:
            indices.append(index)
        found = self.within_blocks.setdefault((value, group), {}).setdefault(index, set())
        for block in blocks:
            if not block or not self.blocks.knows(block, value, index):
                found.add(block)

    def _deepen(self, node: Node, *operands: Value) -> None:
        """Note that an element of the node is computed from elements of these."""
        below = self.depth.get(node.result, 0) + costs.depth(node)
        for operand in operands:
            self.depth[operand] = max(below, self.depth.get(operand, 0))

    def _times_written(self, value: Value, group: OpenGroup) -> int:
        """Return how often a group's code has the value: in each block, at each index."""
        return sum(map(len, self.within_blocks[value, group].values()))

    def _place_view(self, node: Node) -> None:
        value = node.result
        if not self._fits(node, self._readers(value)) and value not in self.aliases | self.in_place:
            self.kept.add(value)
        if value in self.kept or value in self.forced:
            self._store_alone(node)
        if value not in self.kept:
            self._pass_through(node)

    def _fits(self, node: Node, readers: Readers) -> bool:
        return all(self._fits_in(node, group) for group in readers)

    def _fits_in(self, node: Node, group: OpenGroup) -> bool:
        if self.depth.get(node.result, 0) > costs.MOST_DEPTH:
            return False
        times = self._times_written(node.result, group)
        return costs.fits(node, group.code, self._readers(node.result)[group], times)

    def _pass_through(self, node: Node) -> None:
        """Pass the readers of a view on to its operands; those of a source read nothing."""
        for group, indices in self._readers(node.result).items():
            for index in indices:
                blocks = self.within_blocks[node.result, group][index]
                self._propagate(node, group, index, blocks)

    def _propagate(
        self, node: Node, group: OpenGroup, index: Index | None, blocks: Collection[int] = (0,)
    ) -> None:
        """Note the reads of `group`, which computes element `index` of the node in these blocks."""
        group.code += costs.code(node) * len(blocks)
        self._deepen(node, *node.operands)
        definition = OPS[node.op]
        if definition.kind is OpKind.GATHER:
            self._propagate_gather(node, group, index, blocks)
        elif definition.kind is OpKind.POINTWISE or index is None:
            for operand in node.operands:
                self._access(operand, group, index, blocks)
        elif definition.transparent:
            found = views.sources(node, index)
            self._deepen(node, *(source.operand for source in found))
            self._propagate_view(found, group, blocks)

    def _propagate_view(
        self, found: Sequence[views.ViewSource], group: OpenGroup, blocks: Collection[int]
    ) -> None:
        """Give each place that an element may come from a block, visiting first, for all, the one
        without conditions."""
        known: tuple[Value, Index] | None = None
        for source in reversed(found):
            if source.conditions:
                blocks_inside = [self.blocks.inside(block, known) for block in blocks]
                self._access(source.operand, group, source.index, blocks_inside)
            else:
                known = source.operand, source.index
                self._access(source.operand, group, source.index, blocks)

    def _propagate_gather(
        self, node: Node, group: OpenGroup, index: Index | None, blocks: Collection[int]
    ) -> None:
        self._access(node.operands[0], group, None, blocks)
        inner = index
        if index is not None and node.op == "index":
            at = node.attrs["at"]
            assert isinstance(at, int)
            inner = index[at : at + len(node.operands[1].shape)]
        for operand in node.operands[1:]:
            self._access(operand, group, inner, blocks)

    def _place_seed(self, node: Node) -> None:
        group = self.seeds[node]
        stored = self.epilogue.get(node) is None
        for result in node.results:
            outside = any(reader is not group for reader in self._readers(result))
            if stored or outside or result in self.forced:
                self.home[result] = group
                group.roots[result] = group.internal.pop(result, ())
                if not stored:
                    group.internal[result] = group.roots[result]
        elementwise = group.kind in (GroupKind.SCAN, GroupKind.SCATTER)
        for operand in node.operands:
            self._access(operand, group, None)
            once = sum(map(len, self._readers(operand).values())) == 1
            if group.kind is GroupKind.ATEN or (elementwise and once):
                continue
            self._store_unless_free(operand)

    def _place_scores(self, node: Node) -> None:
        """Let the attentions that read scores compute them."""
        self._pass_through(node)
        for operand in node.operands:
            self._store_unless_free(operand)

    def _store_unless_free(self, value: Value) -> None:
        """Store an operand of a contraction unless reading it costs next to nothing."""
        if value in self.in_place:
            return
        value = viewed(value)
        node = value.node
        if node is not None and node.op == "concat":
            self.kept.add(value)
            return
        if node is not None and OPS[node.op].kind is not OpKind.SOURCE and node.op != "cast":
            self.forced.add(value)

    def _place_absorbed(self, node: Node, group: OpenGroup) -> None:
        value = node.result
        index = group.internal[value]
        outside = any(reader is not group for reader in self._readers(value))
        if not outside and value not in self.forced and not self._readers(value):
            del group.internal[value]
            return
        if self._is_better_outside(node, group):
            del group.internal[value]
            self._inline(node, self._readers(value))
            return
        if outside or value in self.forced:
            group.roots[value] = index
            self.home[value] = group
        self._propagate(node, group, index)

    def _is_better_outside(self, node: Node, group: OpenGroup) -> bool:
        """Return whether an epilogue would compute the node only for other kernels, which read its
        operands in memory and had better compute it themselves."""
        value, readers = node.result, self._readers(node.result)
        if group in readers or value in self.forced or value in self.alone:
            return False
        bases = {viewed(operand) for operand in node.operands}
        members = [base for base in bases if base in group.internal]
        kept = all(base in self.forced or self._readers(base).keys() - {group} for base in members)
        return kept and self._fits(node, readers) and self._inline_everywhere(value, readers)

    def _place_pointwise(self, node: Node) -> None:
        value = node.result
        readers = self._readers(value)
        forced = value in self.forced
        if not readers and not forced:
            return
        if value in self.in_place:
            self._inline(node, readers)
            return
        if self.separate or value in self.alone:
            self._store_alone(node)
            return
        fits = self._fits(node, readers)
        if not forced and fits and self._inline_everywhere(value, readers):
            self._inline(node, readers)
            return
        for group in self._candidates(readers):
            if self._fits_in(node, group) and self._can_store_in(value, group):
                self._join(node, group)
                return
        self._store_alone(node)

    def _candidates(self, readers: Readers) -> list[OpenGroup]:
        """Return readers that may compute a value for all others: some of those that run first."""
        return nsmallest(_MOST_CANDIDATES, readers, key=lambda g: g.member_bits & -g.member_bits)

    def _inline_everywhere(self, value: Value, readers: Readers) -> bool:
        """Return whether every reader computes this value, rather than one that stores it."""
        copies = max(self._times_written(value, group) for group in readers) - 1
        if copies * self.costs.operations[value] > MOST_COPIES:
            return False
        times = sum(
            self._times(value, group, index)
            for group, indices in readers.items()
            for index in indices
        )
        ways = self.costs.alternatives(value, times, len(readers))
        found = ways.recompute <= ways.materialise or (
            ways.recompute <= ways.separate_kernel
            and not any(self._can_store_in(value, group) for group in self._candidates(readers))
        )
        if self.explain:
            self._explain(value, ways, len(readers), found)
        return found

    def _explain(self, value: Value, ways: Alternatives, readers: int, recomputed: bool) -> None:
        _log.debug(
            "%s %s is %s: %d kernels read it; ns: recomputed %.0f, stored by one of them %.0f, "
            "by a kernel of its own %.0f",
            value.name, value.type, "computed where it is read" if recomputed else "stored",
            readers, ways.recompute, ways.materialise, ways.separate_kernel,
        )  # fmt: skip

    def _times(self, value: Value, group: OpenGroup, index: Index | None) -> int:
        """Return how many elements of the value the group's loops compute at this index. A value
        that does not depend on the last axis is a scalar beside vectors, computed once for each
        row."""
        axes = group.outer + group.inner
        if index is None:
            # Somewhere that is looked up, or as operand of a product, which packs it once or twice.
            count = extent(list(group.extents.values())) if group.kind is GroupKind.NEST else 0
            return count or elements(value) * (2 if group.kind.is_product else 1)
        names = used_axes(index)
        if group.inner and not names & {axis.name for axis in group.inner}:
            axes = group.outer
        elif axes and axes[-1].name not in names:
            axes = axes[:-1]
        return extent([group.extents[axis.name] for axis in axes])

    def _row_level(self, group: OpenGroup, indices: list[Index | None]) -> bool:
        inner = {axis.name for axis in group.inner}
        return bool(inner) and all(i is not None and not used_axes(i) & inner for i in indices)

    def _inline(self, node: Node, readers: Readers) -> None:
        self._pass_through(node)
        if len(readers) == 1:
            ((group, indices),) = readers.items()
            if len(indices) == 1 and indices[0] is not None:
                group.internal[node.result] = indices[0]
                self.reach.add(node, group)

    def _can_store_in(self, value: Value, group: OpenGroup) -> bool:
        """Return whether `group` may compute and store this value besides its own."""
        if group.kind is not GroupKind.NEST:
            return False
        indices = self._readers(value)[group]
        index = indices[0]
        if len(indices) != 1 or index is None:
            return False
        axes = group.outer if self._row_level(group, [index]) else group.outer + group.inner
        if not enumerates(index, value.shape, axes, group.extents):
            return False
        return not self._cuts_through(value, group)

    def _cuts_through(self, value: Value, group: OpenGroup) -> bool:
        """Return whether another kernel, which reads the value too, would have to run between this
        value and `group`."""
        assert value.node is not None
        return len(self._readers(value)) > 1 and self.reach.makes_cycle(value.node, group)

    def _join(self, node: Node, group: OpenGroup) -> None:
        index = self._readers(node.result)[group][0]
        assert index is not None
        group.internal[node.result] = index
        if node.result in self.forced or len(self._readers(node.result)) > 1:
            group.roots[node.result] = index
            self.home[node.result] = group
        self.reach.add(node, group)
        if is_reduction(node):
            group.code += costs.code(node)
            self._deepen(node, node.operands[0])
            index = operand_index(node, index, group.inner)
            self._access(node.operands[0], group, index)
        else:
            blocks = self.within_blocks[node.result, group][index]
            self._propagate(
                node, group, index, blocks | ({0} if node.result in group.roots else set())
            )

    def _store_alone(self, node: Node) -> None:
        group = OpenGroup(GroupKind.NEST)
        group.outer, index = fresh_axes(node.result.shape, "d", group.extents)
        group.roots[node.result] = index
        self.home[node.result] = group
        self.depth[node.result] = 0
        self.groups.append(group)
        self.reach.add(node, group)
        self._propagate(node, group, index)

    # ---- reductions ----------------------------------------------------------------------------

    def _place_reduction(self, node: Node) -> None:
        readers = self._readers(node.result)
        if not readers and node.result not in self.forced:
            return
        for group in () if node.result in self.alone else self._candidates(readers):
            if self._fits_in(node, group) and self._can_reduce_in(node, group):
                self._join(node, group)
                return
        group = OpenGroup(GroupKind.NEST)
        operand = node.operands[0].shape
        reduced = reduced_dims(node)
        group.outer, index = fresh_axes(node.result.shape, "d", group.extents)
        group.inner, _ = fresh_axes([operand[d] for d in reduced], "d", group.extents)
        group.roots[node.result] = index
        group.internal[node.result] = index
        self.home[node.result] = group
        self.groups.append(group)
        self.reach.add(node, group)
        group.code += costs.code(node)
        self._access(node.operands[0], group, operand_index(node, index, group.inner))

    def _can_reduce_in(self, node: Node, group: OpenGroup) -> bool:
        if group.kind is not GroupKind.NEST or self.separate:
            return False
        indices = self._readers(node.result)[group]
        index = indices[0]
        if len(indices) != 1 or index is None or self._cuts_through(node.result, group):
            return False
        shape = node.operands[0].shape
        sizes = [shape[d] for d in reduced_dims(node) if shape[d] != 1]
        used = used_axes(index)
        if not used <= group.extents.keys():
            return False
        if group.inner:
            outer = group.outer
            inner = group.inner
        elif group.reduces():
            # Their axes have size 1: they would become part of a loop over the inner axes.
            return False
        else:
            outer = [axis for axis in group.outer if axis.name in used]
            inner = [axis for axis in group.outer if axis.name not in used]
        if not enumerates(index, node.result.shape, outer, group.extents):
            return False
        if not inner and sizes:
            group.inner, _ = fresh_axes(sizes, "d", group.extents)
            return True
        if [group.extents[axis.name] for axis in inner] != sizes:
            return False
        group.outer, group.inner = outer, inner
        return True
