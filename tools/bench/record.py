"""The figures at rest: docs/performance.json, which docs/performance.md and its plot show.

Each row has the date, machine and versions it was measured with, so that one can be measured anew
without the others.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.bench.cold import FirstCalls
from tools.bench.fixed import FixedCost
from tools.bench.limits import Limits
from tools.bench.steady import Error, Standing
from tools.machine import description

DATA = Path("docs/performance.json")


@dataclass
class Record:
    """Everything measured, by row; `measured` says when and on what, by row too."""

    steady: dict[str, Standing] = field(default_factory=dict[str, Standing])
    first: dict[str, FirstCalls] = field(default_factory=dict[str, FirstCalls])
    fixed: FixedCost | None = None
    profiles: dict[str, list[list[Any]]] = field(default_factory=dict[str, list[list[Any]]])
    measured: dict[str, str] = field(default_factory=dict[str, str])

    def note(self, name: str) -> None:
        """This row was measured now, here."""
        self.measured[name] = description()


def load(path: Path = DATA) -> Record:
    """What was measured so far; empty when there is no such file."""
    if not path.exists():
        return Record()
    data: Any = json.loads(path.read_text())
    return Record(
        {name: _standing(value) for name, value in data["steady"].items()},
        {name: FirstCalls(**value) for name, value in data["first"].items()},
        FixedCost(**data["fixed"]) if data["fixed"] else None,
        data["profiles"],
        data["measured"],
    )


def _standing(value: dict[str, Any]) -> Standing:
    errors = {name: Error(**error) for name, error in value["errors"].items()}
    return Standing(**{**value, "limits": Limits(**value["limits"]), "errors": errors})


def save(record: Record, path: Path = DATA) -> None:
    """Write it all, in one step."""
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(asdict(record), indent=1, sort_keys=True) + "\n")
    os.replace(scratch, path)
