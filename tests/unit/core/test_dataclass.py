"""Classes by `kernelmill.core.dataclass` are as the standard library's."""

from __future__ import annotations

import copy
import dataclasses
import operator
import sys
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from functools import cached_property, partial
from typing import Any, ClassVar

import pytest

from kernelmill.core.dataclass import dataclass

Make = Callable[..., Any]
MADE: dict[str, Callable[[Make], type]] = {}


def made(define: Callable[[Make], type]) -> Callable[[Make], type]:
    """One of the classes that both decorators define; `define` takes the decorator."""
    MADE[define.__name__] = define
    return define


@made
def empty(dataclass: Make) -> type:
    @dataclass(frozen=True)
    class Case: ...

    return Case


@made
def mutable(dataclass: Make) -> type:
    @dataclass
    class Case:
        x: int
        y: str = "y"
        z: list[int] = field(default_factory=list)

    return Case


@made
def frozen(dataclass: Make) -> type:
    @dataclass(frozen=True)
    class Case:
        """With a text."""

        x: int
        y: str = "y"
        z: tuple[int, ...] = field(default_factory=tuple)
        count: ClassVar[int] = 3

        @cached_property
        def once(self) -> int:
            return self.x + 1

    return Case


@made
def keywords(dataclass: Make) -> type:
    @dataclass(frozen=True, kw_only=True)
    class Case:
        x: int = 1
        y: int

    return Case


@made
def ordered(dataclass: Make) -> type:
    @dataclass(frozen=True, order=True)
    class Case:
        x: int
        y: int = 0

    return Case


@made
def by_identity(dataclass: Make) -> type:
    @dataclass(frozen=True, eq=False)
    class Case:
        x: int

    return Case


@made
def hashed_though_mutable(dataclass: Make) -> type:
    @dataclass(unsafe_hash=True)
    class Case:
        x: int

    return Case


@made
def slotted(dataclass: Make) -> type:
    @dataclass(eq=False, slots=True)
    class Case:
        x: int
        y: int = 2

    return Case


@made
def fields_of_all_kinds(dataclass: Make) -> type:
    @dataclass(frozen=True)
    class Case:
        x: int
        hidden: int = field(default=1, repr=False)
        apart: int = field(default=2, compare=False)
        unhashed: int = field(default=3, hash=False)
        fixed: int = field(default=4, init=False)
        given: list[int] = field(default_factory=list, init=False, hash=False)
        named: int = field(default=5, kw_only=True)

    return Case


@made
def of_its_own(dataclass: Make) -> type:
    @dataclass(frozen=True)
    class Case:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "one"

    return Case


@made
def equality_of_its_own(dataclass: Make) -> type:
    @dataclass
    class Case:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

    return Case


@made
def with_an_init(dataclass: Make) -> type:
    @dataclass
    class Case:
        x: int

        def __init__(self, x: int) -> None:
            self.x = x * 10

    return Case


@made
def checked(dataclass: Make) -> type:
    @dataclass(frozen=True)
    class Case:
        x: int
        y: int = 0

        def __post_init__(self) -> None:
            if self.x > 100:
                raise ValueError(f"{self.x} is too much")
            object.__setattr__(self, "y", self.x + 1)

    return Case


@made
def derived(dataclass: Make) -> type:
    @dataclass(frozen=True)
    class Base:
        x: int
        y: int = 2

    @dataclass(frozen=True)
    class Case(Base):
        z: int = 3
        y: int = 5

        def __post_init__(self) -> None:
            assert self.z

    return Case


@made
def recursive(dataclass: Make) -> type:
    @dataclass
    class Case:
        x: Any

    return Case


@made
def fields_with_hard_names(dataclass: Make) -> type:
    @dataclass(frozen=True)
    class Case:
        _set: int
        _MISSING: int = 1
        _default0: list[int] = field(default_factory=list)

    return Case


def outcome(call: Callable[[], object]) -> object:
    """What it gives, or its error."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def described(kind: type, case: Any) -> list[object]:
    """What can be seen of an object."""
    names = [each.name for each in dataclasses.fields(kind)]
    calls: list[Callable[[], object]] = [
        lambda: repr(case),
        lambda: case == copy.copy(case),
        lambda: case == 1,
        lambda: len({case}),
        lambda: hash(case) == hash(copy.copy(case)),
        lambda: [getattr(case, name) for name in names],
        lambda: dataclasses.replace(case, x=4),
        lambda: dataclasses.asdict(case),
        lambda: setattr(case, names[0], 9),
        lambda: setattr(case, "other", 9),
        lambda: delattr(case, names[0]),
        lambda: case.once,
    ]
    return [str(outcome(call)) for call in calls]


@pytest.mark.parametrize("define", MADE.values(), ids=MADE.keys())
def test_objects_are_as_the_standard_librarys(define: Callable[[Make], type]) -> None:
    ours, theirs = define(dataclass), define(dataclasses.dataclass)
    for arguments, named in (
        ((), {}), ((1,), {}), ((1, 2), {}), ((1, 2, 3), {}), ((1, 2, 3, 4, 5, 6, 7, 8), {}),
        ((), {"x": 1}), ((), {"y": 1}), ((), {"x": 101, "y": 0}), ((1,), {"named": 2}),
        ((1,), {"other": 2}), ((1,), {"x": 2}),
    ):  # fmt: skip
        one, other = (outcome(partial(kind, *arguments, **named)) for kind in (ours, theirs))
        if isinstance(other, theirs):
            assert isinstance(one, ours)
            assert described(ours, one) == described(theirs, other)
        else:
            assert one == other


@pytest.mark.parametrize("define", MADE.values(), ids=MADE.keys())
def test_classes_are_as_the_standard_librarys(define: Callable[[Make], type]) -> None:
    ours, theirs = define(dataclass), define(dataclasses.dataclass)
    told = [
        [(f.name, f.default, f.init, f.repr, f.compare, f.kw_only) for f in dataclasses.fields(c)]
        for c in (ours, theirs)
    ]
    assert told[0] == told[1]
    assert ours.__match_args__ == theirs.__match_args__  # type: ignore[attr-defined]
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)


def test_options_hold_where_the_class_is_passed_too() -> None:
    case = dataclass(type("Case", (), {"__annotations__": {"x": int}}), frozen=True)(1)
    with pytest.raises(FrozenInstanceError):
        case.x = 2
    with pytest.raises(TypeError, match="match_args"):
        dataclass(match_args=False)(type("Case", (), {}))


def test_orders() -> None:
    kinds = [MADE["ordered"](make) for make in (dataclass, dataclasses.dataclass)]
    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        for x, y in (((1, 2), (1, 3)), ((1, 2), (1, 2)), ((2, 0), (1, 3))):
            found = {compare(kind(*x), kind(*y)) for kind in kinds}
            assert len(found) == 1
    assert "'<' not supported" in str(outcome(lambda: kinds[0](1) < 1))


def test_equal_objects_have_equal_hashes_and_others_are_told_apart() -> None:
    kind = MADE["frozen"](dataclass)
    assert {kind(1), kind(1), kind(2), kind(1, "z")} == {kind(2), kind(1), kind(1, "z")}
    assert len({kind(1), kind(1), kind(2), kind(1, "z")}) == 3
    assert kind(1) != MADE["frozen"](dataclass)(1)  # another class


def test_an_object_in_itself_is_shown() -> None:
    case = MADE["recursive"](dataclass)(1)
    case.x = case
    assert repr(case).endswith("Case(x=...)")


@dataclass(frozen=True)
class Kept:
    x: int
    y: dict[str, int] = field(default_factory=dict)


def test_objects_are_copied_and_matched() -> None:
    case = Kept(3, {"a": 1})
    assert copy.deepcopy(case) == case == copy.copy(case)
    match case:
        case Kept(x, y):
            assert (x, y) == (3, {"a": 1})
    assert Kept(1).y is not Kept(2).y
    with pytest.raises(FrozenInstanceError):
        case.x = 4  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del case.x  # type: ignore[misc]


def test_a_class_that_is_derived_without_the_decorator_is_made_by_the_same_init() -> None:
    class Derived(Kept):
        def __init__(self, x: int) -> None:
            super().__init__(x, {"b": x})

    assert Derived(2).y == {"b": 2}
    assert Derived(3).y == {"b": 3}


def test_an_init_is_compiled_once_for_all_objects() -> None:
    @dataclass
    class Case:
        x: int

    before = Case.__init__
    assert Case(1).x == 1
    compiled = Case.__init__
    assert compiled is not before
    assert [Case(2).x, Case(3).x] == [2, 3]
    assert Case.__init__ is compiled
    assert before(Case(1), 5) is None  # as one that was asked for earlier


def test_threads_may_make_the_first_objects_together() -> None:
    def attempt() -> list[int]:
        @dataclass(frozen=True)
        class Case:
            x: int

        ready = threading.Barrier(4)
        found: list[int] = []

        def make(number: int) -> None:
            ready.wait()
            found.append(Case(number).x)

        threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(found)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert all(attempt() == [0, 1, 2, 3] for _ in range(50))
    finally:
        sys.setswitchinterval(before)
