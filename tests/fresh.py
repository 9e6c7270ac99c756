"""New Python processes without the seconds that importing torch and its tracer takes.

They are forks of a process that has imported what is not ours and done nothing else: kernelmill
itself is imported anew, with the settings of its environment. Two such processes take turns, so
that of two processes that a test starts after another each has its own hash seed and addresses.

Not for tests of what an import does: of what is imported in the end, of OMP_* variables, of who
asks for a C compiler. As a script this file is the process that forks.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_IMPORTED = (
    "functorch.compile", "llvmlite.binding", "torch._dynamo.backends.registry",
    "torch.export._trace", "torch.fx.experimental.proxy_tensor", "tvm_ffi",
)  # fmt: skip
"""What tracing and compiling import that is not ours."""

_SECONDS = 600
"""After which a process is ended that would hang."""


@dataclass(frozen=True)
class Started:
    """A process that runs, or did."""

    forker: subprocess.Popen[str]
    folder: Path
    number: int

    def result(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end, which is told once; an exit code below 0 is a signal's."""
        assert self.forker.stdout is not None
        code = int(self.forker.stdout.readline())
        out, err = (self._file(stream).read_text() for stream in ("out", "err"))
        return subprocess.CompletedProcess([], code, out, err)

    def _file(self, stream: str) -> Path:
        return self.folder / f"{self.number}.{stream}"


class FreshProcesses:
    """Starts processes, two of them at a time at most."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._forkers: list[subprocess.Popen[str]] = []
        self._count = 0

    def start(
        self, *arguments: object, cwd: str | Path, env: Mapping[str, str] | None = None
    ) -> Started:
        """Python with these arguments: a script, "-c" and a text, or "-m" and a module, and what it
        is to find in sys.argv. `env` is all of its environment, that of this process if None."""
        number = self._count
        self._count += 1
        if number < 2:
            self._forkers.append(_forker())
        started = Started(self._forkers[number % 2], self.folder, number)
        request = {
            "arguments": [*map(str, arguments)], "cwd": str(cwd),
            "env": dict(os.environ if env is None else env),
            "out": str(started._file("out")), "err": str(started._file("err")),
        }  # fmt: skip
        assert started.forker.stdin is not None
        started.forker.stdin.write(json.dumps(request) + "\n")
        started.forker.stdin.flush()
        return started

    def run(
        self, *arguments: object, cwd: str | Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """As `start`, when it has ended."""
        return self.start(*arguments, cwd=cwd, env=env).result()

    def output(
        self, *arguments: object, cwd: str | Path, env: Mapping[str, str] | None = None
    ) -> str:
        """What a process printed. AssertionError with its errors if it failed."""
        done = self.run(*arguments, cwd=cwd, env=env)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def end(self) -> None:
        """No more processes."""
        for forker in self._forkers:
            forker.communicate("")


@contextmanager
def fresh_processes(folder: Path) -> Iterator[FreshProcesses]:
    """The processes of a test session, their output in files of `folder`."""
    processes = FreshProcesses(folder)
    try:
        yield processes
    finally:
        processes.end()


def _forker() -> subprocess.Popen[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith("KERNELMILL_")
    }
    environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # torch would import kernelmill
    return subprocess.Popen(
        [sys.executable, __file__], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def _serve() -> None:
    """Fork for each line of the standard input, and say how each child ended."""
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # a child that ends need not look at what is imported here
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(json.loads(line))
            return
        status = os.waitpid(child, 0)[1]
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(request: dict[str, Any]) -> None:
    """Become the process: only what Python does when it ends comes after this."""
    signal.alarm(_SECONDS)
    os.chdir(request["cwd"])
    streams = ((0, os.devnull), (1, request["out"]), (2, request["err"]))
    for number, path in streams:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["env"])
    if threads := os.environ.get("OMP_NUM_THREADS"):
        import torch

        torch.set_num_threads(int(threads))  # OpenMP has read the variable long ago
    kind, *rest = request["arguments"]
    first = {"-c": "", "-m": os.getcwd()}.get(kind, os.path.dirname(os.path.abspath(kind)))
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [first, *filter(None, given), *sys.path[1:]]
    sys.path_importer_cache.clear()
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    if kind == "-c":
        name, text, sys.argv[:] = "<string>", rest[0], ["-c", *rest[1:]]
    else:
        name = _file_of(rest.pop(0), main) if kind == "-m" else os.path.abspath(kind)
        main.__file__ = name
        text, sys.argv[:] = Path(name).read_text(), [name if kind == "-m" else kind, *rest]
    code = compile(text, name, "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102  # a test's own text


def _file_of(name: str, main: types.ModuleType) -> str:
    """That of a module which is to run as the main one."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None, name
    main.__spec__, main.__package__ = spec, spec.parent
    return spec.origin


if __name__ == "__main__":
    _serve()
