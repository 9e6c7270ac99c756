"""Counters of methods with several programs: what these share is counted once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelmill.inference import cache_compile, finish_packing, set_dim_gears
from tests.kept_methods import KEPT

pytestmark = KEPT
SIZES = (16, 32, 48, 64, 80, 96)
WIDTH = 512
WEIGHTS = 2 * WIDTH * WIDTH * 4


def model() -> torch.nn.Module:
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2)]
    return torch.nn.Sequential(layers[0], torch.nn.Softmax(-1), layers[1]).eval()


def one_program_of(of: torch.nn.Module, rows: int, folder: Path) -> dict[str, int]:
    """The counters of a method with a program for these rows alone, called twice."""
    method = cache_compile(of.forward, dynamic=False, cache_dir=folder)
    with torch.no_grad():
        for _ in range(2):  # the first is traced
            method(torch.randn(rows, WIDTH))
            finish_packing()
    return method.report()


@pytest.mark.parametrize("mapped", [False, True])
def test_gears_share_packed_weights_memory_and_calls(tmp_path: Path, mapped: bool) -> None:
    of = model()
    method = cache_compile(of.forward, cache_dir=tmp_path / "a", mmap_packed_weights=mapped)
    with torch.no_grad():
        for number, rows in enumerate(SIZES):
            x = torch.randn(rows, WIDTH)
            if number == 0:
                set_dim_gears(x, {0: list(SIZES)})
            torch.testing.assert_close(method(x), of(x), rtol=1e-4, atol=1e-4)
            finish_packing()
    found = method.report()
    single = one_program_of(of, SIZES[-1], tmp_path / "b")
    assert found["calls"] + method.statistics["traced"] == len(SIZES)  # a trace is no call
    packed = single["packed_bytes"]
    assert WEIGHTS <= packed < 1.1 * WEIGHTS  # panels end in whole vectors
    assert found["packed_bytes"] in (packed, 2 * packed)  # few rows may have a layout of theirs
    assert single["arena_bytes"] > 0 and found["arena_bytes"] == single["arena_bytes"]
    for name in ("launches", "aten_calls"):
        assert found[name] == single[name]
    ways = ("weights_watched", "weights_compared", "weights_sampled")
    assert sum(found[way] for way in ways) == sum(single[way] for way in ways) == 2
