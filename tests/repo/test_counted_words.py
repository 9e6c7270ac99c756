"""Messages count in words that fit the number: by `counted`, or with a number that is no 1."""

import ast
import re

from tests.repo.source import PACKAGE, SOURCES, relative, tree

_NOUNS = "kernels|calls|threads|graphs|launches|notes|jobs|entries|manifests|nodes|barriers|gears"
_PRINTED = [p for p in SOURCES if p.is_relative_to(PACKAGE / "cli")
            or p.is_relative_to(PACKAGE / "report")]  # fmt: skip


def test_no_number_that_may_be_one_stands_before_a_plural() -> None:
    found = [
        f"{relative(path)}:{node.lineno}: {str(second.value)[:20]!r}"
        for path in _PRINTED
        for node in ast.walk(tree(path))
        if isinstance(node, ast.JoinedStr)
        for first, second in zip(node.values, node.values[1:], strict=False)
        if isinstance(first, ast.FormattedValue) and isinstance(second, ast.Constant)
        if first.format_spec is None and re.match(rf" ({_NOUNS})\b", str(second.value))
    ]
    assert found == []
