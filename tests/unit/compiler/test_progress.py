"""The progress bar: on a terminal, after two seconds, gone in the end."""

import io
import re

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
    monkeypatch.setattr(progress, "_REDRAW_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("columns", ["60", "120"])
def test_slow_ones_draw_a_bar_on_one_line_and_remove_it(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    text = drawn(Terminal())
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
    lines = [line for line in re.split(r"[\r\n]+", plain) if line.strip()]
    counts = [re.search(r"(\d/4) kernels", line)[1] for line in lines]
    assert list(dict.fromkeys(counts)) == ["0/4", "1/4", "2/4", "3/4", "4/4"]
    assert counts == sorted(counts)
    assert all(line.startswith("kernelmill: compiling") for line in lines)
    assert max(map(len, lines)) <= int(columns)
    assert text.rindex("\x1b[2K") > text.rindex("4/4")  # the line is erased
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back


@pytest.mark.usefixtures("slow")
def test_nothing_in_a_pipe():
    assert drawn(io.StringIO()) == ""


@pytest.mark.usefixtures("slow")
def test_a_bar_is_removed_when_what_it_counts_is_interrupted():
    stream = Terminal()
    bar = Progress(stream, "tuning", "schedules")
    bar.show(1, 9)
    bar.close()
    assert "tuning" in stream.getvalue() and stream.getvalue().count("\x1b[?25h") == 1
    bar.close()
