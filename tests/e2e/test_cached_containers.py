"""Dicts, sets and lists that a cached method looks into, changed between two calls without becoming
longer or shorter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT

pytestmark = KEPT


class Looking(torch.nn.Module):
    def __init__(self, key: Any) -> None:
        super().__init__()
        self.key, self.other = key, "other"
        self.names, self.table, self.rows = {key, 5}, {1: 2.0, key: 3.0}, [key, 5]

    def forward(self, x: Tensor) -> Tensor:
        if self.key in self.names:
            x = x + 1
        if self.key in self.table:
            x = x * self.table[self.key]
        if 2 not in self.table:
            x = x - 5
        if self.key in self.rows:
            x = x * 7
        return x


class Walking(Looking):
    def forward(self, x: Tensor) -> Tensor:
        for number, name in enumerate(self.table, start=2):
            x = x * number + (1 if name == self.key else 0)
        return x + (3 if hasattr(self, "mark") else 0)


def rename(table: dict[Any, Any], old: Any, new: Any) -> None:
    table[new] = table.pop(old)


EDITS: dict[str, Callable[[Looking], object]] = {
    "a set": lambda m: (m.names.discard(m.key), m.names.add("other")),
    "the set as it was": lambda m: (m.names.discard("other"), m.names.add(m.key)),
    "a dict": lambda m: rename(m.table, m.key, "other"),
    "the dict as it was": lambda m: rename(m.table, "other", m.key),
    "its order": lambda m: rename(m.table, 1, 1),
    "a list": lambda m: m.rows.__setitem__(0, "other"),
    "an attribute": lambda m: rename(m.__dict__, "other", "mark"),
}


@pytest.mark.parametrize("kind", [Looking, Walking])
@pytest.mark.parametrize("key", ["a", 3])
def test_a_change_of_a_container_is_noticed(kind: type[Looking], key: Any, tmp_path: Path) -> None:
    model, x = kind(key), torch.ones(3)
    call = cache_compile(model.forward, cache_dir=str(tmp_path))
    with torch.no_grad():
        for edit in (lambda _: None, *EDITS.values()):
            edit(model)
            for _ in range(3):
                assert call(x).tolist() == model(x).tolist()
    assert call.statistics["uncached"] == 0 and call.statistics["traced"] > 2
