"""What bytecode says of what code compares and asks for."""

import operator

import pytest

from kernelmill.artifact import bytecode


def of_variables(a, b):
    return a is b


def of_an_attribute(a, b):
    return a.x is b.y


def of_one_attribute(a, b):
    return a is b.y


def behind_another_attribute(a, b):
    return max(a.other, a is b)


def of_an_element(a, b, self):
    return a is b[self.place]


def of_a_call(a, b, self):
    return a is b(self.place)


def of_a_global(a):
    return a is pytest


def of_one_of_two(a, b, c):
    return max((a if c else b.x) is b, c)


def with_one_of_two(a, b, c):
    return max(a is (b if c else None), c)


def with_an_attribute_of_one_of_two(a, b):
    return a is (b or pytest).x


def by_a_function(a, b):
    return operator.is_not(a, b)


def of_constants(a):
    return a is None, a is not False, all(x for x in a)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (of_variables, {()}),
        (of_an_attribute, {("y", "x")}),
        (of_one_attribute, {("y",)}),
        (behind_another_attribute, {()}),
        (of_an_element, {()}),
        (of_a_call, {()}),
        (of_a_global, {bytecode.WITH_GLOBAL}),
        (of_constants, set()),
    ],
)
def test_what_code_compares_by_identity(function, expected):
    assert bytecode.compared_by_identity([function.__code__]) == expected


@pytest.mark.parametrize(
    "function", [of_one_of_two, with_one_of_two, with_an_attribute_of_one_of_two, by_a_function]
)
def test_what_cannot_be_told_counts_as_variables(function):
    """Python 3.12 and newer write a comparison twice, once for each of two sides."""
    assert () in bytecode.compared_by_identity([function.__code__])


def with_inner():
    def inner(x):
        return x.one is x.other or getattr(x, "inner_name", None)

    return inner


def by_text():
    return globals()["inner_name"]


def equal_attributes(x, y):
    return x.one == y.other and x.one != 3 and x.one < y.other


def of_parameters(x):
    return isinstance(x, pytest.Parameter) or x.is_leaf


def test_functions_inside_are_read_too():
    codes = [with_inner.__code__]
    assert bytecode.compared_by_identity(codes) == {("other", "one")}
    assert {"one", "other", "inner_name", "getattr"} <= bytecode.names_in(codes)


def test_texts_are_names_of_globals_where_code_looks_for_these():
    assert bytecode.globals_in(with_inner.__code__) == {"one", "other", "getattr"}
    assert "inner_name" in bytecode.globals_in(by_text.__code__)


def test_flags_that_code_asks_for():
    assert bytecode.flags_asked([of_parameters.__code__]) == {"class", "requires_grad"}
    assert bytecode.flags_asked([of_variables.__code__]) == set()
