"""Marks and options of super-kernel ranges."""

import pytest

from kernelmill.config.super_kernel_marks import (
    LIMITED,
    MARK_KEY,
    STREAM_KEY,
    TAKEN_OUT,
    THREADS_KEY,
    UNMARKED,
    Mark,
    RangeOptions,
    mark_of,
    options_of,
    parse_options,
    read_mark,
)
from kernelmill.core.errors import ConfigError


def test_options() -> None:
    assert parse_options("") == RangeOptions()
    text = "stream-fusion=1:strict-scope-check=abort:debug-sync-all=1"
    assert parse_options(text) == RangeOptions(True, True, True)
    assert parse_options("feed-sync-all=1") == RangeOptions(sync_all=True)
    assert parse_options("stream-fusion=0") == RangeOptions(), "the default"
    assert parse_options("debug-aic-num=4:debug-aiv-num=6") == RangeOptions(threads=6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stream-fusion", "is not <name>=<value>"),
        ("stream-fusion=1:", "is not <name>=<value>"),
        ("=1", "is not <name>=<value>"),
        ("stream-fusion=2", "the values are 0, 1"),
        ("stream-fusion=0:stream-fusion=1", "given twice"),
        ("fusion=1", "no option 'fusion'; its options: stream-fusion"),
        ("debug-aic-num=-1", "it is no number of cores"),
        ("debug-aic-num=0:debug-aiv-num=0", "at least one thread is needed"),
        ("split-mode=4", "no meaning on a CPU; those that have: stream-fusion"),
    ],
)
def test_bad_options(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options(text)


E: frozenset[int] = frozenset()
E3 = frozenset((3, 4))


@pytest.mark.parametrize(
    "mark",
    [Mark("a"), Mark("a.b", "stream-fusion=1"), Mark("a", "", "t", -2), Mark("a", "x=1", "t"),
     Mark("a", "", "", 0, frozenset((1, 12)), frozenset((3,))), Mark("a", "x=1", "t", 1, E, E3),
     Mark("a", "", "", 0, E, E3, 2, 0), Mark(deterministic=2)],
)  # fmt: skip
def test_marks_read_back(mark: Mark) -> None:
    assert read_mark(str(mark)) == mark


def test_events_join_those_of_the_mark() -> None:
    mark = read_mark("sp1#t,1<2").with_events(frozenset((1,))).with_events(given=E3)
    assert str(mark) == "sp1#t,1<1,2>3,4"
    assert UNMARKED.with_events(E3) == UNMARKED and TAKEN_OUT.with_events(E3) == TAKEN_OUT


@pytest.mark.parametrize("text", ["a#t,high", "a<first", "a>1,,2"])
def test_texts_that_are_no_marks(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        read_mark(text)


def test_options_of_a_dict() -> None:
    assert options_of({"stream-fusion": 1, "debug-sync-all": "0"}) == RangeOptions(True)
    with pytest.raises(ConfigError, match="no option 'fusion'"):
        options_of({"fusion": 1})


def test_what_tracing_keeps() -> None:
    assert mark_of({}) == mark_of({STREAM_KEY: ("t", 1)}) == UNMARKED
    assert mark_of({MARK_KEY: ("", "")}) == TAKEN_OUT
    kept = {MARK_KEY: ("sp1", "stream-fusion=1"), STREAM_KEY: ("t", 1)}
    assert mark_of(kept) == Mark("sp1", "stream-fusion=1", "t", 1)
    assert mark_of({**kept, THREADS_KEY: 2}) == Mark("sp1", "stream-fusion=1", "t", 1, threads=2)
    assert mark_of({THREADS_KEY: 2}) == Mark(LIMITED, threads=2) == read_mark(f"{LIMITED}@2")


@pytest.mark.parametrize(
    "kept",
    [{MARK_KEY: ("a b", "")}, {MARK_KEY: (3, "")}, {MARK_KEY: ("a", 7)}, {MARK_KEY: ("a", "b")},
     {MARK_KEY: ("a", ""), STREAM_KEY: ("", 0)}, {STREAM_KEY: ("t", 99)}, {THREADS_KEY: 0},
     {THREADS_KEY: "2"}],
)  # fmt: skip
def test_bad_marks(kept: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        mark_of(kept)
