"""A cache is never stale and seldom lost: rows of docs/lab/edits.md, in processes of their own."""

import pytest

from tests.e2e.cached.mutations import MUTATIONS, SUBJECT, outcome, run, started_anew
from tests.kept_methods import KEPT

pytestmark = KEPT

CHOSEN = (
    "method: comment",
    "helper of the helper",
    "value in a global dict",
    "subclass gets a forward of its own",
    "load_state_dict",
    "package beside torch, with torch's name in front: code",
    "package: version",
)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The cache that a first process left."""
    folder = tmp_path_factory.mktemp("cached")
    first = run(folder, SUBJECT.read_text())
    assert (first["traced"], first["uncached"]) == (1, 0)
    return folder


@pytest.mark.needs_internal("dispatch.mode_stacks")  # else the native entry is asked, sooner
def test_a_later_process_traces_nothing_and_imports_no_tracer(base):
    found = run(base, SUBJECT.read_text())
    assert found == {"loaded": 1, "traced": 0, "uncached": 0, "imported": []}


@pytest.mark.parametrize("what", CHOSEN)
def test_an_edit_rebuilds_what_it_touches_and_nothing_else(base, what, fresh):
    (mutation,) = [m for m in MUTATIONS if m.what == what]
    # Where torch is imported from decides what is beside it.
    python = started_anew if mutation.files else fresh.run
    assert outcome(base, mutation, python) == mutation.expected
