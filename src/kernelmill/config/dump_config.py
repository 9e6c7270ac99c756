"""`config.dump_config`, and its options from a file: JSON as Ascend's runtime reads it.

    {"dump": {"dump_path": "out", "dump_mode": "output", "dump_list": [{"layer": ["mm", "relu"]}]}}

`dump_debug` and `dump_scene` have no option: they select operators that overflow, and results that
other operators may have overwritten.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from kernelmill.config.option import Choice, Group, Path, Steps, Switch, Text
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError, file_errors

_OPTIONS = ("dump_path", "dump_mode", "dump_step", "dump_data")
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "dump_debug": ("off", "on"), "dump_scene": ("", "watcher"), "dump_op_switch": ("off", "on"),
    "dump_level": ("all", "op", "kernel")
}  # fmt: skip
"""Settings of the file without an option, each with its default first."""

_NO_EFFECT: Mapping[str, str] = {
    "dump_op_switch": "operators outside of compiled code are not written",
    "dump_level": "operators are written, and no kernels of them",
    "dump_stats": "all statistics are written",
    "dump_kernel_data": "it is for kernels of an NPU",
}
_NAMED = ("layer", "watcher_nodes")
_KNOWN = dict.fromkeys((*_OPTIONS, "dump_list", *_CHOICES, *_NO_EFFECT))
_DEFAULT = {name: values[0] for name, values in _CHOICES.items()}


class _File(Path):
    """A file of dump options, which is read and checked when the option is set."""

    def check(self, where: str, value: object) -> str:
        path = super().check(where, value)
        given_in(path)
        for name, reason in _without_effect(_read(path)):
            text = f"config.{where}: {name} of {path} has no effect: {reason}"
            warnings.warn(text, UserWarning, stacklevel=4)
        return path


class DumpConfig(Group):
    """config.dump_config: operands and results of operators, written as the graph runs in torch."""

    enable_dump = Switch(
        False,
        "Runs each captured graph in torch and writes operands and results of all operators, "
        "or of those that `dump_layer` and `scope.data_dump` choose.",
        advice="To find the first operator with a wrong result.",
    )
    dump_path = Path("./", "Folder of the files.", must_be="folder")
    dump_mode = Choice("all", ("input", "output", "all"), "Tensors written for each operator.")
    dump_step = Steps("Numbers of the calls of each graph to write, from 0; '' means all.")
    dump_layer = Text(
        "",
        r"[0-9a-zA-Z_ /\\.]+",
        "mul_1 add",
        "Operators to write: names of nodes of the graph, or of operators.",
    )
    dump_data = Choice(
        "tensor",
        ("tensor", "stats"),
        "Writes values, or a line of statistics for each tensor in `statistics.csv`.",
        advice='Try "stats" first if the values of all calls would fill the disk.',
    )
    dump_config_path = _File(
        None,
        'A JSON file {"dump": {...}} of dump_path, dump_mode ("output" without it), dump_step, '
        'dump_data, and dump_list: [{"layer": [names]}]. It needs no enable_dump; options that are '
        'set take precedence. "dump_debug": "on" only writes operators with non-finite results; '
        '"dump_scene": "watcher" writes the results of watcher_nodes, and again after each layer.',
        must_be="file",
    )
    data_dump_stage = Choice(
        "optimized",
        ("original", "optimized"),
        "The graph as captured, or after custom passes and replacements. Neither "
        "has kernelmill's own rewrites.",
    )


@dataclass(frozen=True)
class Dump:
    """A request to dump: its options; `overflow`: only operators with non-finite results;
    `watched`: names of those whose results are written again after each that `dump_layer` names."""

    options: DumpConfig
    overflow: bool = False
    watched: frozenset[str] = frozenset()


def given_in(path: str) -> Dump:
    """Return the dump that a file requests. ConfigError or a subclass for invalid content."""
    given = _read(path)
    for name, value in given.items():
        if name not in _KNOWN:
            raise _wrong(path, f"{name!r} is none of {', '.join(_KNOWN)}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise _wrong(path, f"{name} is {value!r}, and none of {_CHOICES[name]}")
    options = DumpConfig(path)
    for name in _OPTIONS:
        if name in given or name == "dump_mode":
            setattr(options, name, given.get(name, "output"))
    layers, watched = (_names(path, given, kind) for kind in _NAMED)
    if all(layers):
        options.dump_layer = " ".join(each for names in layers for each in names)
    overflow, watches = given.get("dump_debug") == "on", given.get("dump_scene") == "watcher"
    if overflow + watches + (given.get("dump_op_switch") == "on") > 1:
        raise _wrong(path, "of dump_debug, dump_scene and dump_op_switch one can be on")
    if "dump_path" not in given:
        raise _wrong(path, "it has no dump_path")
    if watches != any(watched) or (watches and options.dump_mode != "output"):
        raise _wrong(path, '"watcher" needs watcher_nodes and dump_mode "output"')
    return Dump(options, overflow, frozenset(each.lower() for names in watched for each in names))


def _wrong(path: str, reason: str) -> ConfigError:
    return ConfigError(f"dump_config_path {path}: {reason}")


def _read(path: str) -> dict[str, Any]:
    try:
        with file_errors(path), open(path, encoding="utf-8") as file:
            found: Any = json.load(file)
        return dict(found["dump"])
    except (ValueError, TypeError, KeyError) as error:
        raise _wrong(path, f'it is no JSON of {{"dump": {{...}}}}: {error!r}') from None


def _names(path: str, given: Mapping[str, Any], kind: str) -> list[list[str]]:
    """Return the names of this kind in each entry of the dump_list."""
    entries: Any = given.get("dump_list", [])
    is_fine = {type(entries)} <= {list} and {type(entry) for entry in entries} <= {dict}
    named = [(name, names) for entry in entries for name, names in entry.items()] if is_fine else []
    lists = [names for name, names in named if name != "model_name"]
    known = {*_NAMED, "model_name"}
    if not is_fine or {n for n, _ in named} - known or {type(names) for names in lists} - {list}:
        raise _wrong(
            path,
            f"dump_list is {entries!r:.60}, no list of objects with {' or '.join(_NAMED)}, lists",
        )
    return [list(map(str, entry.get(kind, []))) for entry in entries]


def _without_effect(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the settings of a file that have no effect here, each with the reason."""
    for name, reason in _NO_EFFECT.items():
        if given.get(name, _DEFAULT.get(name)) != _DEFAULT.get(name):
            yield name, reason
    if "model_name" in repr(given.get("dump_list")):
        yield "model_name", "a backend compiles one model, whose graphs are all meant"
