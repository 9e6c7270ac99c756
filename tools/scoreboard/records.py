"""What was found of each row, kept in docs/scoreboard.json."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

DATA = Path("docs/scoreboard.json")
MOST_OTHERS = 0.1
"""Largest part of the processors' time that other work may have had."""

OURS, EAGER, INDUCTOR, TUNED = "kernelmill.compile", "eager", "Inductor", "Inductor tuned"
RUNTIMES = ("ONNX Runtime", "OpenVINO")
PEERS = (EAGER, INDUCTOR, TUNED, *RUNTIMES)


@dataclass
class Result:
    """What was found of a row. Seconds, bytes and errors are by contestant.

    measured    when, where and with what
    shape       of the arguments, in words
    weights     bytes of parameters and buffers
    seconds     of a call, median of the turns; none of those that are wrong, nor with other work
    first       seconds of compiling and of the first call, in a process that has imported all
    memory      bytes by which the process grew meanwhile, at most
    others      part of the processors' time that other work had, during our first call or the turns
    errors      largest difference from float64, as a part of the largest number of a result
    refused     why contestants did not run
    wrong       contestants whose error is too large
    graphs      that kernelmill.compile has compiled; `fallbacks` is the operators in ATen in them
    by_torch    why kernelmill.compile has called torch.compile
    uncompiled  why graphs run in torch
    unavailable  why there is no such model here; "": there is
    stopped     why there are no figures, or not all; "": there are
    """

    measured: str
    revision: str
    shape: str = ""
    weights: int = 0
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    first: dict[str, float] = field(default_factory=dict[str, float])
    memory: dict[str, int] = field(default_factory=dict[str, int])
    others: float = 0.0
    errors: dict[str, float] = field(default_factory=dict[str, float])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    wrong: list[str] = field(default_factory=list[str])
    graphs: int = 0
    fallbacks: int = 0
    by_torch: list[str] = field(default_factory=list[str])
    uncompiled: list[str] = field(default_factory=list[str])
    unavailable: str = ""
    stopped: str = ""

    @property
    def tried(self) -> bool:
        """Whether kernelmill.compile had its turn."""
        return OURS in self.first or OURS in self.refused

    @property
    def compiled(self) -> bool:
        """Whether all of it ran in kernels of ours."""
        return OURS in self.first and self.graphs > 0 and not self.uncompiled

    @property
    def best(self) -> str | None:
        """The fastest peer; None where none, or not ours, was measured."""
        peers = [name for name in PEERS if name in self.seconds and OURS in self.seconds]
        return min(peers, key=self.seconds.__getitem__, default=None)

    def times(self, name: str) -> float:
        """How many times ours is faster than that contestant."""
        return self.seconds[name] / self.seconds[OURS]

    def is_stale(self, revision: str, tuned: bool) -> bool:
        """Whether it is of another revision, was measured beside other work, or lacks the tuned
        Inductor, which is asked for."""
        if self.revision != revision or self.others > MOST_OTHERS:
            return True
        over = self.unavailable or self.stopped or not tuned
        return not (over or {TUNED} & {*self.first, *self.refused})


Run = dict[str, Result]
"""Rows by their keys, all measured with the same settings."""

Records = dict[str, Run]
"""Runs by processor, dtype, threads and batch sizes, in words."""


def load(path: Path = DATA) -> Records:
    """Return what was found so far; nothing where there is no such file."""
    data = json.loads(path.read_text()) if path.exists() else {}
    return {
        name: {key: Result(**result) for key, result in run.items()} for name, run in data.items()
    }


def save(records: Records, path: Path = DATA) -> None:
    """Write it all, in one step."""
    data = {name: {key: asdict(each) for key, each in run.items()} for name, run in records.items()}
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    os.replace(scratch, path)
