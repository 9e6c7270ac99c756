"""`run_script`: a script as `python script.py` runs it, in a prepared process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import TracebackType

from kernelmill.core.errors import ConfigPathError

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

_OURS = os.path.dirname(__file__)


class _Loader(SourceFileLoader):
    """A loader that compiles the source each time and keeps no bytecode, as for a script."""

    def path_stats(self, path: str) -> dict[str, float]:
        raise OSError(f"{path} is not kept as byte code")


def run_script(path: str, arguments: Sequence[str], before: Callable[[], None]) -> int:
    """Run the script as `__main__`; return the exit code. `before` is called once the script is
    found.

    `sys.argv`, `sys.path[0]` and `__main__` are the script's from here on. `sys.excepthook` shows
    its errors, from the script's first line on. ConfigPathError where there is no such file.
    """
    if not os.path.isfile(path):
        raise ConfigPathError(f"no script {path!r}")
    before()
    full = os.path.abspath(path)
    loader = _Loader("__main__", full)
    spec = spec_from_loader("__main__", loader)
    assert spec is not None
    module = module_from_spec(spec)
    module.__spec__ = None
    module.__dict__.pop("__cached__", None)
    sys.modules["__main__"] = module
    sys.argv = [path, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    try:
        loader.exec_module(module)
    except SystemExit as end:
        return _exit_code(end.code)
    except BaseException as error:
        error.__traceback__ = _from_script(error.__traceback__, full)
        sys.excepthook(type(error), error, error.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _exit_code(code: object) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _from_script(traceback: TracebackType | None, script: str) -> TracebackType | None:
    """Return the frames from the script's first one on, without those of this package."""
    frames: list[TracebackType] = []
    inside = False
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        inside = inside or file == script
        if inside and os.path.dirname(file) != _OURS:
            frames.append(traceback)
        traceback = traceback.tb_next
    for frame, following in zip(frames, [*frames[1:], None], strict=False):
        frame.tb_next = following
    return frames[0] if frames else None
