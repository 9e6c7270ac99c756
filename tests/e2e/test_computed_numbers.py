"""Numbers made of sizes: truth values, and floats as results."""

import math
import subprocess
import sys

import pytest
import torch

import kernelmill

TRUTHS = {
    "full": lambda x, n: torch.full((1,), n >= 4),
    "full of a dtype": lambda x, n: torch.full((1,), n >= 4, dtype=torch.int64),
    "new_full": lambda x, n: x.new_full((2,), n >= 4),
    "where": lambda x, n: torch.where(x > 0, n >= 4, False),
    "logical": lambda x, n: (x > 0) & (n >= 4),
    "both": lambda x, n: torch.full((1,), (n >= 4) & (n < 9)),
    "choice": lambda x, n: x * torch.sym_ite(n >= 4, 2, 3),
    "result": lambda x, n: (x * 2, n >= 4),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_a_truth_value_of_a_size_follows_the_size(name):
    function = TRUTHS[name]
    backend = kernelmill.get_backend()
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for n in (5, 3, 12, 2, 6):
        x = torch.ones(n)
        torch.testing.assert_close(compiled(x, n), function(x, n), rtol=0, atol=0)
    assert [capture.refused for capture in backend.captures] == [""] * len(backend.captures)


def test_floats_made_of_sizes_are_results():
    def numbers(x):
        n = x.size(-1)
        return x * 2, float(n) * 0.5, n / 7, math.sqrt(n) + 1 / n

    backend = kernelmill.get_backend()
    compiled = torch.compile(numbers, backend=backend, dynamic=True)
    for n in (10, 11, 12):
        x = torch.randn(3, n)
        found, expected = compiled(x), numbers(x)
        assert torch.equal(found[0], expected[0])
        assert found[1:] == expected[1:]
        assert all(type(each) is float for each in found[1:])
    assert [capture.refused for capture in backend.captures] == [""]


_INSTALLED = """
import torch
import kernelmill.compat

kernelmill.compat.install()

def numbers(x):
    scale = torch.scalar_tensor(x.size(-1) * 0.5, device="npu")
    return x * scale, float(x.size(-1))

for backend in ("eager", "kernelmill"):
    torch._dynamo.reset()
    compiled = torch.compile(numbers, backend=backend, dynamic=True, fullgraph=True)
    for n in (3, 5):
        found = compiled(torch.ones(2, n))
        print(found[0].sum().item(), found[1])
"""


def test_floats_made_of_sizes_are_results_where_scripts_for_the_npu_run():
    command = [sys.executable, "-c", _INSTALLED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["9.0", "3.0", "25.0", "5.0"] * 2
