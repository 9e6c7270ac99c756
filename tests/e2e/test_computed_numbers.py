"""Numbers made of sizes: truth values, and floats as results."""

import math
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

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


KERNEL = torch.linspace(-1, 1, 4 * 4 * 3).reshape(4, 4, 3)
OPERATORS = {
    "padding of a convolution": lambda x: F.conv1d(x, KERNEL, padding=x.shape[0]),
    "stride of a convolution": lambda x: F.conv1d(x, KERNEL, stride=x.shape[0]),
    "dilation of a convolution": lambda x: F.conv1d(x, KERNEL, dilation=x.shape[0]),
    "groups of a convolution": lambda x: F.conv1d(
        x.reshape(1, -1, x.shape[2]), KERNEL.repeat(x.shape[0], 1, 1), groups=x.shape[0]
    ),
    "elu": lambda x: F.elu(x, 1 / x.shape[0]),
    "linspace": lambda x: torch.linspace(0, x.shape[0] * 0.5, 7) + x.sum(),
    "logspace": lambda x: torch.logspace(0, x.shape[0] * 0.1, x.shape[0]) + x.sum(),
    "depth of attention": lambda x: _of_depth(x),
    "depth of attention with a scale": lambda x: _of_depth(x, scale=0.5),
    "scale of attention": lambda x: F.scaled_dot_product_attention(
        *[x[None]] * 3, scale=1 / x.shape[0]
    ),
    "groups of a norm": lambda x: F.group_norm(x.transpose(0, 1), x.shape[0]),
    "padding with a number": lambda x: F.pad(x, (x.shape[0], 1), value=x.shape[0] * 0.5),
    "quantile": lambda x: torch.quantile(x, 1 / x.shape[0]),
    "window of a pool": lambda x: F.avg_pool1d(x, x.shape[0]),
}


def _of_depth(x, **options):
    """Attention as long as `x` has numbers in a row, and as deep as it has rows: laid out so that
    torch calls one operator and does not spell it out."""
    return F.scaled_dot_product_attention(*[x.permute(1, 2, 0).contiguous()[None]] * 3, **options)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_attribute_made_of_sizes_refuses_no_graph(name):
    function = OPERATORS[name]
    backend = kernelmill.get_backend()
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for n in (3, 5, 4):
        x = torch.linspace(-2, 3, n * 4 * 12).reshape(n, 4, 12)
        torch.testing.assert_close(compiled(x), function(x))
    assert {capture.refused for capture in backend.captures} == {""}


def test_a_power_of_numbers_without_bounds():
    backend = kernelmill.get_backend()
    compiled = torch.compile(lambda x, y, z: x + y**z, backend=backend, dynamic=True)
    for y, z in ((2, 3), (3, 4)):
        assert compiled(torch.ones(2), y, z).tolist() == [1.0 + y**z] * 2
    assert [capture.refused for capture in backend.captures] == [""]


TRAINED = {
    "float": lambda x, w: (x @ w) * (x.shape[0] * 0.5) + math.sqrt(x.shape[0]),
    "float as an attribute": lambda x, w: F.elu(x @ w, 1 / x.shape[0]),
    "truth value": lambda x, w: (x @ w) * (x.shape[0] > 4),
    "integer": lambda x, w: (x @ w)[: int(x.shape[0] * 0.75)] * 2,
    "truth value and what it is of": lambda x, w: (x @ w) * (x.shape[0] > 4) * x.shape[0],
}


@pytest.mark.parametrize("name", TRAINED)
def test_numbers_made_of_sizes_are_trained_with(name):
    function = TRAINED[name]
    backend = kernelmill.get_backend()
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for n in (6, 9, 3, 4):
        x, w = torch.linspace(-2, 3, n * 5).reshape(n, 5), torch.linspace(-1, 1, 25).reshape(5, 5)
        found, expected = (
            _gradients(each, x.clone().requires_grad_(), w.clone().requires_grad_())
            for each in (compiled, function)
        )
        torch.testing.assert_close(found, expected)
    assert [capture.refused for capture in backend.captures] == ["", ""]


def _gradients(function, *leaves):
    result = function(*leaves)
    result.square().sum().backward()
    return result.detach(), *(leaf.grad for leaf in leaves)


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
