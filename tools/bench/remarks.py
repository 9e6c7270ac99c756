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

_BERT = (
    "of a call at batch 8 the two products of a feed-forward block take 65%, with GELU behind one "
    "and the residual behind the other, the other projections 31%, attention 4%. Two threads sum "
    "at 459 GFLOP/s (3072 to 768), 444 (768 to 768) and 428 (768 to 3072 and GELU) where the loop "
    "of multiply-adds alone, run between them, reaches 476 to 493; it reaches 529 at the best of "
    "times. On one core products run as fast as that loop does in the same minute, within 5% with "
    "GELU behind them; attention takes twice as long as its products alone would. Tried: the rows "
    "that the next tile reads brought near, and each line of the next panel asked for three times "
    "at most in place of 42 (3072 to 768 from 11.7 ms to 10.5 ms, 7% of a call on one core; kept); "
    "tasks of 128 or 256 rows by all columns, 768 products at a time, panels fetched to the "
    "second-level cache only (nothing beside the former); tiles of 6 x 64 and 8 x 32 in place of "
    "8 x 48 (from 1% less to 3% more), chains of 768 products in place of 256 (1% at most, and "
    "sums less exact); vectors kept on whole cache lines of the stack (5% of one product without "
    "an epilogue, nothing in the model); the next head's queries, keys and values fetched ahead "
    "(4% of attention, 0.3% of a call; not kept)."
)

_BERT_HALVES = (
    "on one core projections of bfloat16 run at 87% to 89% of the measured peak, the one with GELU "
    "behind it at 77%; they are 93% of a call, attention, which computes in float32, is 6%, norms "
    "are 1%. GELU costs about 32 cycles a vector there, 6 to 9 in float32; 13 of its 75 "
    "instructions are two roundings to bfloat16, done in integers, since the processor's own "
    "instruction takes denormals for zeros. Tried: the rows that the next tile reads brought near "
    "(1% of a call, kept); the next head's queries, keys and values fetched ahead (0.3%, not kept)."
)

REMARKS = {
    **dict.fromkeys(("bert", "bert_8"), _BERT),
    **dict.fromkeys(("bert_bf16", "bert_8_bf16"), _BERT_HALVES),
    **dict.fromkeys(("softmax_4", "softmax_16", "softmax_64"), _SOFTMAX),
    **dict.fromkeys(("resnet50", "resnet50_8"), _RESNET),
    "quant_matmul": (
        "1.2 times as fast as the best contestant would be 97% of the measured peak, with nothing "
        "left for packing rows, streaming 29 MB of weights and rounding results. Tried: weights on "
        "large pages (4% less time, kept), panels fetched ahead (0.5%, kept), tiles of 8 x 48 in "
        "place of 8 x 32 (0.6%, not kept); of 13 schedules measured on operands that are ready "
        "the best took 26.0 ms."
    ),
}
"""By name of the row."""
