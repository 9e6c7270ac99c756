"""Outside of compiled code the marks only check their arguments."""

import pytest
import torch

from kernelmill.core.errors import ConfigError
from kernelmill.scope import stream_switch, super_kernel, wait_tensor


def test_nothing_happens() -> None:
    x = torch.ones(3)
    with super_kernel("sp1", "stream-fusion=1"), stream_switch("a", 1), super_kernel(None):
        assert torch.equal(x + 1, torch.full((3,), 2.0))


def test_wait_tensor_gives_its_tensor() -> None:
    x = torch.ones(3)
    assert wait_tensor(x, torch.zeros(2)) is x


def test_bad_arguments() -> None:
    for arguments in (("a b",), ("a", "fusion=1"), (3,)):
        with pytest.raises(ConfigError), super_kernel(*arguments):  # type: ignore[arg-type]
            pass
    with pytest.raises(ConfigError), stream_switch(""):
        pass
    for t, dep in ((torch.ones(1), 2), (1, torch.ones(1))):
        with pytest.raises(ConfigError, match="is no tensor"):
            wait_tensor(t, dep)  # type: ignore[arg-type]
