"""What runs outside of torch's modes, where neither a private part nor a thread is to be had."""

from unittest.mock import Mock

import pytest

from kernelmill.torch_internals import dispatch
from kernelmill.torch_internals.registry import forced


def test_outside_of_modes_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr("kernelmill.core.workers.start_new_thread", refuse)
    monkeypatch.setattr("threading._start_new_thread", refuse)
    with forced(["registry.disable_modes"]):
        assert dispatch.outside_modes(lambda: 3) == 3
    assert refuse.called
