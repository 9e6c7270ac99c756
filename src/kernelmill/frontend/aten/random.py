"""Random operators: the numbers come from ATen's generator, as in eager."""

from __future__ import annotations

from kernelmill.core.dtype import BOOL
from kernelmill.frontend.emitter import Emitter
from kernelmill.frontend.registry import NotTranslated, translates
from kernelmill.frontend.tensors import memory_order
from kernelmill.graph.ir import TensorType, Value


@translates("native_dropout.default")
def native_dropout(
    e: Emitter, x: Value, p: float, train: bool | None
) -> tuple[Value, Value | None]:
    """Emit eager's functional dropout on CPU: noise = bernoulli(1 - p) / (1 - p); x * noise."""
    if not train or p == 0:
        return x, e.constant(True, BOOL, x.shape)
    if p >= 1 or not x.dtype.is_float:
        raise NotTranslated("dropout of everything, or of integers")
    kept = 1 - p
    # The generator fills memory in its order, which is that of the traced tensor.
    order = memory_order(e.out[0])
    kind = TensorType(x.dtype, tuple(x.shape[d] for d in order))
    (blank,) = e.aten(
        "aten.empty.memory_format", (kind.shape,), (kind,), "random numbers", dtype=x.dtype
    )
    (drawn,) = e.aten("aten.bernoulli.p", (blank, kept), (kind,), "random numbers")
    noise = e.permute(drawn, [order.index(d) for d in range(len(order))])
    mask = e.emit("cast", noise, dtype=BOOL)
    scale = e.cast(e.div(e.wide(noise), kept), x.dtype)
    return e.mul(x, scale), mask


@translates("native_dropout_backward.default")
def native_dropout_backward(e: Emitter, grad: Value, mask: Value, scale: float) -> Value:
    factor = e.mul(e.cast(mask, e.dtype.compute), scale)
    return e.cast(e.mul(e.wide(grad), factor), e.dtype)
