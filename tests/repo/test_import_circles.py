"""No file of the package needs itself by way of the files that it imports."""

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def circle(imports: dict[str, set[str]]) -> list[str]:
    """One of the circles, from a file to itself; none where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_file_imports_itself_by_way_of_others() -> None:
    # Imports inside of functions and for type checkers alone count: who reads a file needs these.
    graph = grimp.build_graph("kernelmill", cache_dir=None)
    imports = {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
    assert len(imports) > 400
    assert circle(imports) == []


@pytest.mark.parametrize(
    ("imports", "found"),
    [({"a": {"b"}, "b": {"c"}, "c": set()}, 0), ({"a": {"b"}, "b": {"c"}, "c": {"a"}}, 4)],
)
def test_circles_are_found(imports: dict[str, set[str]], found: int) -> None:
    assert len(circle(imports)) == found
