"""When weights are packed: where the thread that packs gets no time, and after a compile."""

from pathlib import Path

from tests.fresh import FreshProcesses

CODE = """
import os, torch, kernelmill
from kernelmill import aot
from kernelmill.runtime import background
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
torch.set_num_threads(1)
background.submit = lambda work: None
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(80)]).eval()
model.requires_grad_(False)
x = torch.randn(8, 512)
program = aot.load(aot.compile(model, (x,), path="model.kmill"))
left = []
with torch.no_grad():
    for _ in range(20):
        result = program(x)
        left.append(program.report()["packing"])
    assert torch.allclose(result, model(x), atol=1e-4)
print(left[0] > 0, left[-1], left == sorted(left, reverse=True))
"""


AFTER_A_COMPILE = """
import torch, kernelmill
from kernelmill.runtime import background
background.submit = lambda work: None
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(40)]).eval()
compiled, x = kernelmill.compile(model, cache_dir="cache"), torch.randn(8, 512)
with torch.no_grad():
    for _ in range(3):
        assert torch.allclose(compiled(x), model(x), atol=1e-4)
        print(compiled.report().counters["streamed"], compiled.report().counters["packing"])
"""


def test_calls_after_one_that_compiles_find_all_packed(
    fresh: FreshProcesses, tmp_path: Path
) -> None:
    """The next process loads it, and its first answer does not wait."""
    for expected in ("0 0 0 0 0 0", "1 40 1 0 1 0"):
        done = fresh.start("-c", AFTER_A_COMPILE, cwd=tmp_path).result()
        assert (done.returncode, " ".join(done.stdout.split())) == (0, expected), done.stderr


def test_packing_ends_and_the_report_says_how_far_it_is(
    fresh: FreshProcesses, tmp_path: Path
) -> None:
    done = fresh.start("-c", CODE, cwd=tmp_path).result()
    assert (done.returncode, done.stdout) == (0, "True 0 True\n"), done.stderr
