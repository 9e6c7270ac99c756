"""What stands between a row and its limit, where its profile does not say so: one kernel taken
apart, with parts of its text left out or replaced and the rest timed alone on one core, or a
program in turns with what moves as many bytes and computes nothing."""

from __future__ import annotations

from tools.bench.by_machine import NOTED_ON

_COPIED = (
    "in turns within one process a negation, which is a copy with the same entry and launch, takes "
    "55 us of 4 MB, 357 us of 16 MB and 2.34 ms of 64 MB (medians; 51, 222 and 1894 us at best), "
    "and the copying loops of the limit 49, 371 and 2244 us (44, 311 and 2192). "
)

_SOFTMAX = (
    f"{_COPIED}Softmax takes 80 us, 396 us and 2.78 ms (75, 351 and 2602). A row of 1024 within "
    "the caches takes 126 ns of a core (AVX-512, 4 GHz), 7.9 cycles a vector, where copying 4 MB "
    "takes 5.4; without the exponentials the same passes take 87 ns. Tried, with one core's time "
    "for a row: powers of 2 with one instruction for what is above the floor and one that scales, "
    "10 instructions for 14 (210 to 176 ns, kept); one reciprocal a row in place of divisions (18 "
    "ns, kept); maxima that need not look for NaN (14 ns, kept); two rows a pass (7 to 13 ns, "
    "kept), four (16 ns more than two, not kept: no room in the first cache); lines of the result "
    "brought near in the second pass (8 ns, kept), or exponentials kept in the result in place of "
    "scratch (as much, not kept); polynomials of degree 5 (9 ns, not kept: errors of 2^-23.5); "
    "scaling by integer additions (9 ns more), sums of products as a tree (no gain). Results past "
    "the caches already at 4 MB and 16 MB (no gain, not kept)."
)

_LAYER_NORM = (
    f"{_COPIED}Layer norm takes 56 us, 404 us and 2.56 ms (52, 372 and 2082): at 4 MB and at 64 MB "
    "what the copy takes. Of 4 MB 2 us are the program's entry. Tried: two rows a pass (87 to 71 "
    "ns of a core for a row of 1024 in the second-level cache, 86 to 84 ns from 4 MB; kept); lines "
    "of the result brought near in the second pass (2 ns more, not kept); the next rows fetched "
    "ahead (5% to 14% from memory, kept)."
)

_CHAIN = (
    f"{_COPIED}The chain takes 53 us, 311 us and 2.34 ms (49, 265 and 1677): its arithmetic is "
    "hidden behind the copy, and of 4 MB 2 us are the program's entry."
)

_DECODER = (
    "at best a call takes 1.49 ms, 76 GB/s and so all of the limit; medians follow what the host's "
    "memory gives from one second to the next (1.5 to 2.9 ms), while the limit is the best of "
    "several readings. In turns of some milliseconds with a loop that only reads as many bytes in "
    "order, the call takes 0.8 of that loop's time. Of 1.57 ms the products took 1.38 ms, reading "
    "109 MB at 79 GB/s, attention 77 us with the caches warm, all norms, rotations and writes into "
    "the caches of keys and values 2 us, checking 150 arguments 10 us, and the 48 meetings of two "
    "threads some 25 us. Tried: keys and values read once for two heads (attention of 8 layers 84 "
    "to 70 us, kept) or for four (65 us, not kept: no tasks for a third thread); the range of k "
    "known to the compiler, and so no remainder in the address of each element of A (products on "
    "their own stream 57.9 in place of 51.3 GB/s, where a loop that only reads reaches 57.3; "
    "kept); panels fetched 2 to 16 KB ahead instead (55 to 56.5 GB/s, not kept); the whole call as "
    "one super kernel (3%, performance-superkernel.md). Both that were kept: 1.57 to 1.49 ms at "
    "best."
)

_RESNET = (
    "at batch 8 windows of 3 x 3 run at 92% to 99% of the measured peak; single pixels with a "
    "residual to add at 65% to 85%, since images of 13 to 26 MB are read and written, which no "
    "cache holds. Through torch.compile a call costs about 1 ms more than ahead of time, which is "
    "Dynamo's: its guards and the gathering of 161 parameters take 1.2 ms after another program "
    "has emptied the caches (a backend that returns ready results takes as long). Tried: large "
    "pages, weights and residuals fetched ahead, tiles before panels (21 ms to 18 ms at batch 1; "
    "kept); residual sums written over the residual (2% to 4% at batch 8, kept); schedules chosen "
    "by measuring all candidates (149.0 in place of 149.5 ms)."
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
    "(4% of attention, 0.3% of a call; not kept); residual sums written over the residual (2%, "
    "kept); LLVM without its loop strength reduction (no difference but in compile time, a third "
    "less of LLVM's; not kept, since it is a choice for the whole process)."
)

_BERT_HALVES = (
    "on one core projections of bfloat16 run at 87% to 89% of the measured peak, the one with GELU "
    "behind it at 77%; they are 93% of a call, attention, which computes in float32, is 6%, norms "
    "are 1%. GELU costs about 32 cycles a vector there, 6 to 9 in float32; 13 of its 75 "
    "instructions are two roundings to bfloat16, done in integers, since the processor's own "
    "instruction takes denormals for zeros. Tried: the rows that the next tile reads brought near "
    "(1% of a call, kept); the next head's queries, keys and values fetched ahead (0.3%, not "
    "kept); residual sums written over the residual (kept) and schedules chosen by measuring all "
    "candidates (431 ms of one core each, as without)."
)

_ON_ZEN_5 = {
    **dict.fromkeys(("bert", "bert_8"), _BERT),
    **dict.fromkeys(("bert_bf16", "bert_8_bf16"), _BERT_HALVES),
    **dict.fromkeys(("softmax_4", "softmax_16", "softmax_64"), _SOFTMAX),
    **dict.fromkeys(("layer_norm_4", "layer_norm_16", "layer_norm_64"), _LAYER_NORM),
    **dict.fromkeys(("chain_4", "chain_16", "chain_64"), _CHAIN),
    "decoder_step": _DECODER,
    **dict.fromkeys(("resnet50", "resnet50_8"), _RESNET),
    "quant_matmul": (
        "1.2 times as fast as the best contestant would be 97% of the measured peak, with nothing "
        "left for packing rows, streaming 29 MB of weights and rounding results. Tried: weights on "
        "large pages (4% less time, kept), panels fetched ahead (0.5%, kept), tiles of 8 x 48 in "
        "place of 8 x 32 (0.6%, not kept); of 13 schedules measured on operands that are ready "
        "the best took 26.0 ms."
    ),
}

REMARKS = {NOTED_ON: _ON_ZEN_5}
"""By kind of processor and name of the row."""
