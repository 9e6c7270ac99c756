"""The progress bar: on a terminal, after two seconds, gone in the end."""

import contextlib
import io
import os
import pty
import re
import threading

import pytest
import torch

import kernelmill
from kernelmill.compiler import progress, tuning
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


@contextlib.contextmanager
def terminal():
    """Inside, standard error is a terminal. The list has what it shows when that has ended; it is
    read meanwhile, lest writing waits for a reader."""
    master, slave = pty.openpty()
    seen = []
    reader = threading.Thread(target=_read, args=(master, seen))
    reader.start()
    try:
        with open(slave, "w") as stream, contextlib.redirect_stderr(stream):
            yield seen
    finally:
        reader.join()
        os.close(master)


def _read(master, seen):
    # A terminal of which the last end was closed gives an error.
    with contextlib.suppress(OSError):
        while data := os.read(master, 4096):
            seen.append(data)


@pytest.mark.usefixtures("slow")
def test_tuning_draws_its_bar_on_a_terminal(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(tuning, "_measure", lambda programs, *_: dict.fromkeys(programs, 1))
    config = kernelmill.CompilerConfig()
    config.aoe_config.aoe_mode = "2"
    model = torch.compile(
        torch.nn.Linear(64, 48), backend=kernelmill.get_backend(compiler_config=config)
    )
    with torch.no_grad(), terminal() as seen:
        assert model(torch.randn(32, 64)).shape == (32, 48)
    text = b"".join(seen).decode()
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
    lines = [line for line in re.split(r"[\r\n]+", plain) if "tuning" in line]
    counts = [re.search(r"(\d+)/(\d+) schedules", line).groups() for line in lines]
    done = [int(number) for number, _ in counts]
    assert done == sorted(done) and done[0] == 0
    assert counts[-1][0] == counts[-1][1] != "0", "all of them were measured"
    assert text.rindex("\x1b[2K") > text.rindex("schedules"), "the bar was removed"
