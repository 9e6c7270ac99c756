"""What stands between a row and its limit, where its profile does not say so: one kernel taken
apart, with parts of its text left out or replaced and the rest timed alone on one core."""

from __future__ import annotations

_SOFTMAX = (
    "a row of 1024 within the caches takes 202 ns of a core (AVX-512, 4 GHz), 12.6 cycles a "
    "vector: 6.3 are the exponentials, of 13 instructions each, 1.4 the maxima, 2.3 the last pass, "
    "1.2 of these its division. Copying 4 MB takes 5.4 cycles a vector, so that arithmetic decides "
    "while the caches hold the data. Tried: the next rows fetched ahead (5% to 14% less from "
    "memory, nothing within the caches; kept); a reciprocal with a correction in place of the "
    "division, and results past the caches already at 4 MB and 16 MB (no gain, not kept); "
    "exponentials without the test for overflow (0.4 cycles, not kept: they are right for any x)."
)

REMARKS = {
    **dict.fromkeys(("softmax_4", "softmax_16", "softmax_64"), _SOFTMAX),
    "bert_bf16": (
        "products of bfloat16 run at 79% (with GELU behind them) to 88% of the measured peak, and "
        "make up 92% of the call; attention, which computes in float32, is 6% of it."
    ),
}
"""By name of the row."""
