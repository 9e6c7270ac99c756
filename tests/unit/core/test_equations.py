"""Which dims known equations make one."""

from kernelmill.core.dim import Equations, sym

N, W = sym("n", 2), sym("w", 2)


def test_the_more_complicated_operation_gives_way() -> None:
    half, quarter = (N // 4 + 1) // 2, (N // 2 + 1) // 2
    equations = Equations([(half * 2 - 1, quarter - 1)])
    assert equations.reduce(quarter * 3 + 1) == equations.reduce(half * 6 + 1)
    assert str(equations.reduce((quarter + half) // W)) == str((half * 3) // W)


def test_a_number_that_an_operation_must_be_is_that_number() -> None:
    equations = Equations([((N // 16) * 2, 2)])
    assert equations.reduce(N // 16 * W + 1) == W + 1


def test_a_multiple_has_no_rest() -> None:
    assert Equations([(N % 8, 0)]).reduce(N + N % 8) == N
    assert Equations([((N // W) * W, N)]).reduce((W - N % W) % W) == 0
    assert Equations([(N // 8 * 8, N)]).reduce((8 - N % 8) % 8) == 0


def test_symbols_and_products_stay() -> None:
    for pair in ((N, W * 2), (N * W, N + 4), (N // W * W, N + 1)):
        equations = Equations([pair])
        assert equations.reduce(pair[0]) == pair[0]
        assert equations.reduce(pair[1]) == pair[1]
        assert not equations.used


def test_equations_build_on_each_other_and_what_was_used_is_told() -> None:
    first, second, third = (N // 3, W // 5), (W // 5, 7), (N // 11, 4)
    equations = Equations([first, second, third])
    assert equations.reduce(N // 3 + 1) == 8
    assert set(equations.used) == {first, second}


def test_an_equation_without_a_rule_is_known_all_the_same() -> None:
    pair = (N // 16 * 16, N)
    equations = Equations([pair])
    assert equations.equal(N, N // 16 * 16)
    assert equations.equal(N // 16 * 16 + 3, N + 3)
    assert not equations.equal(N // 16 * 16 + 3, N)
    assert list(equations.used) == [pair]


def test_an_equation_is_known_when_a_later_one_rewrites_it() -> None:
    count = sym("c", 1)
    equations = Equations([(N // W * W, N), (N // W, count)])
    assert equations.reduce(N // W * W) == count * W
    assert equations.equal(count * W, N)
    assert set(equations.used) == {(N // W * W, N), (N // W, count)}
