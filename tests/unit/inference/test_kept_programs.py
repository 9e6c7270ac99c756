"""The order in which the programs of a function are tried."""

from types import SimpleNamespace
from typing import Any

from kernelmill.inference.kept_programs import current_first


def test_programs_of_the_current_state_come_first_and_no_more_are_looked_at_than_tried() -> None:
    looked_at = list[int]()

    def program(number: int, current: bool) -> Any:
        def is_current() -> bool:
            looked_at.append(number)
            return current

        return SimpleNamespace(number=number, bound=SimpleNamespace(is_current=is_current))

    programs = [program(0, False), program(1, True), program(2, False), program(3, True)]
    tried = current_first(programs)
    assert next(tried) is programs[1] and looked_at == [0, 1]
    assert [each.number for each in tried] == [3, 0, 2] and looked_at == [0, 1, 2, 3]
    assert list(current_first(programs[:1])) == programs[:1] and looked_at == [0, 1, 2, 3]
