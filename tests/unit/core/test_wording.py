import pytest

from kernelmill.core.text import counted


@pytest.mark.parametrize(
    "count, noun, words",
    [
        (1, "kernel", "1 kernel"),
        (0, "kernel", "0 kernels"),
        (2, "super kernel", "2 super kernels"),
        (3, "launch", "3 launches"),
        (1, "launch", "1 launch"),
        (2, "entry", "2 entries"),
    ],
)
def test_one_of_them_has_the_noun_as_it_is(count: int, noun: str, words: str) -> None:
    assert counted(count, noun) == words
