"""Models named as `package.module:function` or `file.py:function`.

The function takes no arguments and returns `(model, args)` or `(model, args, kwargs)`: a callable
and the arguments of a call.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import field
from functools import reduce
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError, UserCodeError

_RETURN = "it must return (model, args) or (model, args, kwargs), args a tuple and kwargs a dict"
_LIBRARIES = tuple(
    os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "purelib", "platlib")
)
_OURS = os.path.join(str(Path(__file__).parents[1]), "")


@dataclass(frozen=True)
class Factory:
    """The result of a factory, and the `name` that it was requested by."""

    name: str
    model: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])


def load(name: str) -> Factory:
    """Import the module and call the function, with the working directory (of a file: its folder)
    in front of the import path, as `python` does for a script.

    Raises ConfigError for a name without a module, file or attribute of that name, and
    UserCodeError when the module does not import, or the function raises or returns something else.
    """
    module, colon, attribute = name.rpartition(":")
    if not colon or not module or not attribute:
        raise ConfigError(f"{name!r} is not of the form module:function or file.py:function")
    found = _from_file(module) if module.endswith(".py") else _from_path(module)
    try:
        factory = reduce(getattr, attribute.split("."), cast(Any, found))
    except AttributeError:
        raise ConfigError(f"{module} has no {attribute!r}{_nearest(found)}") from None
    if not callable(factory):
        raise ConfigError(f"{name} is a {type(factory).__name__}, not a function")
    return called(factory, name)


def called(factory: Callable[[], Any], name: str) -> Factory:
    """Call a function that makes a model. UserCodeError as in `load`."""
    with user_code(f"{name} failed"):
        made = factory()
    return _checked(name, made)


@contextmanager
def user_code(what: str, *ours: type[Exception]) -> Generator[None]:
    """Convert errors of a user's code inside the context, but for those of classes of `ours`, to
    UserCodeError: `what`, then the traceback without frames of this program and of libraries."""
    try:
        yield
    except ours:
        raise
    except (Exception, SystemExit) as error:
        raise UserCodeError(f"{what}:\n{user_traceback(error)}") from error


def user_traceback(error: BaseException) -> str:
    """Return the traceback of an error in Python's format, with frames of the user's files only."""
    frames = traceback.extract_tb(error.__traceback__)
    kept = [frame for frame in frames if not _is_foreign(frame.filename)]
    left_out = len(list(takewhile(lambda frame: _is_foreign(frame.filename), reversed(frames))))
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(kept)] if kept else []
    if kept and left_out:
        lines.append(f"  ... {left_out} frames of libraries\n")
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()


def _is_foreign(file: str) -> bool:
    return file.startswith(("<", _OURS, *_LIBRARIES))


def _from_path(name: str) -> ModuleType:
    _search(os.getcwd())
    try:
        with user_code(f"{name} does not import"):
            return importlib.import_module(name)
    except UserCodeError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and _is_part(cause.name, name):
            raise ConfigError(f"no module {cause.name!r} in {os.getcwd()} or installed") from None
        raise


def _is_part(missing: str | None, name: str) -> bool:
    """Return whether the missing module is the named one or a package around it."""
    return missing is not None and f"{name}.".startswith(f"{missing}.")


def _from_file(path: str) -> ModuleType:
    if not os.path.isfile(path):
        raise ConfigError(f"no file {path}")
    path = os.path.abspath(path)
    folder, file = os.path.split(path)
    _search(folder)
    name = file.removesuffix(".py")
    if not name.isidentifier() or name in sys.modules or name in sys.stdlib_module_names:
        name = f"{name} ({folder})"  # a module of this name is not replaced
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with user_code(f"{path} does not import"):
        spec.loader.exec_module(module)
    return module


def _search(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _nearest(module: ModuleType) -> str:
    there = [name for name, value in vars(module).items() if callable(value)]
    own = [name for name in there if getattr(module, name).__module__ == module.__name__]
    return f"; it has {', '.join(own)}" if own else ""


def _checked(name: str, made: Any) -> Factory:
    parts = cast(tuple[Any, ...], made) if isinstance(made, tuple) else ()
    if len(parts) not in (2, 3):
        raise UserCodeError(f"{name} returned {_kind(made)}; {_RETURN}")
    model, args, kwargs = parts if len(parts) == 3 else (*parts, {})
    if not callable(model):
        raise UserCodeError(f"{name} returned {_kind(model)} as model; {_RETURN}")
    if not isinstance(args, (tuple, list)):
        raise UserCodeError(f"{name} returned {_kind(args)} as args; {_RETURN}")
    if not isinstance(kwargs, dict):
        raise UserCodeError(f"{name} returned {_kind(kwargs)} as kwargs; {_RETURN}")
    return Factory(name, model, tuple(cast(Any, args)), cast(Any, kwargs))


def _kind(value: Any) -> str:
    size = f" of {len(cast(Any, value))}" if isinstance(value, (tuple, list)) else ""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}{size}"
