"""Recorded shapes, written and read."""

from __future__ import annotations

from collections import Counter

import pytest

from kernelmill.core.errors import GearError
from kernelmill.gears.shape_log import line_of, read_shapes


def test_lines_read_back_and_are_counted() -> None:
    one, other = {"x": (2, 3), 'b["é"]': ()}, {"x": (4, 3)}
    lines = [line_of(one), line_of(other), "\n", line_of(one)]
    assert read_shapes(lines) == Counter({(("x", (2, 3)), ('b["é"]', ())): 2, (("x", (4, 3)),): 1})


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "3", "{}", '{"shapes": 3}', '{"shapes": {"x": 3}}', '{"shapes": {"x": ["a"]}}',
     '{"shapes": {"x": [-1]}}', '{"shapes": {"x": [1.5]}}', '{"shapes": {"x": [true]}}'],
)  # fmt: skip
def test_a_line_that_is_no_record_is_named(line: str) -> None:
    with pytest.raises(GearError, match="line 2 is no record of shapes"):
        read_shapes([line_of({"x": (1,)}), line])
