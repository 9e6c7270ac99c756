"""What `cache_compile` is given besides the method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from kernelmill import CompilerConfig
from kernelmill.core.errors import ConfigError, ConfigTypeError
from kernelmill.inference import cache_compile


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({"dynamic": "no"}, ConfigTypeError, "dynamic: 'no' is no bool"),
        ({"ge_cache": 1}, ConfigTypeError, "ge_cache: 1 is no bool"),
        ({"mmap_packed_weights": None}, ConfigTypeError, "mmap_packed_weights: None is no bool"),
        ({"max_entries": "3"}, ConfigTypeError, "max_entries: '3' is no int"),
        ({"global_rank": "../0"}, ConfigTypeError, "global_rank: '../0' is no int"),
        ({"tp_rank": True}, ConfigTypeError, "tp_rank: True is no int"),
        ({"pp_rank": -1}, ConfigError, "pp_rank: -1 is no rank: they count from 0"),
    ],
)
def test_options_of_another_kind_are_refused(given: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        cache_compile(nn.Linear(2, 2).forward, **given)


def test_a_config_that_changes_later_is_as_it_was(tmp_path: Path) -> None:
    config = CompilerConfig()
    model = nn.Linear(2, 2)
    first = cache_compile(model.forward, cache_dir=tmp_path, config=config)
    config.mode = "reduce-overhead"
    second = cache_compile(model.forward, cache_dir=tmp_path, config=config)
    kept = [each.__getstate__().config.mode for each in (first, second)]
    assert kept == ["max-autotune", "reduce-overhead"]
    assert first.folder != second.folder
