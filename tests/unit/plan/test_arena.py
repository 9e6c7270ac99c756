"""Arena planning on cases small enough to work out by hand."""

from kernelmill.core.dim import sym
from kernelmill.plan.arena import ArenaBuffer, assign, assign_with_donations, peak_bytes


def chain(size: int, length: int) -> list[ArenaBuffer]:
    return [ArenaBuffer(size, step, step + 1) for step in range(length)]


def test_a_chain_takes_two_buffers() -> None:
    arena = assign(chain(1000, 10))
    assert arena.bytes == 2 * 1024
    assert set(arena.offsets) == {0, 1024}


def test_no_buffers_take_nothing() -> None:
    assert assign([]).bytes == 0


def test_a_small_buffer_takes_the_tightest_gap() -> None:
    wide, tight = ArenaBuffer(640, 0, 0), ArenaBuffer(128, 0, 0)
    pillar = ArenaBuffer(1024, 0, 9)
    late = ArenaBuffer(100, 5, 9)
    arena = assign([pillar, wide, tight, late])
    assert arena.bytes == 1024 + 640 + 128
    assert arena.offsets == (0, 1024, 1664, 1024)


def test_peak_counts_what_lives_at_once() -> None:
    assert peak_bytes(chain(1000, 10)) == 2 * 1024
    s0 = sym("s0")
    assert peak_bytes([ArenaBuffer(s0 * 4, 0, 1), ArenaBuffer(64, 1, 1)], {"s0": 16}) == 128


def test_symbolic_buffers_share_slots_that_are_provably_large_enough() -> None:
    s0, s1 = sym("s0", 1), sym("s1", 1)
    big, small, other = s0 * 1024, s0 * 64, s1 * 64
    arena = assign(
        [
            ArenaBuffer(big, 0, 1),
            ArenaBuffer(small, 2, 3),
            ArenaBuffer(other, 2, 3),
            ArenaBuffer(100, 0, 3),
        ]
    )
    assert arena.offsets[0] == arena.offsets[1] == 128
    assert arena.offsets[2] == s0 * 1024 + 128
    assert arena.bytes == s0 * 1024 + s1 * 64 + 128


def test_a_donated_buffer_is_written_over() -> None:
    lives = {7: ArenaBuffer(640, 0, 1), 3: ArenaBuffer(640, 1, 2), 5: ArenaBuffer(640, 2, 4),
             9: ArenaBuffer(128, 1, 3), 1: ArenaBuffer(640, 3, 4)}  # fmt: skip
    arena = assign_with_donations(lives, {3: 7, 5: 3})
    offsets = dict(zip(lives, arena.offsets, strict=True))
    assert offsets[7] == offsets[3] == offsets[5]
    assert len({offsets[7], offsets[9], offsets[1]}) == 3
    assert arena.bytes == 640 + 128 + 640
    assert assign_with_donations(lives, {}) == assign(list(lives.values()))
