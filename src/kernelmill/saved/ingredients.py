"""What every saved program depends on besides its own code: versions, processor, settings."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import torch

from kernelmill.core.digest import DIGEST_BYTES
from kernelmill.core.target import host
from kernelmill.core.version import VERSION
from kernelmill.saved.fingerprint import fingerprint, name_of


@cache
def versions() -> Mapping[str, str]:
    """Versions and the processor, by name."""
    return {
        "kernelmill": f"{VERSION} {_sources_digest()}",
        "torch": torch.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "llvm": ".".join(map(str, llvm.llvm_version_info)),
        "target": str(host()),
    }


def _sources_digest() -> str:
    """Over kernelmill's own files: no edit of the compiler can leave old programs in use."""
    root = Path(__file__).parent.parent
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for path in sorted(root.rglob("*.py")):
        state.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()


def of_decompositions(table: Mapping[Any, Callable[..., Any]]) -> str:
    """Operators and the code of what takes their place."""
    rows = sorted(f"{operator}: {fingerprint(function)}" for operator, function in table.items())
    return "\n".join(rows)


def state() -> dict[str, str]:
    """Torch's global settings that change what is traced."""
    autocast = torch.is_autocast_enabled("cpu")
    return {
        "autocast": str(torch.get_autocast_dtype("cpu")) if autocast else "off",
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "default dtype": str(torch.get_default_dtype()),
        "matmul precision": torch.get_float32_matmul_precision(),
        "modes": str(
            [name_of(type(m)) for m in torch.overrides._get_current_function_mode_stack()]
        ),
    }


def quick_state() -> tuple[Any, ...]:
    """The same for every call, in a quarter of a microsecond."""
    return (
        torch._C._is_any_autocast_enabled() and torch.get_autocast_dtype("cpu"),
        torch._C._get_deterministic_algorithms(),
        torch.get_default_dtype(),
    )
