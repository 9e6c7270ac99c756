"""Changes of dtype."""

from __future__ import annotations

from typing import Any

from kernelmill.core.dtype import DType
from kernelmill.frontend.emitter import Emitter
from kernelmill.frontend.registry import NotTranslated, translates
from kernelmill.graph.ir import Value


@translates("_to_copy", "to", "prims.convert_element_type", "prims.device_put", "type_as")
def to(e: Emitter, x: Value, *args: Any, **kwargs: Any) -> Value:
    return e.cast(x, e.dtype)


@translates("view.dtype")
def view_dtype(e: Emitter, x: Value, dtype: DType) -> Value:
    if x.dtype.bits != e.dtype.bits:
        raise NotTranslated("view as a dtype of another size")
    return x if x.dtype == e.dtype else e.emit("bitcast", x, dtype=e.dtype)


@translates("copy")
def copy(e: Emitter, x: Value, source: Value, non_blocking: bool = False) -> Value:
    return e.expand(e.cast(source, e.dtype), x.shape)


@translates("fill.Scalar", "fill.Tensor")
def fill(e: Emitter, x: Value, value: Any) -> Value:
    return e.expand(e.operand(value, e.dtype), x.shape)
