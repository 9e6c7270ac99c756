"""The line of progress: where somebody looks, after two seconds, gone in the end."""

import contextlib
import io
import logging
import os
import pty
import re
import sys
import threading

import pytest
import torch

import kernelmill
from kernelmill.compiler import progress, tuning
from kernelmill.compiler.progress import ProgressLine
from kernelmill.runtime import background


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Cell(io.StringIO):
    """As standard error is in a notebook."""

    __module__ = "ipykernel.iostream"


def drawn(stream, name="model"):
    line = ProgressLine(stream)
    for done in range(5):
        line.show(done, 4, name)
    line.close()
    return stream.getvalue()


def screen(text):
    """What a terminal shows in its line after each carriage return, and in the end."""
    shown, line = [], ""
    for part in text.split("\r"):
        line = part + line[len(part) :]
        shown.append(line.rstrip())
    return shown


def test_quick_compiles_draw_nothing(monkeypatch):
    monkeypatch.setattr(progress, "DELAY_SECONDS", 3600.0)
    assert drawn(Terminal()) == ""


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_REDRAW_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("stream", [Terminal, Cell])
def test_slow_ones_draw_one_line_and_remove_it(stream):
    text = drawn(stream())
    *lines, last = [line for line in screen(text) if line] + [screen(text)[-1]]
    assert [line.partition(",")[0] for line in lines] == [
        f"kernelmill: compiling model: {done} of 4 kernels" for done in range(5)
    ]
    assert all(re.fullmatch(r".*, \d+ s", line) for line in lines)
    assert last == "" and text.endswith("\r") and "\n" not in text


@pytest.mark.usefixtures("slow")
def test_a_shorter_line_leaves_nothing_of_a_longer_one():
    stream = Terminal()
    line = ProgressLine(stream)
    line.show(1, 2, "a" * 20)
    line.show(2, 2, "b")
    line.close()
    (shown,) = (each for each in screen(stream.getvalue()) if "2 of 2" in each)
    assert re.fullmatch(r"kernelmill: compiling b: 2 of 2 kernels, \d+ s", shown)


@pytest.mark.usefixtures("slow")
def test_a_line_is_no_longer_than_the_terminal_is_wide_and_moves_no_cursor():
    text = drawn(Terminal(), "\x1b[2J" + "x" * 200)
    assert max(map(len, text.split("\r"))) < 80 and "\x1b" not in text


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("name", ["KERNELMILL_PROGRESS", "TERM"])
def test_it_can_be_switched_off(monkeypatch, name):
    monkeypatch.setenv(name, {"KERNELMILL_PROGRESS": "0", "TERM": "dumb"}[name])
    assert drawn(Terminal()) == ""


def test_a_wrong_setting_is_told(monkeypatch):
    monkeypatch.setenv("KERNELMILL_PROGRESS", "never")
    with pytest.raises(kernelmill.ConfigError, match="KERNELMILL_PROGRESS='never': expected 1"):
        ProgressLine()


@pytest.mark.usefixtures("slow")
def test_nothing_in_a_pipe():
    assert drawn(io.StringIO()) == ""


class Hung(Terminal):
    def write(self, text):
        raise OSError("the terminal has hung up")


@pytest.mark.usefixtures("slow")
def test_a_stream_that_cannot_be_written_to_stops_nothing(monkeypatch):
    closed = Terminal()
    closed.close()
    monkeypatch.setattr(sys, "stderr", None)  # as in pythonw, and for some services
    for stream in (Hung(), closed, None):
        line = ProgressLine(stream)
        line.show(1, 2)
        line.close()


@pytest.mark.usefixtures("slow")
def test_of_several_compiles_the_first_draws():
    stream = Terminal()
    first, second = ProgressLine(stream, "compiling"), ProgressLine(stream, "tuning")
    first.show(1, 2)
    other = threading.Thread(target=second.show, args=(1, 2))
    other.start()
    other.join()
    first.close()
    assert "compiling" in stream.getvalue() and "tuning" not in stream.getvalue()
    second.show(1, 2)
    second.close()
    assert "tuning" in stream.getvalue()


@pytest.mark.usefixtures("slow")
def test_nothing_is_drawn_in_the_background():
    stream = Terminal()

    def work():
        drawn(stream)
        yield

    background.submit(work)
    background.wait()
    assert stream.getvalue() == ""


@pytest.mark.usefixtures("slow")
def test_a_line_is_removed_when_what_it_counts_is_interrupted():
    stream = Terminal()
    line = ProgressLine(stream, "tuning", "schedules")
    line.show(1, 9)
    line.close()
    line.close()
    assert "tuning: 1 of 9 schedules" in stream.getvalue()
    assert screen(stream.getvalue())[-1] == ""


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


@pytest.fixture
def model(tmp_path, monkeypatch):
    """One that is compiled and tuned anew."""
    monkeypatch.setenv("KERNELMILL_KERNEL_META", str(tmp_path))
    monkeypatch.setattr(tuning, "_measure", lambda programs, *_: dict.fromkeys(programs, 1))
    config = kernelmill.CompilerConfig()
    config.aoe_config.aoe_mode = "2"
    torch.compiler.reset()
    return torch.compile(
        torch.nn.Linear(64, 48), backend=kernelmill.get_backend(compiler_config=config)
    )


@pytest.mark.usefixtures("slow")
def test_tuning_and_compiling_draw_on_a_terminal(model):
    with torch.no_grad(), terminal() as seen:
        assert model(torch.randn(32, 64)).shape == (32, 48)
    lines = screen(b"".join(seen).decode())
    counts = [re.search(r"tuning: (\d+) of (\d+) schedules", line) for line in lines]
    done = [(int(found[1]), int(found[2])) for found in counts if found]
    assert done == sorted(done) and done[0][0] == 0
    assert done[-1][0] == done[-1][1] != 0, "all of them were measured"
    assert any(re.match(r"kernelmill: compiling \w+: 2 of 2 kernels", line) for line in lines)
    assert lines[-1] == "", "the line was removed"


def test_a_compile_is_one_line_of_the_log_when_it_is_done(model, caplog):
    with torch.no_grad(), caplog.at_level(logging.INFO, "kernelmill.compiler"):
        model(torch.randn(32, 64))
    said = [r.getMessage() for r in caplog.records if r.filename == "linking.py"]
    (line,) = said
    assert re.match(r"\w+: 2 kernels \(2 compiled, 0 reused\), 0 ATen calls in \d+\.\d s: ", line)
