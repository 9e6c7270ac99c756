"""Documents with commands do what they show, in processes of their own."""

import os
import sys

import pytest

from tests.documents import languages, run_blocks
from tests.repo.source import DOCUMENTS, ROOT, relative

WITH_COMMANDS = [path for path in DOCUMENTS if "console" in languages(path)]


@pytest.mark.parametrize("path", WITH_COMMANDS, ids=relative)
def test_code_and_commands_of_a_document_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Tutorials count kernels, so that each has a store of its own.
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path / "kernels"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    run_blocks(path, tmp_path)


def test_each_of_the_five_systems_has_a_tutorial():
    assert len([path for path in DOCUMENTS if path.parent.name == "tutorials"]) == 5
