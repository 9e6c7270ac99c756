"""Cached methods that make and return named tuples."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from kernelmill.inference import cache_compile
from tests.kept_methods import KEPT

pytestmark = KEPT


class Scores(NamedTuple):
    """What a model returns, one of it by default."""

    values: Tensor
    mean: Tensor
    label: str = "none"

    def spread(self) -> Tensor:
        return self.values - self.mean


Plain = namedtuple("Plain", "first second")  # as older code makes them


class Model(nn.Module):
    """Makes several named tuples, of which it returns one in another."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(4, 4)
        self.run = cache_compile(self.scores, cache_dir=folder)

    def scores(self, x: Tensor, before: Scores) -> Plain:
        y = self.layer(x) + before.spread()
        made = Scores(y, y.mean(-1, keepdim=True), label="new")
        return Plain(made._replace(values=made.spread() * 2.0), second=[before.label, y])


def equal(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, (tuple, list)):
        for a, b in zip(one, other, strict=True):
            equal(a, b)
    elif isinstance(one, Tensor):
        torch.testing.assert_close(one, other)
    else:
        assert one == other


@torch.no_grad()
def test_named_tuples_are_kept(tmp_path: Path) -> None:
    for traced in (1, 0):
        model = Model(tmp_path)
        for rows in (2, 3, 5):
            x = torch.randn(rows, 4)
            before = Scores(x * 2, x.mean(-1, keepdim=True), "old")
            equal(model.run(x, before), model.scores(x, before))
        assert model.run.statistics == {"loaded": 1 - traced, "traced": traced, "uncached": 0}
        assert model.run(x, before)._fields == ("first", "second")


@torch.no_grad()
def test_a_named_tuple_with_other_fields_is_another_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(2, 4)
    before = Scores(x * 2, x.mean(-1, keepdim=True), "old")
    Model(tmp_path).run(x, before)
    other = namedtuple("Plain", "one second")
    monkeypatch.setitem(globals(), "Plain", other)
    model = Model(tmp_path)
    result = model.run(x, before)
    assert model.run.statistics == {"loaded": 0, "traced": 1, "uncached": 0}
    equal(result, model.scores(x, before))
    assert type(result) is other
