"""Jobs: models to compile, with sizes, processors and options."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, cast

from kernelmill.config.tree import is_int_list
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError
from kernelmill.core.target.isa import NAMED

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,100}")
NATIVE = "native"
_FIELDS = ("model", "name", "targets", "gears", "options")

Gears = Mapping[str, Mapping[int, Sequence[int]]]
"""Sizes by argument and dim."""


@dataclass(frozen=True)
class Job:
    """A model to compile.

    model    "package.module:function" or "file.py:function", or the function itself, which takes
             no arguments and returns (model, args) or (model, args, kwargs). Or the path of a
             `.kmill` file, or a torch.export.ExportedProgram.
    name     name of its manifest; by default the model's
    targets  named ISAs; "native" is this machine's
    gears    gears of arguments by position ("0") or name, as for `inference.set_dim_gears`; only
             for functions
    options  values by the dotted names of `CompilerConfig`'s options

    Raises ConfigError for invalid values.
    """

    model: Any
    name: str = ""
    targets: tuple[str, ...] = (NATIVE,)
    gears: Gears = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", _name_of(self.model))
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"job name {self.name!r}: letters, digits, '.', '_' and '-' only, 100 at most"
            )
        if not self.targets:
            raise ConfigError(f"job {self.name}: no targets")
        for target in self.targets:
            if target != NATIVE and target not in NAMED:
                known = ", ".join([NATIVE, *NAMED])
                raise ConfigError(f"job {self.name}: there is no target {target!r}; {known}")
        if self.gears and not self.is_function:
            raise ConfigError(
                f"job {self.name}: gears are for functions; {self.model} has its sizes already"
            )

    @property
    def is_file(self) -> bool:
        """True if the model is a `.kmill` file."""
        return isinstance(self.model, (str, os.PathLike)) and str(self.model).endswith(".kmill")

    @property
    def is_function(self) -> bool:
        """True if the model is made by a function."""
        named = isinstance(self.model, str) and not self.is_file
        return named or (callable(self.model) and not hasattr(self.model, "graph_signature"))


def _name_of(model: Any) -> str:
    if isinstance(model, (str, os.PathLike)):
        stem = os.path.basename(str(model)).removesuffix(".kmill")
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", stem.rpartition(":")[2] or stem).strip("-.")
    return str(getattr(model, "__name__", type(model).__name__))


def read_jobs(path: str | os.PathLike[str]) -> list[Job]:
    """Return the jobs of a TOML file: a table [[job]] for each, with the fields of `Job`.

    ConfigError names the file and the field that is wrong.
    """
    path = os.fspath(path)
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    _check_names(document, ("job",), path)
    tables = document.get("job")
    if not isinstance(tables, list) or not tables:
        raise ConfigError(f"{path}: no [[job]]")
    jobs = [_job(table, f"{path}: job {n}") for n, table in enumerate(cast(list[Any], tables), 1)]
    names = [job.name for job in jobs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{path}: two jobs are called {twice[0]!r}; give them names")
    return jobs


def _job(table: Any, where: str) -> Job:
    _check_names(table, _FIELDS, where)
    if not isinstance(table.get("model"), str):
        raise ConfigError(f"{where}: model must be a text: module:function, or a .kmill file")
    targets: Any = table.get("targets", [NATIVE])
    if not isinstance(targets, list):
        raise ConfigError(f"{where}: targets: expected a list")
    try:
        return Job(
            table["model"],
            _text(table.get("name", ""), "name"),
            tuple(_text(one, "targets") for one in cast(list[Any], targets)),
            _gears(table.get("gears", {})),
            _flat(_table(table.get("options", {}), "options")),
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _check_names(table: Any, known: Sequence[str], where: str) -> None:
    unknown = sorted(set(_table(table, where)) - set(known))
    if unknown:
        raise ConfigError(f"{where}: there is no field {unknown[0]!r}; {', '.join(known)}")


def _table(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{what}: expected a table")
    return cast(Mapping[str, Any], value)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{what}: {value!r} is no text")
    return value


def _gears(value: Any) -> Gears:
    found: dict[str, dict[int, list[int]]] = {}
    for argument, dims in _table(value, "gears").items():
        found[argument] = {}
        for dim, sizes in _table(dims, f"gears.{argument}").items():
            if not dim.isdecimal() or not is_int_list(sizes):
                raise ConfigError(f"gears.{argument}.{dim}: expected dim = [sizes]")
            found[argument][int(dim)] = sizes
    return found


def _flat(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten options; tables are groups: [job.options.debug.graph_dump] type = "py"."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, dict):
            found.update(_flat(cast(Mapping[str, Any], value), f"{prefix}{name}."))
        else:
            found[f"{prefix}{name}"] = value
    return found
