"""`config.debug.data_dump` and `config.dump_config`: ATen runs a captured graph, and operators'
tensors are written to files.

    dynamo_data_{graph}_rank_{r}_pid_{p}/call_{n}/{number}_{node}.{input|output}{i}.npy
    dynamo_data_{graph}_rank_{r}_pid_{p}/call_{n}/operators.txt

`operators.txt` has a line for each operator: its number, name and target, and the user's line.
Dtypes that NumPy lacks, such as bfloat16, are written as float32 or complex64. With statistics,
`statistics.csv` has a line for each tensor instead of a file. The output of a watched operator is
written again after others, as {number}_{node}.{watched}.output{i}.npy.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence, Set
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.fx.node import map_aggregate

from kernelmill.config import CompilerConfig
from kernelmill.config.dump_config import Dump, DumpConfig, given_in
from kernelmill.config.option import steps_of
from kernelmill.config.super_kernel_marks import DUMP_KEY
from kernelmill.core import knobs
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import file_errors
from kernelmill.torch_internals.export import leaves_of


@dataclass(frozen=True)
class _What:
    """The selection of data: operators that are `wanted` (None: all), in the calls of `steps`
    (empty: all); statistics in place of values; only where a result is not finite; outputs of the
    operators `watched`, after the wanted ones."""

    wanted: Any = None
    kinds: Sequence[str] = ("input", "output")
    steps: Sequence[range] = ()
    statistics: bool = False
    overflow: bool = False
    watched: Set[str] = frozenset()


def asked_dump(config: DumpConfig) -> Dump | None:
    """Return the dump that the options request, which override their file; None for no dump."""
    if config.dump_config_path is None:
        return Dump(config) if config.enable_dump else None
    found = given_in(config.dump_config_path)
    for path, value in config.changed().items():
        if not path.endswith((".quant_dumpable", ".dump_config_path")):
            found.options.set(path.rpartition(".")[2], value)
    return found


def data_dump(gm: fx.GraphModule, config: CompilerConfig, name: str) -> DataDumper | None:
    """Return the function that runs a graph and writes its data, if the options request it."""
    debug, asked = config.debug.data_dump, asked_dump(config.dump_config)
    if debug.type is not None:
        return DataDumper(gm, debug.path, _What(debug.filter), name)
    if asked is None:
        return None
    dump = asked.options
    chosen = set((dump.dump_layer or "").lower().split())
    marked = {node for node in gm.graph.nodes if DUMP_KEY in (node.meta.get("custom") or {})}

    def wanted(node: fx.Node) -> bool:
        return node in marked or _is_named(node, chosen)

    what = _What(
        wanted if chosen or marked else None,
        ("input", "output") if dump.dump_mode == "all" else (dump.dump_mode,),
        steps_of(dump.dump_step or ""), dump.dump_data == "stats", asked.overflow, asked.watched,
    )  # fmt: skip
    return DataDumper(gm, dump.dump_path, what, name)


def _is_named(node: fx.Node, names: Set[str]) -> bool:
    packet = getattr(node.target, "overloadpacket", node.target)
    return bool(names & {node.name, getattr(packet, "__name__", "")})


class DataDumper:
    """A function that computes the results of `gm`, and writes the files of each call."""

    def __init__(self, gm: fx.GraphModule, path: str | None, what: _What, name: str) -> None:
        self._gm, self._what = gm, what
        own = f"dynamo_data_{name}_rank_{knobs.RANK.get()}"
        self._folder = os.path.join(os.path.abspath(path or "."), own)
        self._calls = 0

    def __call__(self, *args: Any) -> Any:
        call = self._calls
        self._calls += 1
        if self._what.steps and not any(call in step for step in self._what.steps):
            return self._gm.forward(*args)
        # A forked child counts on from the fork, in a folder of its own.
        folder = os.path.join(f"{self._folder}_pid_{os.getpid()}", f"call_{call}")
        with file_errors(folder):
            os.makedirs(folder)
        return _Dumping(self._gm, folder, self._what).run(*args)


class _Dumping(fx.Interpreter):
    def __init__(self, gm: fx.GraphModule, folder: str, what: _What) -> None:
        super().__init__(gm)
        self._folder, self._what, self._number = folder, what, 0
        self._seen: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        if n.op not in ("call_function", "call_method", "call_module"):
            return super().run_node(n)
        what, read = self._what, self.fetch_args_kwargs_from_env(n)
        wanted = what.wanted is None or what.wanted(n)
        self._number += 1
        if what.overflow:
            read = map_aggregate(read, _copied)
        elif wanted:  # before it runs: some operators write to what they read
            self._note(n)
            self._write(n, "input", read)
        result = super().run_node(n)
        if what.overflow:
            wanted = wanted and not all(np.isfinite(values).all() for _, values in _arrays(result))
            if wanted:
                self._note(n)
                self._write(n, "input", read)
        if what.watched:
            for name, value in self._seen.items() if wanted else ():
                self._write(n, f"{name}.output", value)
            wanted = _is_named(n, what.watched)
            if wanted:
                self._seen[n.name] = result
        if wanted:
            self._write(n, "output", result)
        return result

    def _note(self, node: fx.Node) -> None:
        lines = str(node.meta.get("stack_trace") or "").strip().splitlines()
        where = lines[-2].strip() if len(lines) > 1 else ""
        with open(os.path.join(self._folder, "operators.txt"), "a") as file:
            file.write(f"{self._number - 1:04} {node.name} {node.target} {where}".rstrip() + "\n")

    def _write(self, node: fx.Node, kind: str, tree: Any) -> None:
        if kind.rpartition(".")[2] not in self._what.kinds:
            return
        stem = f"{self._number - 1:04}_{node.name}.{kind}"
        if not self._what.statistics:
            for place, (_, values) in enumerate(_arrays(tree)):
                np.save(os.path.join(self._folder, f"{stem}{place}.npy"), values)
            return
        path = os.path.join(self._folder, "statistics.csv")
        with open(path, "a", newline="") as file:
            rows = csv.writer(file)
            if not file.tell():
                rows.writerow(_COLUMNS)
            for place, (tensor, values) in enumerate(_arrays(tree)):
                shape = "x".join(map(str, tensor.shape))
                dtype = str(tensor.dtype).removeprefix("torch.")
                rows.writerow([f"{stem}{place}", node.target, dtype, shape, *_statistics(values)])


_COLUMNS = "tensor operator dtype shape min max mean l2_norm nan inf".split()


def _statistics(values: Any) -> list[Any]:
    """Return min, max, mean and norm of finite numbers, "" if none, and counts of nan and inf."""
    flat = values.ravel()
    magnitudes = np.abs(flat) if np.iscomplexobj(flat) else flat.astype(np.float64)
    nans, infinite = np.isnan(magnitudes), np.isinf(magnitudes)
    finite = magnitudes[~(nans | infinite)]
    found = (
        [finite.min(), finite.max(), finite.mean(), np.linalg.norm(finite)] if finite.size else []
    )
    return [*map(float, found), *[""] * (4 - len(found)), int(nans.sum()), int(infinite.sum())]


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _arrays(tree: Any) -> Iterator[tuple[Tensor, Any]]:
    """Yield the tensors of a tree, each with its values as an array."""
    for tensor in leaves_of(tree):
        if not isinstance(tensor, Tensor):
            continue
        shown = tensor.detach().resolve_conj().resolve_neg().cpu()
        try:
            found = shown.numpy()
        except TypeError:  # NumPy lacks it
            found = shown.to(torch.complex64 if shown.dtype.is_complex else torch.float32).numpy()
        yield tensor, found
