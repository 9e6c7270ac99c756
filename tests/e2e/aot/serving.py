"""Loads a compiled file where there is neither a model nor a compiler, and compares: run as a
script with the file and the expected calls."""

import os
import sys

import torch

import kernelmill


def forbidden(event, args):
    if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.system"):
        raise RuntimeError(f"{event} {args[:1]}")


if __name__ == "__main__":
    sys.addaudithook(forbidden)
    program = kernelmill.aot.load(sys.argv[1])
    calls = torch.load(sys.argv[2], weights_only=True)
    for args, kwargs, expected in calls[: int(sys.argv[3])]:
        with torch.no_grad():
            torch.testing.assert_close(program(*args, **kwargs), expected)
    named = dict(zip(program.parameters, calls[0][0], strict=False))
    program(**named, **calls[0][1])
    unwanted = ("torch._dynamo", "torch._functorch.aot_autograd", "kernelmill.codegen")
    print([name for name in unwanted if name in sys.modules], os.listdir("."))
