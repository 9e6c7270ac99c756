"""Models named on the command line: what is found, and what is said when it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernelmill.core.errors import ConfigError, UserCodeError
from kernelmill.core.factory import load, user_code

SOURCE = """
import json

def model():
    return abs, (-3,)

def with_kwargs():
    return sorted, [[2, 1]], {"reverse": True}

def raises():
    return _deep()

def _deep():
    raise ValueError("no such weights")

def in_a_library():
    return json.loads("{")

def leaves():
    raise SystemExit(4)

def nothing():
    return None

def no_model():
    return 3, ()

def no_args():
    return abs, 3

def no_kwargs():
    return abs, (), 3

number = 3

class Models:
    @staticmethod
    def small():
        return abs, (1,)
"""


@pytest.fixture(autouse=True)
def own_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "package").mkdir()
    for path in ("mine.py", "package/inner.py"):
        (tmp_path / path).write_text(SOURCE)
    (tmp_path / "broken.py").write_text("import json\n\njson.loads('{')\n")
    (tmp_path / "unreadable.py").write_text("def f(:\n")
    (tmp_path / "needs.py").write_text("import kernelmill_none\n")
    return str(tmp_path / "mine.py")


def test_files_and_modules_are_found(file: str) -> None:
    for name in (f"{file}:model", "mine.py:model", "mine:model", "package.inner:model"):
        made = load(name)
        assert (made.model, made.args, made.kwargs) == (abs, (-3,), {})
    made = load("mine:with_kwargs")
    assert made.model(*made.args, **made.kwargs) == [2, 1]
    assert load("mine:Models.small").args == (1,)


def test_a_file_does_not_take_a_librarys_place(file: str, tmp_path: Path) -> None:
    import json

    (tmp_path / "json.py").write_text(SOURCE.replace("import json", "import json as real"))
    assert load("json.py:model").args == (-3,)
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine", "'mine' is not of the form module:function or file.py:function"),
        ("mine:", "is not of the form"),
        (":model", "is not of the form"),
        ("none.py:model", "no file none.py"),
        ("kernelmill_none:model", "no module 'kernelmill_none'"),
        ("package.none:model", "no module 'package.none'"),
        ("mine:modle", "mine has no 'modle'; it has model, with_kwargs"),
        ("mine:number", "mine:number is a int, not a function"),
    ],
)
def test_wrong_names(file: str, name: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(name)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine:nothing", "mine:nothing returned a NoneType; it must return (model, args)"),
        ("mine:no_model", "returned an int as model"),
        ("mine:no_args", "returned an int as args"),
        ("mine:no_kwargs", "returned an int as kwargs"),
        ("mine:leaves", "mine:leaves failed:"),
        ("needs:model", "No module named 'kernelmill_none'"),
        ("unreadable.py:f", "SyntaxError"),
    ],
)
def test_wrong_code(file: str, name: str, said: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        load(name)
    assert said in str(caught.value)


def test_the_traceback_is_the_users_part(file: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        load("mine.py:raises")
    lines = str(caught.value).splitlines()
    assert lines[0] == "mine.py:raises failed:" and lines[1].startswith("Traceback (most recent")
    assert [line.strip() for line in lines if line.strip(" ^~") and line[:4] == "    "] == [
        "return _deep()",
        'raise ValueError("no such weights")',
    ]
    assert lines[-1] == "ValueError: no such weights"
    assert "factory.py" not in str(caught.value)


def test_frames_of_libraries_are_counted(file: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        load("mine:in_a_library")
    assert 'return json.loads("{")' in str(caught.value)
    assert "  ... 3 frames of libraries\n" in str(caught.value)
    with pytest.raises(UserCodeError) as caught:
        load("broken.py:f")
    assert "json.loads('{')" in str(caught.value) and "does not import" in str(caught.value)


def test_ctrl_c_is_not_the_users_error() -> None:
    with pytest.raises(KeyboardInterrupt), user_code("mine failed"):
        raise KeyboardInterrupt
