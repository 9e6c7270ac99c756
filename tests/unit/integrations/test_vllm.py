"""What the plug-in changes of vLLM's platform for CPUs; the modules are stand-ins."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kernelmill.integrations.vllm import install


class Platform:
    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """As vLLM's for CPUs does."""
        if vllm_config.compilation_config.mode == 3:
            vllm_config.compilation_config.mode = 2
            vllm_config.compilation_config.backend = "inductor"


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """The class of the current platform."""
    kind: type[Any] = type("CpuPlatform", (Platform,), {})
    modules: dict[str, Any] = {
        name: ModuleType(name) for name in ("vllm", "vllm.platforms", "vllm.platforms.cpu")
    }
    modules["vllm.platforms"].current_platform = kind()
    modules["vllm.platforms.cpu"].CpuPlatform = kind
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return kind


def chosen(platform: type[Any], mode: int, backend: str) -> tuple[int, str]:
    config = SimpleNamespace(mode=mode, backend=backend)
    platform.check_and_update_config(SimpleNamespace(compilation_config=config))
    return config.mode, config.backend


def test_what_would_be_inductors_is_ours(platform: type[Any]) -> None:
    install()
    install()  # as vLLM may do
    assert chosen(platform, 3, "inductor") == (2, "kernelmill")
    for mode, backend in ((0, "inductor"), (2, "inductor"), (2, "kernelmill"), (1, "eager")):
        assert chosen(platform, mode, backend) == (mode, backend)


def test_it_can_be_switched_off(platform: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_VLLM", "0")
    install()
    assert chosen(platform, 3, "inductor") == (2, "inductor")


def test_other_platforms_are_left_alone(platform: type[Any]) -> None:
    other: type[Any] = type("CudaPlatform", (Platform,), {})
    sys.modules["vllm.platforms"].current_platform = other()  # type: ignore[attr-defined]
    install()
    assert chosen(other, 3, "inductor") == (2, "inductor")


def test_another_vllm_goes_on_without(
    platform: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    del sys.modules["vllm.platforms.cpu"].CpuPlatform  # type: ignore[attr-defined]
    install()
    assert "vLLM goes on without kernelmill" in caplog.text
    assert chosen(platform, 3, "inductor") == (2, "inductor")
