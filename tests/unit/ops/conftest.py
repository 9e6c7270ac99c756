"""Each test compiles anew."""

from __future__ import annotations

from collections.abc import Generator

import pytest
import torch


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Generator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
