"""vLLM on CPUs: graphs for Inductor are compiled by kernelmill.

vLLM calls `install` where it loads the plug-ins of its group vllm.general_plugins, in each of its
processes.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kernelmill.core import knobs
from kernelmill.core.log import get_logger
from kernelmill.core.version import BACKEND_NAME

_log = get_logger("integrations")
_WHOLE, _PIECEWISE, _INDUCTOR = 2, 3, "inductor"
"""vLLM's modes of compiling: the model as one graph by a backend, and vLLM's own way, which is its
default. On CPUs it takes the first with Inductor where it would take the second."""


def install() -> None:
    """Make the platform for CPUs name this backend unless the user chose a mode or an eager run.
    KERNELMILL_VLLM=0 leaves vLLM unchanged; so do its platforms for other devices."""
    if not knobs.VLLM.get():
        return
    try:
        platform: Any = type(import_module("vllm.platforms").current_platform)
        on_cpus = platform is import_module("vllm.platforms.cpu").CpuPlatform
        checks: Any = platform.check_and_update_config
    except (ImportError, AttributeError) as error:
        _log.warning("vLLM goes on without kernelmill: it is not as it was tried (%s)", error)
        return
    if not on_cpus or getattr(checks, "of_kernelmill", False):
        return

    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        wanted: Any = vllm_config.compilation_config.mode
        checks(vllm_config)
        found: Any = vllm_config.compilation_config
        if (wanted, found.mode, found.backend) == (_PIECEWISE, _WHOLE, _INDUCTOR):
            found.backend = BACKEND_NAME

    check_and_update_config.of_kernelmill = True  # type: ignore[reportFunctionMemberAccess]
    platform.check_and_update_config = classmethod(check_and_update_config)
