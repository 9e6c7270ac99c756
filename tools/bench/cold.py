"""First calls: every figure comes from a fresh process, with empty caches or those of the first.

    python -m tools.bench.cold MODEL BACKEND       (one measurement, as JSON)

Capture is what "aot_eager" needs for its first call: Dynamo and AOTAutograd alone, the floor of any
backend of torch.compile.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools.bench.bytecode import have_bytecode


@dataclass(frozen=True)
class FirstCalls:
    """Seconds of the first call, median of the runs; `warm` has an earlier process' caches."""

    model: str
    capture: float
    cold: dict[str, float]
    warm: dict[str, float]

    @property
    def by_state(self) -> dict[str, dict[str, float]]:
        """Both tables by the state of the caches."""
        return {"cold": self.cold, "warm": self.warm}


def _measure(model: str, backend: str, caches: Path) -> float:
    environment = {
        **os.environ,
        "KERNELMILL_KERNEL_META": str(caches / "kernel_meta"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }
    command = [sys.executable, "-W", "ignore", "-m", "tools.bench.cold", model, backend]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[3:])}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])["first"]


def first_calls(model: str, backends: tuple[str, ...], runs: int) -> FirstCalls:
    """Capture, and the first call of each backend with empty caches and then with full ones.

    Only ours is measured `runs` times: the others take minutes.
    """
    have_bytecode()
    capture: list[float] = []
    cold: dict[str, list[float]] = {backend: [] for backend in backends}
    warm: dict[str, list[float]] = {backend: [] for backend in backends}
    for run in range(runs):
        with tempfile.TemporaryDirectory(prefix="kernelmill-bench-") as folder:
            capture.append(_measure(model, "aot_eager", Path(folder)))
            for backend in backends if run == 0 else ("kernelmill",):
                cold[backend].append(_measure(model, backend, Path(folder)))
                warm[backend].append(_measure(model, backend, Path(folder)))
    return FirstCalls(
        model,
        statistics.median(capture),
        {backend: statistics.median(times) for backend, times in cold.items()},
        {backend: statistics.median(times) for backend, times in warm.items()},
    )


def main(model: str, backend: str) -> None:
    """One measurement in this process, printed as JSON."""
    import torch

    from tools.bench.models import BUILDERS

    subject = BUILDERS[model]()
    case = subject.case
    start = time.perf_counter()
    compiled = torch.compile(case.model, backend=backend, dynamic=False)
    with torch.no_grad(), subject.settings():
        compiled(*case.args)
    print(json.dumps({"first": time.perf_counter() - start}))


if __name__ == "__main__":
    main(*sys.argv[1:])
