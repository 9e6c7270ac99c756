"""The gears of frames, kept so that a retrace for another size is recognised.

Dynamo guards the sizes that it took for static in a trace. A call with another one makes it trace
the frame again, and the arguments of that call carry no gears: without this record it would look
like a model that never had any.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import CodeType
from typing import Any

from torch import nn

from kernelmill.backend.gears import CaptureGears, TracedArgument
from kernelmill.torch_internals.dynamo import current_trace

_MOST_REMEMBERED = 64


_frames: weakref.WeakKeyDictionary[CodeType, list[tuple[weakref.ref[Any] | None, CaptureGears]]] = (
    weakref.WeakKeyDictionary()
)
"""The traces of each frame: the module it belongs to (or None), and its gears."""


def remember(gears: CaptureGears) -> None:
    """Record the gears of the frame that Dynamo is tracing."""
    code, owner = _traced_now()
    if code is not None:
        known = _frames.setdefault(code, [])
        known.append((None if owner is None else weakref.ref(owner), gears))
        del known[:-_MOST_REMEMBERED]


def recall(arguments: Sequence[TracedArgument]) -> CaptureGears | None:
    """Return the gears of an earlier trace of this frame whose arguments differ only in sizes."""
    code, owner = _traced_now()
    for known, gears in reversed(_frames.get(code, []) if code is not None else []):
        of = None if known is None else known()
        same = of is owner and (known is None) == (owner is None)  # else its owner is gone
        if same and _signature(gears.arguments) == _signature(arguments):
            return gears
    return None


def _traced_now() -> tuple[CodeType | None, Any]:
    tx = current_trace()
    if tx is None:
        return None, None
    # A method's first argument need not be called self, and torch.nn's own containers are traced
    # through a function that holds the module as `fn`.
    held = tx.f_locals.values()
    owner = next((v for v in held if isinstance(v, nn.Module)), tx.f_locals.get("self"))
    try:
        weakref.ref(owner)
    except TypeError:
        owner = None
    return tx.f_code, owner


def _signature(arguments: Sequence[TracedArgument]) -> list[tuple[Any, ...]]:
    tensors = (argument for argument in arguments if argument.dtype is not None)
    return [(one.source, one.dtype, len(one.shape)) for one in tensors]
