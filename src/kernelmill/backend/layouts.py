"""Assumptions of a trace about tensors and integers besides those on inputs of its graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from kernelmill.artifact.layouts import FLAGS, FREE_FROM, LAYOUT, SIZE, STRIDES, strides_name
from kernelmill.artifact.manifest import Guard
from kernelmill.artifact.paths import Path
from kernelmill.backend.gears import symbolic
from kernelmill.backend.sources import SourceReader, is_known_by_version
from kernelmill.core.errors import UnsupportedError
from kernelmill.frontend.symbols import range_of
from kernelmill.torch_internals import dynamo

_ASK_STRIDES, _ASKS_OFFSET = {"is_contiguous", "stride"}, "storage_offset"


class Layouts:
    """Dynamo's sizes and strides of the tensors of one trace, whose graph has these `sources` as
    inputs, and the integers beside them. `methods` are what its code may call; `flags` are what
    it may ask of tensors besides: their "class", and "requires_grad".

    A dim may have any size from FREE_FROM on if nothing depends on it: its symbol is in no
    condition, has no bounds, and is no other tensor's size. If it is that of an input's dim, the
    two have to be equal. Every other size has to be what it was. Where the code asks for strides,
    those have to be what they were, or what a dense tensor has.
    """

    def __init__(
        self,
        output: Any,
        sources: Sequence[Any],
        methods: Collection[str],
        flags: Collection[str],
    ) -> None:
        self._flags = flags
        self._found, env = dynamo.tensor_sizes(output), output.shape_env
        self._asks = {*_ASK_STRIDES, _ASKS_OFFSET} & {*methods}
        self._inputs = {source.name for source in sources}
        self._of_inputs: dict[Any, tuple[Any, int]] = {}
        used: Counter[Any] = Counter()
        for source, (sizes, _) in self._found.items():
            symbols = list(map(_symbol, sizes))
            used.update(symbols)
            if source.name in self._inputs:
                for axis, symbol in enumerate(symbols):
                    self._of_inputs.setdefault(symbol, (source, axis))
        # A symbol that Dynamo replaced by another, or that is in a condition, is not free.
        expressions = [*(guard.expr for guard in env.guards), *env.replacements.values()]
        asked = {*env.replacements, *(s for each in expressions for s in each.free_symbols)}
        self._free = {
            symbol
            for symbol, count in used.items()
            if symbol is not None and count == 1 and symbol not in asked
            and range_of(symbol, env) == (FREE_FROM, None)
        }  # fmt: skip
        self._places = env.var_to_sources
        of_tensors = dynamo.source_classes.require().TensorPropertySource
        self._fixed = [
            source
            for symbol, its in env.var_to_sources.items()
            if symbol in asked or used[symbol]
            for source in its
            if source.name not in self._inputs and not isinstance(source, of_tensors)
        ]

    def integers(self, reader: SourceReader) -> Iterator[Guard]:
        """Integers that the trace has compared, with a size or with each other, and that its
        program does not get: they have to be what they were."""
        for source in self._fixed:
            path = reader.path(source)
            if not is_known_by_version(path):
                yield Guard("value", path)

    def guards(self, guard: Any, reader: SourceReader) -> Iterator[Guard]:
        """What one of Dynamo's guards of a tensor asks for; of an input strides, offset and flags.
        UnsupportedError where its sizes are not known."""
        source = guard.originating_source
        is_input = source.name in self._inputs
        if is_input and not (self._asks or self._flags):
            return
        path = reader.path(source)
        if is_known_by_version(path):
            return
        # Of what is no argument Dynamo has guards of the class.
        if (
            is_input
            and self._flags
            and (path[0][0] == "argument" or "requires_grad" in self._flags)
        ):
            yield Guard(FLAGS, path)
        if source not in self._found:
            raise UnsupportedError(f"it depends on the sizes of {guard.name}")
        # Of a dim of one, the layout of a tensor that is no input does not say the stride either.
        if self._asks and (counting := " ".join(self._counting(source))):
            yield Guard(STRIDES, path, name=counting)
        if is_input:
            return
        free: list[str] = []
        for axis, symbol in enumerate(map(_symbol, self._found[source][0])):
            if symbol in self._free:
                free.append(str(axis))
            elif symbol is not None and symbol in self._of_inputs and path[0][0] == "argument":
                other, its_axis = self._of_inputs[symbol]
                its: Path = reader.path(other)
                if its[0][0] == "argument":
                    free.append(str(axis))
                    yield Guard(SIZE, path, name=f"{axis} {its_axis}", other=its)
        yield Guard(LAYOUT, path, name=" ".join(free))

    def _counting(self, source: Any) -> Iterator[str]:
        """Yield the dims whose strides the code may read and that are no inputs of the graph.
        UnsupportedError for a stride that is neither a number nor the extent of a dim, and for an
        offset."""
        found = self._found[source]
        sizes, strides = (list(map(symbolic, each or ())) for each in found)  # none: sparse tensors
        names = [f"{source.name}.stride()[{n}]" for n in range(len(strides))]

        def is_known(n: int) -> bool:
            # A symbol of its own that is no input is used by no computation.
            own = {its.name for its in self._places.get(strides[n], ())} == {names[n]}
            return names[n] in self._inputs or strides[n].is_Integer or own

        dims = following(sizes, strides, is_known) if self._asks & _ASK_STRIDES else []
        if dims is None:
            raise UnsupportedError(f"it takes strides of {source.name} for other sizes")
        yield from (strides_name([dim]) for dim in dims if names[dim[0]] not in self._inputs)
        offset = f"{source.name}.storage_offset()"
        if _ASKS_OFFSET in self._asks and offset not in self._inputs:
            raise UnsupportedError(f"it takes {offset} for another size")


def following(
    sizes: Sequence[Any], strides: Sequence[Any], is_known: Callable[[int], bool]
) -> list[tuple[int, int]] | None:
    """Return the origins of a tensor's strides, sympy expressions as its sizes are: for each dim
    (dim, -1) where its stride is known by itself, else (dim, the dim with that extent). None where
    a stride is neither."""
    found: list[tuple[int, int]] = []
    left = list(range(len(strides)))
    taken: dict[Any, int] = {}  # extents (size times stride) of the dims found
    while left:
        n = next((n for n in left if is_known(n) or strides[n] in taken), None)
        if n is None:
            return None
        found.append((n, -1 if is_known(n) else taken[strides[n]]))
        taken[sizes[n] * strides[n]] = n
        left.remove(n)
    return found


def _symbol(size: Any) -> Any:
    """Return the sympy symbol of a size; None for a number or another expression."""
    expr = symbolic(size)
    return expr if expr.is_symbol else None
