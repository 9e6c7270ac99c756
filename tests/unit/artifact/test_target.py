"""Arguments become one value for each parameter, as Python passes them."""

import functools
import inspect

import pytest

from kernelmill.artifact.target import Binder, Target

BINDER = Binder(("x", "parts", "mode"), 2)


def test_arguments_come_in_the_order_of_the_parameters():
    for args, kwargs in [
        ((1, 2), {"mode": 3}), ((1,), {"mode": 3, "parts": 2}),
        ((), {"mode": 3, "parts": 2, "x": 1}),
    ]:  # fmt: skip
        assert BINDER.values(args, kwargs) == (1, 2, 3)
    given = (1, 2)
    assert Binder(("x", "y"), 2).values(given, {}) is given
    assert Binder(("x", "y"), 2, {"y": 5}).values((1,), {}) == (1, 5)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1, 2, 3), {}, "takes 2 arguments by position, got 3"),
        ((1,), {"mode": 3}, "argument 'parts' is missing: the program takes 'x', 'parts', 'mode'"),
        ((1, 2), {"x": 1, "mode": 3}, "argument 'x' is given twice"),
        ((1, 2), {"y": 1, "mode": 3}, "argument 'y' is unknown"),
    ],
)
def test_what_does_not_fit_is_named(args, kwargs, message):
    assert BINDER.values(args, kwargs) is None
    assert message in BINDER.refusal(args, kwargs)


def test_values_become_a_call_again():
    assert BINDER.apart((1, 2, 3)) == ((1, 2), {"mode": 3})
    assert BINDER.by_position == ("x", "parts")

    def anything(self, *args, x=1):
        raise NotImplementedError

    binder = Binder.of(inspect.signature(anything))
    assert binder.by_position == ()
    assert binder.values((1, 2, 3), {"x": 4}) == (1, (2, 3), 4)
    assert binder.values((), {}) is None and binder.values((1,), {"y": 2}) is None
    assert binder.apart((1, (2,), 3)) is None


def test_what_else_is_passed_by_name_is_a_value():
    def more(first, second=2, *, last=3, **rest):
        raise NotImplementedError

    binder = Binder.of(inspect.signature(more))
    assert binder.values((1,), {}) == (1, 2, 3, {})
    assert binder.values((1,), {"last": 5, "other": 6}) == (1, 2, 5, {"other": 6})
    assert binder.values((), {"second": 5, "first": 6}) == (6, 5, 3, {})
    assert binder.values((1,), {"first": 5}) is None
    assert binder.values((1, 2, 3), {}) is None and binder.values((), {"other": 1}) is None


def test_a_decorated_function_is_what_its_decorator_made():
    @functools.wraps(BINDER.values)
    def wrapper(*args, **kwargs):
        return args, kwargs

    target = Target.of(wrapper)
    assert target.binder.names == ("args", "kwargs") and target.rest == (("argument", "kwargs"),)
    assert target.values((1,), {"x": 2}) == ((1,), {"x": 2})
