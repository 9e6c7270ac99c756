"""`TORCH_COMPILE_DEBUG=1`: the output of each stage of a compile, as files.

torch_compile_debug/run_{time}-pid_{pid}[-rank_{rank}]/kernelmill/
    debug.log
    model__{graph}/dynamo_out_graph.txt                      Dynamo's graph
    model__{graph}/{forward|backward}/000_aot_graph.txt      AOTAutograd's, then that after each
                                  {nnn}_after_{pass}.txt     pass; the last are the plan and
                                  {nnn}_kernels.txt          the kernels
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable
from itertools import count

from kernelmill.core import knobs
from kernelmill.core.errors import file_errors

FOLDER = "torch_compile_debug"
_NAME = re.compile(r"graph_(\d+)(?:_(\w+))?")
_numbers: dict[str, count[int]] = {}
_runs: dict[int, str] = {}
"""Folders by process number."""


def write_stage(graph: str, stage: str, text: Callable[[], str], numbered: bool = True) -> None:
    """Write a stage's output for a graph, named as captures are, if dumps are requested."""
    if not knobs.TORCH_COMPILE_DEBUG.get():
        return
    named = _NAME.fullmatch(graph.partition("[")[0])
    parts = [re.sub(r"\W", "_", graph)]
    if named is not None:
        kind = named[2] or ""
        parts = [f"model__{named[1]}", kind and ("backward" if kind == "backward" else "forward")]
    folder = os.path.join(_run_folder(), *parts)
    number = f"{next(_numbers.setdefault(folder, count())):03}_" if numbered else ""
    with file_errors(folder):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{number}{stage}.txt"), "w") as file:
            file.write(text())


def _run_folder() -> str:
    """Return this process's folder, in which its log is too."""
    if os.getpid() not in _runs:
        rank = f"-rank_{knobs.RANK.get()}" if knobs.LOCAL_WORLD_SIZE.get() else ""
        run = f"run_{time.strftime('%Y_%m_%d_%H_%M_%S')}-pid_{os.getpid()}{rank}"
        folder = _runs[os.getpid()] = os.path.abspath(os.path.join(FOLDER, run, "kernelmill"))
        with file_errors(folder):
            os.makedirs(folder, exist_ok=True)
            handler = logging.FileHandler(os.path.join(folder, "debug.log"))
        logger = logging.getLogger("kernelmill")
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    return _runs[os.getpid()]
