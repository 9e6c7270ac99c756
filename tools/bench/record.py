"""The figures at rest: docs/performance.json, which docs/performance.md and its plots show.

Kinds of processors have their figures side by side: a run on one replaces its own alone. Each row
has the date, revision, instruction set and versions it was measured with, so that one can be
measured anew without the others.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernelmill.core.target.isa import host_isa
from tools.bench.cold import FirstCalls
from tools.bench.fixed import FixedCost
from tools.bench.limits import Limits
from tools.bench.steady import Error, Standing
from tools.machine import description

DATA = Path("docs/performance.json")


@dataclass
class Record:
    """Everything measured on one kind of processor, by row; `measured` says when and with what, by
    row too. `tiles`: it has a tile unit, and code was compiled for it."""

    steady: dict[str, Standing] = field(default_factory=dict[str, Standing])
    first: dict[str, FirstCalls] = field(default_factory=dict[str, FirstCalls])
    fixed: FixedCost | None = None
    measured: dict[str, str] = field(default_factory=dict[str, str])
    tiles: bool = False

    def note(self, name: str) -> None:
        """This row was measured now, here."""
        self.measured[name] = description()
        self.tiles = host_isa().has_tiles


Records = dict[str, Record]
"""By kind of processor (tools/machine.py)."""


def load(path: Path = DATA) -> Records:
    """What was measured so far; empty when there is no such file."""
    if not path.exists():
        return {}
    return {kind: _record(data) for kind, data in json.loads(path.read_text()).items()}


def _record(data: Any) -> Record:
    return Record(
        {name: _standing(value) for name, value in data["steady"].items()},
        {name: FirstCalls(**value) for name, value in data["first"].items()},
        FixedCost(**data["fixed"]) if data["fixed"] else None,
        data["measured"],
        data["tiles"],
    )


def _standing(value: dict[str, Any]) -> Standing:
    errors = {name: Error(**error) for name, error in value["errors"].items()}
    return Standing(**{**value, "limits": Limits(**value["limits"]), "errors": errors})


def save(records: Records, path: Path = DATA) -> None:
    """Write it all, in one step."""
    scratch = path.with_suffix(".new")
    data = {kind: asdict(record) for kind, record in records.items()}
    scratch.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    os.replace(scratch, path)
