"""Graph files for people: `config.debug.graph_dump`, named as TorchAir names them."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

from kernelmill.config.compiler_config import CompilerConfig
from kernelmill.core import knobs
from kernelmill.core.errors import file_errors
from kernelmill.graph.ir import Graph
from kernelmill.graph.pbtxt import to_pbtxt
from kernelmill.graph.printer import print_graph
from kernelmill.graph.python_source import to_python

_FORMATS = {"txt": print_graph, "pbtxt": to_pbtxt, "py": to_python}
_numbers = itertools.count()


class GraphDump:
    """A writer of one program's graphs, with the same number, process and time in all names."""

    def __init__(self, config: CompilerConfig) -> None:
        option = config.debug.graph_dump
        self._format = option.type
        self._folder = Path(option.path or ".")
        self._suffix = (
            f"{next(_numbers)}_rank_{_rank()}_pid_{os.getpid()}_ts_{time.time_ns() // 1000}"
        )

    def write(self, stage: str, graph: Graph) -> None:
        """Write `dynamo_{stage}_graph_{id}_rank_{r}_pid_{p}_ts_{t}.{type}`, if a type is set."""
        if self._format is None:
            return
        text = _FORMATS[self._format](graph)
        name = f"dynamo_{stage}_graph_{self._suffix}.{self._format}"
        with file_errors(str(self._folder)):
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / name).write_text(text)


def _rank() -> int:
    """Return the rank in torch.distributed if initialised, else that from the launcher."""
    import torch.distributed as distributed

    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return knobs.RANK.get()
