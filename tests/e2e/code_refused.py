"""A process that may not run code that it made, on a system that can forbid it: PR_SET_MDWE of
Linux (prctl(2)), or else as if mprotect had refused. What its arguments name is kept by one that
may."""

import ctypes
import sys

import torch

from kernelmill import KernelmillError, aot
from kernelmill.cli.checks.system import system
from kernelmill.inference import cache_compile
from kernelmill.runtime.linking import elf_loader

_SET_MDWE, _REFUSE_GAIN = 65, 1
file, methods, may = sys.argv[1:]


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x) * 2 + x.sum()


def refuse(*_):
    raise PermissionError(1, "Operation not permitted")


def forbid():
    if ctypes.CDLL(None).prctl(_SET_MDWE, _REFUSE_GAIN, 0, 0, 0):
        elf_loader.LoadedCode.__init__ = refuse


model, x = Model(), torch.randn(4, 8)
cached = cache_compile(model.forward, cache_dir=methods)
if may == "may":
    cached(x)
    aot.compile(model, (x,), path=file)
    sys.exit()
forbid()
compiled = torch.compile(model, backend="kernelmill", dynamic=False)
for size in (4, 3):
    x = torch.randn(size, 8)
    assert torch.equal(compiled(x), model(x))
    assert torch.equal(cached(x), model(x))
print(cached.statistics)
try:
    aot.load(file)
except KernelmillError as error:
    print(type(error).__name__)
print(*(f"doctor: {each.what}; {each.do}" for each in system().findings if each.level == "wrong"))
