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

_RESNET = (
    "at batch 8 windows of 3 x 3 run at 92% to 99% of the measured peak; single pixels with a "
    "residual to add at 65% to 85%, since images of 13 to 26 MB are read and written, which no "
    "cache holds. Through torch.compile a call costs about 1 ms more than ahead of time, which is "
    "Dynamo's: its guards and the gathering of 161 parameters take 1.2 ms after another program "
    "has emptied the caches (a backend that returns ready results takes as long). Tried: large "
    "pages, weights and residuals fetched ahead, tiles before panels (21 ms to 18 ms at batch 1; "
    "kept)."
)

REMARKS = {
    **dict.fromkeys(("softmax_4", "softmax_16", "softmax_64"), _SOFTMAX),
    **dict.fromkeys(("resnet50", "resnet50_8"), _RESNET),
    "quant_matmul": (
        "1.2 times as fast as the best contestant would be 97% of the measured peak, with nothing "
        "left for packing rows, streaming 29 MB of weights and rounding results. Tried: weights on "
        "large pages (4% less time, kept), panels fetched ahead (0.5%, kept), tiles of 8 x 48 in "
        "place of 8 x 32 (0.6%, not kept); of 13 schedules measured on operands that are ready "
        "the best took 26.0 ms."
    ),
    "bert_bf16": (
        "products of bfloat16 run at 79% (with GELU behind them) to 88% of the measured peak, and "
        "make up 92% of the call; attention, which computes in float32, is 6% of it."
    ),
}
"""By name of the row."""
