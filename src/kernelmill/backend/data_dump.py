"""`config.debug.data_dump` and `config.dump_config`: a captured graph run by ATen, with operators'
data as files.

    dynamo_data_{graph}_rank_{r}_pid_{p}/call_{n}/{number}_{node}.{input|output}{i}.npy
    dynamo_data_{graph}_rank_{r}_pid_{p}/call_{n}/operators.txt

`operators.txt` has a line for each operator: its number, name and target, and the user's line.
What NumPy lacks, as bfloat16, is written as float32 or complex64.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from kernelmill.config import CompilerConfig
from kernelmill.config.super_kernel_marks import DUMP_KEY
from kernelmill.core import knobs
from kernelmill.core.errors import file_errors
from kernelmill.torch_internals.export import leaves_of

_KINDS = {"input": ("input",), "output": ("output",), "all": ("input", "output")}


def data_dump(gm: fx.GraphModule, config: CompilerConfig, name: str) -> DataDump | None:
    """What runs a graph and writes its data, where the options ask for it."""
    debug, dump = config.debug.data_dump, config.dump_config
    if debug.type is not None:
        return DataDump(gm, debug.path, debug.filter, name)
    if not dump.enable_dump:
        return None
    chosen = set((dump.dump_layer or "").lower().split())
    marked = {node for node in gm.graph.nodes if DUMP_KEY in (node.meta.get("custom") or {})}

    def wanted(node: fx.Node) -> bool:
        packet = getattr(node.target, "overloadpacket", node.target)
        return node in marked or bool(chosen & {node.name, getattr(packet, "__name__", "")})

    return DataDump(
        gm, dump.dump_path, wanted if chosen or marked else None, name, _KINDS[dump.dump_mode]
    )


class DataDump:
    """A function that computes what `gm` does, and writes the files of each call: of the operators
    that are `wanted`, all without it."""

    def __init__(
        self, gm: fx.GraphModule, path: str | None, wanted: Any, name: str,
        kinds: tuple[str, ...] = _KINDS["all"],
    ) -> None:  # fmt: skip
        self._gm, self._filter, self._kinds = gm, wanted, kinds
        own = f"dynamo_data_{name}_rank_{knobs.RANK.get()}"
        self._folder = os.path.join(os.path.abspath(path or "."), own)
        self._calls = 0

    def __call__(self, *args: Any) -> Any:
        # A forked child counts on from where it began, in a folder of its own.
        folder = os.path.join(f"{self._folder}_pid_{os.getpid()}", f"call_{self._calls}")
        self._calls += 1
        with file_errors(folder):
            os.makedirs(folder)
        return _Dumping(self._gm, folder, self._filter, self._kinds).run(*args)


class _Dumping(fx.Interpreter):
    def __init__(
        self, gm: fx.GraphModule, folder: str, wanted: Any, kinds: tuple[str, ...]
    ) -> None:
        super().__init__(gm)
        self._folder, self._wanted, self._kinds, self._number = folder, wanted, kinds, 0

    def run_node(self, n: fx.Node) -> Any:
        if n.op not in ("call_function", "call_method", "call_module"):
            return super().run_node(n)
        wanted = self._wanted is None or self._wanted(n)
        stem = os.path.join(self._folder, f"{self._number:04}_{n.name}")
        self._number += 1
        if wanted:  # before it runs: some operators write to what they read
            self._note(n)
            if "input" in self._kinds:
                _save(stem, "input", self.fetch_args_kwargs_from_env(n))
        result = super().run_node(n)
        if wanted and "output" in self._kinds:
            _save(stem, "output", result)
        return result

    def _note(self, node: fx.Node) -> None:
        lines = str(node.meta.get("stack_trace") or "").strip().splitlines()
        where = lines[-2].strip() if len(lines) > 1 else ""
        with open(os.path.join(self._folder, "operators.txt"), "a") as file:
            file.write(f"{self._number - 1:04} {node.name} {node.target} {where}".rstrip() + "\n")


def _save(stem: str, kind: str, tree: Any) -> None:
    tensors = [leaf for leaf in leaves_of(tree) if isinstance(leaf, Tensor)]
    for number, tensor in enumerate(tensors):
        shown = tensor.detach().resolve_conj().resolve_neg().cpu()
        try:
            found = shown.numpy()
        except TypeError:  # NumPy lacks it
            found = shown.to(torch.complex64 if shown.dtype.is_complex else torch.float32).numpy()
        np.save(f"{stem}.{kind}{number}.npy", found)
