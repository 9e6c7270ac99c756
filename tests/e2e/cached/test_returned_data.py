"""What a cached method only returns: Dynamo guards no data that decides nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kernelmill.inference import cache_compile

GLOBALS: dict[str, Any] = {"level": 3}


@dataclasses.dataclass
class Record:
    key: Any
    y: Any = None


class Model(nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.name, self.number, self.ratio, self.on = "one", 4, 2.5, True
        self.table, self.pair = {"z": 1}, (1, 2)
        self.inner = nn.Module()
        self.inner.tag = "inner"
        for method in ("of_itself", "of_arguments", "of_others", "in_a_record"):
            setattr(self, f"c_{method}", cache_compile(getattr(self, method), cache_dir=folder))

    def of_itself(self, x: Any, given: Any, record: Any) -> Any:
        numbers = {"number": self.number, "ratio": self.ratio, "on": self.on}
        return {"y": x + 1, "name": self.name, "tag": self.inner.tag, **numbers}

    def of_arguments(self, x: Any, given: Any, record: Any) -> Any:
        return x + 1, given["key"], given["deep"][0]["k"], record.key

    def of_others(self, x: Any, given: Any, record: Any) -> Any:
        return x + 1, GLOBALS["level"], self.table, self.pair

    def in_a_record(self, x: Any, given: Any, record: Any) -> Any:
        return Record(given["key"], x * 2)


CHANGES: dict[str, list[Callable[[Model, dict[str, Any], Record], None]]] = {
    "of_itself": [
        lambda model, *_: setattr(model, "name", "two"),
        lambda model, *_: setattr(model, "number", 5),
        lambda model, *_: setattr(model, "ratio", 3.5),
        lambda model, *_: setattr(model, "on", False),
        lambda model, *_: setattr(model.inner, "tag", "other"),
    ],
    "of_arguments": [
        lambda _, given, record: given.update(key="y"),
        lambda _, given, record: given.update(key=2.5),
        lambda _, given, record: given["deep"][0].update(k=8),
        lambda _, given, record: setattr(record, "key", None),
    ],
    "of_others": [
        lambda model, *_: GLOBALS.update(level=GLOBALS["level"] + 1),
        lambda model, *_: model.table.update(z=2),
        lambda model, *_: model.table.update(new=3),
        lambda model, *_: setattr(model, "pair", (1, 2, 3)),
    ],
    "in_a_record": [lambda _, given, record: given.update(key=1)],
}


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if dataclasses.is_dataclass(value):
        return plain(vars(value))
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("method", CHANGES)
def test_what_is_only_returned_is_that_of_the_call(tmp_path: Path, method: str) -> None:
    def check(model: Model) -> None:
        x = torch.ones(2)
        with torch.no_grad():
            found = getattr(model, f"c_{method}")(x, given, record)
            expected = getattr(model, method)(x, given, record)
        assert repr(plain(found)) == repr(plain(expected))

    model, record = Model(tmp_path), Record(7)
    given: dict[str, Any] = {"key": "x", "deep": [{"k": 1}]}
    for change in (lambda *_: None, lambda *_: None, *CHANGES[method]):
        change(model, given, record)
        check(model)
        check(Model(tmp_path))  # as a later process does: an entry may be for another object
