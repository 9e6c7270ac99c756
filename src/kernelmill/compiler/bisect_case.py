"""A launch as a folder: texts, data, and a script that runs it and shows the difference.

report.txt    the difference, the operators, and the line in the user's code
kernel.txt    the kernel, as text
plan.txt      a plan of this one launch; its inputs are the launch's buffers
buffer0.npy   the buffers before the launch, in the order of the plan; bfloat16 as its bits
right2.npy    the expected contents of buffer 2 after the launch
show.py       compiles kernel.txt, runs it, and prints the difference
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kernelmill import codegen
from kernelmill.compiler.bisect import Case, Difference
from kernelmill.compiler.compared import difference
from kernelmill.core.dim import evaluate
from kernelmill.core.dtype import to_torch
from kernelmill.core.target.isa import target_isa
from kernelmill.kernel.parser import parse_kernel
from kernelmill.kernel.printer import print_kernel
from kernelmill.plan.ir import Plan, TensorInput
from kernelmill.plan.parser import parse_plan
from kernelmill.plan.printer import print_plan
from kernelmill.runtime.program import load

_SHOW = '''"""Compiles kernel.txt, runs it, and prints what differs from right*.npy."""

from pathlib import Path

from kernelmill.compiler.bisect_case import run_case

for line in run_case(Path(__file__).parent) or ["no difference"]:
    print(line)
'''


def write_case(folder: Path, found: Difference, case: Case) -> None:
    """Write the folder of a case, creating it. Files of an earlier case in it are replaced."""
    os.makedirs(folder, exist_ok=True)
    for old in (*folder.glob("buffer*.npy"), *folder.glob("right*.npy")):
        old.unlink()
    (folder / "report.txt").write_text(describe(found) + "\n")
    (folder / "kernel.txt").write_text(print_kernel(case.kernel))
    (folder / "plan.txt").write_text(print_plan(case.plan))
    for number, tensor in enumerate(case.arguments):
        np.save(folder / f"buffer{number}.npy", _to_numpy(tensor))
    for number, tensor in case.expected.items():
        np.save(folder / f"right{number}.npy", _to_numpy(tensor))
    (folder / "show.py").write_text(_SHOW)


def describe(found: Difference) -> str:
    """Return a description of a difference in a few lines."""
    if found.kernel is None:
        where = {
            "import": "The graphs that torch captured, or their import, differ from the model",
            "passes": f"The rewrites of {found.graph} change its results",
            "program": f"Each launch of {found.graph} is right by itself, but not the whole: look "
            "at super kernels, memory that launches share, or threads",
        }[found.stage]
        return f"{where}: {found.text}"
    code = found.kernel.origin
    return "\n".join([
        f"{found.kernel.title} in {found.graph} differs from eager first",
        f"  operators  {', '.join(found.kernel.operators)}",
        f"  value      {found.value}: {found.text}",
        *([f"  code       {code}"] if code else []),
    ])  # fmt: skip


def run_case(folder: Path) -> list[str]:
    """Compile the kernel of a folder and run it; return a line for each buffer that is wrong."""
    kernel = parse_kernel((folder / "kernel.txt").read_text())
    plan = parse_plan((folder / "plan.txt").read_text())
    given = [_argument(folder, plan, number) for number in range(len(plan.inputs))]
    load(plan, {kernel.name: codegen.compile_kernel(kernel, target_isa(None))})(*given)
    lines: list[str] = []
    for number, actual in enumerate(given):
        path = folder / f"right{number}.npy"
        if path.exists():
            text = difference(actual, _from_numpy(path, actual.dtype))
            lines += [f"buffer {number}: {text}"] if text else []
    return lines


def _argument(folder: Path, plan: Plan, number: int) -> Tensor:
    entry = plan.inputs[number]
    assert isinstance(entry, TensorInput)
    shape, strides = ([evaluate(dim, {}) for dim in dims] for dims in (entry.shape, entry.strides))
    tensor = torch.empty_strided(shape, strides, dtype=to_torch(entry.dtype))
    return tensor.copy_(_from_numpy(folder / f"buffer{number}.npy", tensor.dtype))


def _to_numpy(tensor: Tensor) -> np.ndarray:
    dense = tensor.contiguous()
    return (dense.view(torch.uint16) if dense.dtype == torch.bfloat16 else dense).numpy()


def _from_numpy(path: Path, dtype: torch.dtype) -> Tensor:
    loaded = torch.from_numpy(np.load(path, allow_pickle=False))
    return loaded.view(dtype) if dtype == torch.bfloat16 else loaded
