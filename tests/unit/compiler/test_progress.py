"""The progress bar: on a terminal, after a second, gone in the end."""

import io

import pytest

from kernelmill.compiler import progress
from kernelmill.compiler.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def drawn(stream):
    bar = Progress(stream)
    for done in range(5):
        bar.show(done, 4)
    bar.close()
    return stream.getvalue()


def test_quick_compiles_draw_nothing(monkeypatch):
    monkeypatch.setattr(progress, "DELAY_SECONDS", 3600.0)
    assert drawn(Terminal()) == ""


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0.0)


@pytest.mark.usefixtures("slow")
def test_slow_ones_draw_a_bar_and_remove_it():
    text = drawn(Terminal())
    assert "[###############...............] 2/4 kernels" in text
    assert text.endswith("4/4 kernels\r\x1b[K")


@pytest.mark.usefixtures("slow")
def test_nothing_in_a_pipe():
    assert drawn(io.StringIO()) == ""
