"""Documents with commands do what they show, in processes of their own."""

import pytest

from tests.documents import as_reader, languages, run_blocks
from tests.repo.source import DOCUMENTS, relative

WITH_COMMANDS = [path for path in DOCUMENTS if "console" in languages(path)]


@pytest.mark.parametrize("path", WITH_COMMANDS, ids=relative)
def test_code_and_commands_of_a_document_run(path, tmp_path, monkeypatch):
    as_reader(monkeypatch, tmp_path / "home", tmp_path / "work")
    run_blocks(path)


def test_each_of_the_five_systems_has_a_tutorial():
    assert len([path for path in DOCUMENTS if path.parent.name == "tutorials"]) == 5
