# ruff: noqa: E501  # a row of the table is a line
"""Edits of subject.py and of what surrounds it, and what each must do to its cache.

`python -m tests.e2e.cached.mutations` runs all of them, each in a process of its own (forked from
one that has only imported torch and kernelmill) on a copy of the same cache, and writes the table
into docs/lab/edits.md. test_mutations.py runs a few, what is about packages in processes that are started anew.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SUBJECT = Path(__file__).with_name("subject.py")
ROOT = Path(__file__).parents[3]
Python = Callable[..., subprocess.CompletedProcess[str]]
"""Runs a script: (its name, cwd, env) -> how that ended."""

CACHE = "cache"
"""The folder of the cache, where a process runs."""
DOCUMENT = ROOT / "docs" / "lab" / "edits.md"

PACKAGE = {
    "torchextra/__init__.py": "class Raised:\n    def __call__(self, x):\n        return self.more(x)\n\n    def more(self, x):\n        return x + 0.0625\n\n    def other(self, x):\n        return x\n",
    "torchextra-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torchextra\nVersion: 1.0\n",
}
"""An installed package, which lies beside torch and whose name begins with torch's."""


@dataclass(frozen=True)
class Mutation:
    """`old` becomes `new` in the file, `code` runs on the built model before the first call, or
    files of the package have other contents.
    `expected` is "rebuilt", "hit" or "not cached"."""

    what: str
    expected: str
    old: str = ""
    new: str = ""
    code: str = ""
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def apply(self, text: str) -> str:
        if self.old:
            assert text.count(self.old) >= 1, f"{self.what}: {self.old!r} is not in the subject"
            text = text.replace(self.old, self.new, 1)
        if self.code:
            text = text.replace('    """Tests put edits of the model here."""', f"    {self.code}")
        return text


def _edit(what: str, old: str, new: str, expected: str = "rebuilt") -> Mutation:
    return Mutation(what, expected, old, new)


def _run(what: str, code: str, expected: str = "rebuilt") -> Mutation:
    return Mutation(what, expected, code=code)


def _package(what: str, file: str, old: str, new: str, expected: str = "rebuilt") -> Mutation:
    assert old in PACKAGE[file], f"{what}: {old!r} is not in the package"
    return Mutation(what, expected, files={file: PACKAGE[file].replace(old, new)})


MUTATIONS = (
    # code
    _edit("method: another operator", ".clamp(max=self.limit)", ".clamp(min=-self.limit)"),
    _edit("method: another constant", "x * 10.0\n        x = third", "x * 10.0 + 0\n        x = third"),
    _edit("method: constant of a branch not taken", "x = x * 10.0", "x = x * 11.0"),
    _edit("method: operands exchanged", "x + OFFSET * self.half", "OFFSET * self.half + x"),
    _edit("method: default of an argument", 'mode="plain"', 'mode="loud"'),
    _edit("method: another argument", 'y=None, mode="plain"', 'y=None, mode="plain", z=None'),
    _edit("method: another key of the result", '"size": x.shape[0]', '"rows": x.shape[0]'),
    _edit("method: comment", "        for block in", "        # every block\n        for block in", "hit"),
    _edit("method: blank lines", "        for block in", "\n\n        for block in", "hit"),
    _edit("method: docstring", '"""Docstring."""', '"""Other docstring."""'),
    _edit("submodule's forward", "* self.rate * self.gain", "* self.rate / self.gain"),
    _edit("submodule's forward: comment", "    def forward(self, x):", "    # comment\n    def forward(self, x):", "hit"),
    _edit("subclass gets a forward of its own", "class Special(Block):\n    pass", "class Special(Block):\n    def forward(self, x):\n        return super().forward(x) * 2.0"),
    _edit("subclass gets an unrelated method", "class Special(Block):\n    pass", "class Special(Block):\n    def other(self):\n        return 1", "hit"),
    _edit("helper", "* factor + shift", "* factor - shift"),
    _edit("helper of the helper", "x.sin()", "x.cos()"),
    _edit("helper: positional default", "factor=4.0", "factor=5.0"),
    _edit("helper: keyword default", "shift=1.0", "shift=1.5"),
    _edit("helper: comment and type hint", "def inner(x):", "def inner(x):  # inner", "hit"),
    _edit("unrelated function: code", "return x + 1", "return x + 2", "hit"),
    _edit("unrelated function: added", "def unrelated(x):", "def more(x):\n    return x\n\n\ndef unrelated(x):", "hit"),
    _edit("closure: code", "return x + amount", "return x - amount"),
    _edit("closure: value", "make_closure(0.75)", "make_closure(0.5)"),
    _edit("decorator's wrapper", "function(*args) * 2.0", "function(*args) * 3.0"),
    _edit("decorated function", "return x.cos()", "return x.sin()"),
    _edit("decorator removed", "@doubled\n", ""),
    _edit("lambda", "x / 3.0", "x / 4.0"),
    _edit("partial: its argument", "factor=1.5)", "factor=2.5)"),
    _edit("partial: another function", "functools.partial(helper, factor=1.5)", "functools.partial(lambda x, factor: x * factor, factor=1.5)"),
    _edit("property", "return 0.5", "return 0.75"),
    _edit("static method", "x * 1.25", "x * 1.5"),
    _edit("class method", "x + cls.level", "x - cls.level"),
    _edit("helper rebound to another function", "class Block", "def helper(x, factor=1.0):\n    return x * factor\n\n\nclass Block"),
    _edit("name of a builtin defined in the module", "def inner(x):", "def iter(x):\n    return [x]\n\n\ndef inner(x):", "hit"),
    # globals and attributes
    _edit("global number", "SCALE = 2.0", "SCALE = 2.5"),
    _edit("global number: the same, written otherwise", "SCALE = 2.0", "SCALE = 4.0 / 2.0", "hit"),
    _edit("global number: another type", "SCALE = 2.0", "SCALE = 2"),
    _edit("element of a global list", "[1.0, 3.0]", "[1.5, 3.0]"),
    _edit("unread element of a global list", "[1.0, 3.0]", "[1.0, 4.0]", "rebuilt"),
    _edit("value in a global dict", '"gain": 0.5', '"gain": 0.25'),
    _edit("global tensor: contents", "(4,), 0.25", "(4,), 0.5", "hit"),
    _edit("global tensor: shape", "torch.full((4,), 0.25)", "torch.full((1,), 0.25)"),
    _edit("global tensor: dtype", "torch.full((4,), 0.25)", "torch.full((4,), 0.25).double()"),
    _edit("class attribute of an object", "power = 2", "power = 3"),
    _edit("instance attribute of an object", "self.bias = 0.125", "self.bias = 0.25"),
    _edit("class attribute of a submodule", "gain = 1.5", "gain = 1.75"),
    _edit("class attribute of the model", "level = 3", "level = 4"),
    _edit("attribute of a submodule", "self.rate = 0.5", "self.rate = 0.25"),
    _edit("tuple attribute", "self.steps = (1, 2)", "self.steps = (1, 3)"),
    _edit("flag in a dict attribute", '"add": True', '"add": False'),
    _edit("unread entry of a dict attribute", '"unread": 1', '"unread": 2', "rebuilt"),
    _edit("attribute: a function", "self.activation = torch.relu", "self.activation = torch.tanh"),
    _edit("attribute: a number", "self.limit = 2.5", "self.limit = 1.5"),
    # structure
    _edit("a layer more", "[Block(), Special()]", "[Block(), Special(), Block()]"),
    _edit("a layer less", "[Block(), Special()]", "[Block()]"),
    _edit("layers exchanged", "[Block(), Special()]", "[Special(), Block()]"),
    _edit("another class of layer", "[Block(), Special()]", "[Block(), Block()]"),
    _edit("eps of a norm", "nn.LayerNorm(4)", "nn.LayerNorm(4, eps=0.1)"),
    _edit("no bias", "nn.Linear(4, 4)", "nn.Linear(4, 4, bias=False)"),
    _edit("another probability of dropout in eval mode", "nn.Dropout(0.5)", "nn.Dropout(0.1)"),
    _edit("seed of the weights", "manual_seed(0)", "manual_seed(7)", "hit"),
    _edit("values of a buffer", "[1.0, 0.0, 1.0, 1.0]", "[0.0, 1.0, 1.0, 0.5]", "hit"),
    _edit("dtype of a buffer", "torch.tensor([1.0, 0.0, 1.0, 1.0])", "torch.tensor([1, 0, 1, 1])"),
    _run("parameters in double", "model.double(); OFFSET.data = OFFSET.double(); global arguments; old = arguments; arguments = lambda: (old()[0].double(), {'more': [old()[1]['more'][0].double()]})"),
    _run("a parameter with other strides", "w = model.blocks[0].linear.weight; w.data = w.data.t().contiguous().t()", "rebuilt"),
    _run("forward hook", "model.blocks[0].register_forward_hook(lambda m, a, o: o * 2.0)"),
    _run("forward replaced on the instance", "model.blocks[0].forward = lambda x: x * 2.0"),
    _run("method of a class replaced", "Block.forward = lambda self, x: self.linear(x)"),
    _run("method of a class of torch's replaced", "nn.Linear.forward = lambda self, x: torch.nn.functional.linear(x, self.weight)"),
    _run("method of a class of torch's wrapped", "old = nn.Linear.forward; nn.Linear.forward = functools.wraps(old)(lambda self, x: old(self, x) * 2.0)"),
    _run("load_state_dict", "model.load_state_dict({k: v * 0.5 for k, v in model.state_dict().items()})", "hit"),
    _run("weights written in place", "model.blocks[1].linear.weight.data.mul_(3.0)", "hit"),
    # packages
    _package("package beside torch, with torch's name in front: code", "torchextra/__init__.py", "x + 0.0625", "x - 0.0625"),
    _package("package: a function that was not traced", "torchextra/__init__.py", "return x\n", "return -x\n", "hit"),
    _package("package: version", "torchextra-1.0.dist-info/METADATA", "Version: 1.0", "Version: 1.1"),
    # calls and settings
    _edit("argument of another dtype", "[torch.randn(4)]", "[torch.randn(4).double()]"),
    _edit("argument of another rank", "torch.randn(rows, 4), ", "torch.randn(2, rows, 4), "),
    _edit("argument of another size", "rows=3", "rows=5", "hit"),
    _edit("argument with other strides", "torch.randn(rows, 4), ", "torch.randn(4, rows).t(), ", "rebuilt"),
    _edit("argument left out", "model.run(x, y), model.cached(x, y)", "model.run(x), model.cached(x)"),
    _edit("a constant argument", "model.run(x, y), model.cached(x, y)", "model.run(x, y, 'loud'), model.cached(x, y, 'loud')"),
    _run("default dtype", "torch.set_default_dtype(torch.float64); globals().update(arguments=lambda: (torch.ones(3, 4, dtype=torch.float32), {'more': [torch.ones(4, dtype=torch.float32)]}))"),
    _run("deterministic algorithms", "torch.use_deterministic_algorithms(True)"),
    _run("float32 precision", "torch.set_float32_matmul_precision('medium')"),
    _run("flushing of denormals", "torch.set_flush_denormal(True)"),
    _edit("static instead of dynamic", "model = build()", "model = build(dynamic=False)"),
    _edit("custom decompositions", "model = build()", "model = build(custom_decompositions={torch.ops.aten.log.default: unrelated})"),
    _edit("option of the config", "config=CompilerConfig()", "config=switched()"),
    Mutation("environment: logging", "hit", env={"KERNELMILL_LOGS": "-store"}),
    Mutation("environment: number of threads", "hit", env={"OMP_NUM_THREADS": "1"}),
    Mutation("environment: folder of kernels", "hit", env={"KERNELMILL_KERNEL_META": "elsewhere"}),
    _run("version of kernelmill", "swap(model, 'kernelmill', '0.0.0')"),
    _run("version of torch", "swap(model, 'torch', '0.0.0')"),
    _run("version of LLVM", "swap(model, 'llvm', '0.0.0')"),
    _run("processor", "swap(model, 'target', 'x86_64-unknown-linux-gnu x86-64-v2 - vector128')"),
)  # fmt: skip

_TOOLS = """
def swap(model, name, value):
    model.cached._ingredients[name] = value


def switched():
    config = CompilerConfig()
    config.experimental_config.remove_noop_ops = False
    return config


def build("""


def _fill(folder: Path, text: str, files: dict[str, str]) -> None:
    """Write the subject, and around it what is installed: torch itself and the package."""
    (folder / "subject.py").write_text(text.replace("\ndef build(", _TOOLS, 1))
    for name, contents in {**PACKAGE, **files}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(contents)
    if not (folder / "torch").exists():
        (found,) = importlib.util.find_spec("torch").submodule_search_locations
        (folder / "torch").symlink_to(found)


def started_anew(
    script: str, cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """A process that imports everything itself, when it has ended."""
    return subprocess.run(
        [sys.executable, script], cwd=cwd, env=env, capture_output=True, text=True
    )


def run(
    folder: Path, text: str, env: dict[str, str] | None = None,
    files: dict[str, str] | None = None, python: Python = started_anew,
) -> dict:  # fmt: skip
    """What the subject prints, run as a process in `folder`. RuntimeError with its errors."""
    _fill(folder, text, files or {})
    environment = {
        **os.environ,
        "KERNELMILL_CACHE_HOME": CACHE,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
        **(env or {}),
    }
    done = python("subject.py", cwd=folder, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def _copy(base: str | Path, folder: str) -> None:
    shutil.copytree(Path(base) / CACHE, Path(folder) / CACHE)


def outcome(base: Path, mutation: Mutation, python: Python = started_anew) -> str:
    """ "hit" or "rebuilt": what a process with the mutation does with a copy of the cache."""
    with tempfile.TemporaryDirectory() as folder:
        _copy(base, folder)
        text = mutation.apply(SUBJECT.read_text())
        found = run(Path(folder), text, mutation.env, mutation.files, python)
    if found["uncached"]:
        return "not cached"
    return "rebuilt" if found["traced"] else "hit"


def main() -> None:
    """Run all, write the table."""
    import kernelmill.backend.record  # noqa: F401  # what every rebuild imports

    with tempfile.TemporaryDirectory() as base:
        os.environ["KERNELMILL_KERNEL_META"] = os.path.join(base, "kernels")
        os.environ["KERNELMILL_CACHE_HOME"] = CACHE  # of wherever a fork goes
        first = run(Path(base), SUBJECT.read_text())
        assert first["traced"] == 1, first
        outcomes: dict[str, str] = {}
        running: dict[int, tuple[Mutation, str]] = {}
        for mutation in MUTATIONS:
            if mutation.env:
                outcomes[mutation.what] = outcome(Path(base), mutation)
                continue
            if len(running) == 2:
                _reap(running, outcomes)
            folder = tempfile.mkdtemp()
            _copy(base, folder)
            running[_forked(folder, mutation)] = mutation, folder
        while running:
            _reap(running, outcomes)
    _write(outcomes)
    wrong = [m.what for m in MUTATIONS if outcomes[m.what] != m.expected]
    print(f"{len(MUTATIONS)} mutations, not as expected: {wrong}")


def _forked(folder: str, mutation: Mutation) -> int:
    _fill(Path(folder), mutation.apply(SUBJECT.read_text()), mutation.files)
    child = os.fork()
    if child:
        return child
    os.chdir(folder)
    sys.path.insert(0, folder)
    output = os.open("output", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        runpy.run_path("subject.py", run_name="__main__")
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(0)


def _reap(running: dict[int, tuple[Mutation, str]], outcomes: dict[str, str]) -> None:
    child, _ = os.wait()
    mutation, folder = running.pop(child)
    line = (Path(folder) / "output").read_text().splitlines()[-1]
    shutil.rmtree(folder)
    try:
        found = json.loads(line)
    except ValueError:
        outcomes[mutation.what] = f"failed: {line[:150]}"
    else:
        traced = "rebuilt" if found["traced"] else "hit"
        outcomes[mutation.what] = "not cached" if found["uncached"] else traced
    print(
        f"{outcomes[mutation.what]:10} expected {mutation.expected:8} {mutation.what}", flush=True
    )


def _write(outcomes: dict[str, str]) -> None:
    rows = [f"| {mutation.what} | {outcomes[mutation.what]} |" for mutation in MUTATIONS]
    table = "\n".join(("| edit | the next process |", "|---|---|", *rows))
    begin, end = "<!-- mutations -->\n", "\n<!-- end -->"
    before, _, rest = DOCUMENT.read_text().partition(begin)
    DOCUMENT.write_text(f"{before}{begin}{table}{end}{rest.partition(end)[2]}")


if __name__ == "__main__":
    main()
