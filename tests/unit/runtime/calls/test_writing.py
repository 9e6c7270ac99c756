"""Operators that write to their arguments give what torch's way to call them gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from kernelmill.runtime.calls import aten
from kernelmill.runtime.calls.aten import auto_functionalized_v2

LIBRARY = torch.library.Library("kernelmill_tests_of_writing", "DEF")
LIBRARY.define("fill(Tensor x, Tensor(a!) out, Tensor(b!)? other=None) -> ()")
LIBRARY.define("add(Tensor x, Tensor(a!) out) -> (Tensor, Tensor)")
LIBRARY.define("all(Tensor x, Tensor(a!)[] out) -> Tensor")


def _fill(x: Tensor, out: Tensor, other: Tensor | None = None) -> None:
    out.copy_(x)
    if other is not None:
        other.add_(1)


def _all(x: Tensor, out: list[Tensor]) -> Tensor:
    for each in out:
        each.add_(x)
    return x + 1


LIBRARY.impl("fill", _fill, "CPU")
LIBRARY.impl("add", lambda x, out: (out.add_(x).sum(), x + 1), "CPU")
LIBRARY.impl("all", _all, "CPU")
OPS: Any = torch.ops.kernelmill_tests_of_writing
THEIRS: Any = torch.ops.higher_order.auto_functionalized_v2
VIEW = {"_out_size": (2, 3), "_out_stride": (8, 1), "_out_storage_offset": 4}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "whole": (OPS.fill, {"x": 3.0, "_out_base_index": 0, "_other_base_index": None}),
    "several": (OPS.fill, {"x": 3.0, "_out_base_index": 1, "_other_base_index": 0}),
    "results": (OPS.add, {"x": 2.0, "_out_base_index": 0}),
    "view": (OPS.add, {"x": 2.0, "_out_base_index": 0, **VIEW}),
    "alias": (OPS.add, {"x": 2.0, "_out_base_index": 0, "_out_alias": True}),
    "list": (OPS.all, {"x": 2.0, "_out_length": 2, "_out_0_base_index": 1, "_out_1_base_index": 0}),
    "slice": (
        OPS.add,
        {"x": 1.0, "_out_base_index": 0, "_out_slice_dim": 1, "_out_slice_start": 2,
         "_out_slice_end": 5},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("gaps", [False, True])
def test_it_gives_what_torch_gives(name: str, gaps: bool) -> None:
    packet, given = CASES[name]
    given = {**given, "x": torch.tensor(given["x"])}
    wide = torch.arange(80.0).reshape(10, 8)
    bases = [wide[:4, :6] if gaps else wide[:4], wide[5:9].mT]
    before = [base.clone() for base in bases]
    expected = THEIRS(packet.default, _all_bases=bases, **given)
    found = auto_functionalized_v2(packet.default, _all_bases=bases, **given)
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        if theirs is None:
            assert mine is None
            continue
        assert mine.stride() == theirs.stride()
        assert torch.equal(mine, theirs)
    assert all(map(torch.equal, bases, before))


@pytest.mark.parametrize(
    ("name", "direct"),
    [("whole", True), ("view", True), ("alias", True), ("slice", True), ("list", False)],
)
def test_it_asks_torch_only_where_it_has_to(
    name: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    torchs = aten.overload_named
    monkeypatch.setattr(aten, "overload_named", lambda n: asked.append(n) or torchs(n))
    packet, given = CASES[name]
    bases = [torch.zeros(4, 8), torch.zeros(2)]
    auto_functionalized_v2(
        packet.default, _all_bases=bases, **{**given, "x": torch.tensor(given["x"])}
    )
    assert (asked == []) == direct
