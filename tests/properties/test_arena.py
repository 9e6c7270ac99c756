"""The arena: buffers alive at the same step never overlap, whatever the symbols are."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.core.dim import Dim, evaluate, sym
from kernelmill.plan.arena import ALIGNMENT, ArenaBuffer, assign, peak_bytes

S0, S1 = sym("s0", 1), sym("s1", 0, 64)
SYMBOLIC: list[Dim] = [S0 * 4, S0 * 256, S0 * S1 * 2, S1 * 8, S0 + 3, (S0 + 7) // 8 * 4, S0 * 260]

sizes = st.one_of(st.integers(0, 5000), st.sampled_from(SYMBOLIC))
lifetimes = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted)
buffer_lists = st.lists(
    st.builds(lambda size, life: ArenaBuffer(size, life[0], life[1]), sizes, lifetimes),
    max_size=24,
)


@settings(max_examples=200, deadline=None)
@given(buffer_lists, st.integers(1, 300), st.integers(0, 64))
def test_live_buffers_never_overlap(buffers: list[ArenaBuffer], s0: int, s1: int) -> None:
    values = {"s0": s0, "s1": s1}
    arena = assign(buffers)
    total = evaluate(arena.bytes, values)
    ranges: list[tuple[int, int]] = []
    for buffer, offset in zip(buffers, arena.offsets, strict=True):
        low = evaluate(offset, values)
        high = low + evaluate(buffer.bytes, values)
        assert low % ALIGNMENT == 0
        assert low >= 0 and high <= total
        ranges.append((low, high))
    for i, a in enumerate(buffers):
        for j, b in enumerate(buffers[:i]):
            if a.meets(b):
                (alow, ahigh), (blow, bhigh) = ranges[i], ranges[j]
                assert ahigh <= blow or bhigh <= alow or alow == ahigh or blow == bhigh
    assert total >= peak_bytes(buffers, values)


@settings(max_examples=100, deadline=None)
@given(buffer_lists)
def test_the_same_buffers_get_the_same_offsets(buffers: list[ArenaBuffer]) -> None:
    assert assign(buffers) == assign(list(buffers))
