"""Runs the benchmark.

python -m tools.bench                                  everything: some twenty minutes
python -m tools.bench --models mlp bert --seconds 5    a quick look, printed and not written
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from tools.bench import report
from tools.bench.cold import FirstCalls, first_calls
from tools.bench.contestants import CONTESTANTS
from tools.bench.fixed import FixedCost, fixed_cost
from tools.bench.models import NAMES, build
from tools.bench.steady import Standing, race

RESULT = Path("docs/performance.md")
COLD_MODELS = ("mlp", "minilm", "bert", "resnet50", "decoder_step")


def main() -> None:
    """Measures, prints, and writes the result when the whole benchmark was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--contestants", nargs="+", choices=[*CONTESTANTS], default=[*CONTESTANTS])
    parser.add_argument("--seconds", type=float, default=20.0, help="of steady calls a model")
    parser.add_argument("--runs", type=int, default=3, help="fresh processes for each first call")
    parser.add_argument("--skip", nargs="+", choices=("steady", "cold", "fixed"), default=[])
    options = parser.parse_args()
    standings: list[Standing] = []
    starts: list[FirstCalls] = []
    cost: FixedCost | None = None
    for name in options.models if "steady" not in options.skip else ():
        standings.append(race(build(name), options.contestants, options.seconds))
        print(report.steady(standings[-1:]), report.refusals(standings[-1:]), sep="\n", flush=True)
    for name in [n for n in COLD_MODELS if n in options.models and "cold" not in options.skip]:
        starts.append(first_calls(name, ("kernelmill", "inductor"), options.runs))
        print(report.first(starts[-1:]), flush=True)
    if "fixed" not in options.skip:
        cost = fixed_cost()
        print(report.fixed(cost))
    text = report.document(standings, starts, cost, torch.get_num_threads())
    complete = options.models == list(NAMES) and not options.skip
    if complete:
        RESULT.write_text(text)
        print(f"written to {RESULT}")


if __name__ == "__main__":
    main()
