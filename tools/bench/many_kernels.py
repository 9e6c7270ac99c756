"""First calls of networks with a hundred different kernels and more, with an empty store, on one
core.

python -m tools.bench.many_kernels         writes docs/performance-first-calls.md
python -m tools.bench.many_kernels MODEL BACKEND      one measurement in this process, as JSON

On one core nothing runs side by side, so that processor time is the measure. It hardly depends on
what else the machine does. Beside a busy process of the same core it takes twice as long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import kernelmill
from kernelmill.inference import finish_packing
from tools.bench.busy import busy_core
from tools.bench.by_machine import publish
from tools.bench.bytecode import have_bytecode
from tools.bench.image_models import MODELS, build
from tools.bench.tables import duration, table
from tools.machine import description

RESULT = Path("docs/performance-first-calls.md")
CAPTURE = "aot_eager"
"""What torch needs whatever the backend is."""
BEHIND = "kernelmill, in the background"
"""With config.experimental_config.compile_in_background."""


def measure(model: str, backend: str, busy: bool) -> dict[str, float]:
    """Seconds of a first call, those of the processor, and those from its beginning until all is
    compiled; the largest difference from eager of that call and of a later one, of eager's largest
    element."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    module, x = build(model)
    compiled = torch.compile(module, backend=_backend(backend), dynamic=False)
    with torch.no_grad():
        with busy_core(busy):
            start, processor = time.perf_counter(), time.process_time()
            first = compiled(x)
            spent = time.perf_counter() - start
            processor = time.process_time() - processor
            finish_packing()
            whole = time.perf_counter() - start
        expected = module(x)
        scale = float(expected.abs().max())
        errors = [float((found - expected).abs().max()) / scale for found in (first, compiled(x))]
    return {"seconds": spent, "processor": processor, "whole": whole, "error": max(errors)}


def _backend(name: str) -> Any:
    if name != BEHIND:
        return name
    config = kernelmill.CompilerConfig()
    config.experimental_config.compile_in_background = True
    return kernelmill.get_backend(compiler_config=config)


def _fresh(model: str, backend: str, busy: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="kernelmill-bench-") as folder:
        own = {"KERNELMILL_KERNEL_META": folder, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
        command = [sys.executable, "-W", "ignore", "-m", "tools.bench.many_kernels", model, backend]
        command += ["busy"] if busy else []
        done = subprocess.run(
            command, env={**os.environ, **own}, capture_output=True, text=True, check=True
        )
        kernels = sum(1 for _ in Path(folder).rglob("*.o"))
        return {**json.loads(done.stdout.splitlines()[-1]), "kernels": kernels}


def main() -> None:
    """Measure, and write the document."""
    have_bytecode()
    rows: list[list[str]] = []
    behind: list[list[str]] = []
    for model in MODELS:
        capture, inductor = (_fresh(model, each, busy=False) for each in (CAPTURE, "inductor"))
        alone, beside = (_fresh(model, "kernelmill", busy) for busy in (False, True))
        first, second = (_fresh(model, BEHIND, busy) for busy in (False, True))
        row = [model, f"{alone['kernels']:.0f}"]
        row += [duration(each["seconds"]) for each in (alone, beside, inductor)]
        row += [duration(each["processor"]) for each in (alone, capture)]
        rows.append([*row, duration(alone["processor"] - capture["processor"])])
        times = (first["seconds"], first["whole"], second["seconds"], second["whole"])
        error = max(each["error"] for each in (alone, beside, first, second))
        behind.append([model, *map(duration, times), f"{error:.0e}"])
        print(rows[-1], behind[-1], flush=True)
    head = ["", "kernels", "alone", "beside a busy process", "Inductor alone", "processor time"]
    lines = [
        "# Performance of first calls",
        f"`python -m tools.bench.many_kernels`, {description()}",
        "Image networks with many different kernels, batch 1, 224 x 224, empty store, a new "
        "process for each, all on one core. The busy process is on the same core. Goal: half of "
        "the 8 to 17 s that first calls of such networks took on one busy core.",
        table([*head, f"{CAPTURE}'s", "the rest"], rows),
        f"*{CAPTURE}* is what torch needs whatever the backend is: the trace.",
        "With `experimental_config.compile_in_background` torch answers first, on the same core "
        "as the compile. *Error* is the largest difference from eager of first and later calls "
        "of both tables, of eager's largest element.",
        table(
            [
                "",
                "first answer, alone",
                "compiled",
                "first answer beside a busy process",
                "compiled",
                "error",
            ],
            behind,
        ),
    ]
    publish(RESULT, "\n\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], sys.argv[2], "busy" in sys.argv[3:])))
    else:
        main()
