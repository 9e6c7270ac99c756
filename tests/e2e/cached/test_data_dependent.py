"""Cached methods whose sizes depend on the contents of tensors, in one process after another."""

from tests.e2e.cached.test_processes import HERE, environment, output_of, start
from tests.kept_methods import KEPT

pytestmark = KEPT


def test_sizes_found_while_running_are_found_by_later_processes_too(fresh, tmp_path):
    command = (HERE.parent / "data_dependent.py", "cached", tmp_path)
    traced = fresh.output(*command, cwd=tmp_path, env=environment(tmp_path)).strip()
    assert traced == "{'loaded': 0, 'traced': 4, 'uncached': 0} True"
    loaded = output_of(start(tmp_path, *command)).strip()  # imports are asked for
    assert loaded == "{'loaded': 4, 'traced': 0, 'uncached': 0} False"
