"""Calls of a compiled file that one native function checks: the same results, the same refusals."""

import pytest
import torch
from torch import nn

import kernelmill
from kernelmill.core.errors import InputError
from kernelmill.runtime.calls.engine import supported

pytestmark = pytest.mark.needs_internal(
    "modules.tables", "native.checks", "objects.fields", "tensors.allocate", "tensors.impl_place",
    "tensors.storage_place",
)  # fmt: skip


@pytest.fixture(autouse=True)
def only_where_supported():
    if not supported():
        pytest.skip("objects are laid out otherwise")


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x, more, *, flag, scale):
        first, (second, third) = more["pair"]
        made = x @ self.weight + first * scale
        return {"sum": made if flag else -made, "rest": (second - third, [third + 1])}


def compiled(tmp_path, *args, **options):
    return kernelmill.aot.load(
        kernelmill.aot.compile(*args, path=tmp_path / "program.kmill", **options)
    )


def only_quick(program, monkeypatch):
    def refused(*_):
        raise AssertionError("a call in full")

    monkeypatch.setattr(program, "_bound", refused)


def nested_arguments(rows=3):
    x, first, second, third = (torch.randn(rows, 4) for _ in range(4))
    return (x, {"pair": (first, [second, third])}), {"flag": True, "scale": 2.0}


def same(got, expected):
    torch.testing.assert_close(got["sum"], expected["sum"])
    assert type(got["rest"]) is tuple and type(got["rest"][1]) is list
    torch.testing.assert_close(got["rest"], expected["rest"])


def test_nested_arguments_and_constants(tmp_path, monkeypatch):
    model = Nested()
    args, kwargs = nested_arguments()
    with torch.no_grad():
        program = compiled(tmp_path, model, args, kwargs)
        same(program(*args, **kwargs), model(*args, **kwargs))
        others, _ = nested_arguments()
        for wrong in ({"flag": False, "scale": 2.0}, {"flag": True, "scale": 3.0}):
            with pytest.raises(InputError, match="expected"):
                program(*args, **wrong)
        with pytest.raises(InputError, match="expected tuple of 2, got list of 2"):
            program(args[0], {"pair": list(args[1]["pair"])}, **kwargs)
        with pytest.raises(InputError, match="shape"):
            program(args[0][:2], args[1], **kwargs)
        with pytest.raises(InputError, match="by position"):
            program(*args, True, 2.0)
        only_quick(program, monkeypatch)
        same(program(*others, **kwargs), model(*others, **kwargs))
        same(program(others[0], scale=2.0, more=others[1], flag=kwargs["flag"]),
             model(*others, **kwargs))  # fmt: skip


def test_weights_that_change(tmp_path, monkeypatch):
    model = nn.Linear(4, 4)
    x = torch.randn(3, 4)
    with torch.no_grad():
        program = compiled(tmp_path, model, (x,))
        program(x)
        for tensor in program.tensors.values():
            tensor.mul_(2.0)
        torch.testing.assert_close(program(x), 2 * model(x))
        only_quick(program, monkeypatch)
        torch.testing.assert_close(program(x), 2 * model(x))


@pytest.mark.needs_internal("sizes.functions")
def test_sizes_and_integers(tmp_path, monkeypatch):
    def shifted(x, n):
        return x[:, None] * 2 + torch.arange(n)

    with torch.no_grad():
        shapes = {"x": {0: torch.export.Dim.DYNAMIC}, "n": torch.export.Dim.DYNAMIC}
        program = compiled(tmp_path, shifted, (torch.randn(5), 7), dynamic_shapes=shapes)
        for rows, n in ((5, 7), (6, 3), (9, 11), (5, 7)):
            x = torch.randn(rows)
            torch.testing.assert_close(program(x, n), shifted(x, n))
        with pytest.raises(InputError, match="expected int, got float"):
            program(torch.randn(5), 7.0)
        only_quick(program, monkeypatch)
        x = torch.randn(5)
        torch.testing.assert_close(program(x, 7), shifted(x, 7))


def test_an_argument_that_requires_grad_is_refused(tmp_path):
    x = torch.randn(3)
    program = compiled(tmp_path, torch.sin, (x,))
    torch.testing.assert_close(program(x), torch.sin(x))
    with pytest.raises(RuntimeError, match=r"argument '\w+' requires grad"):
        program(x.clone().requires_grad_())
    with torch.no_grad():
        torch.testing.assert_close(program(x.clone().requires_grad_()), torch.sin(x))


def test_with_gradients_on_as_well(tmp_path, monkeypatch):
    model = nn.Linear(4, 4)  # whose parameters require them
    x = torch.randn(3, 4)
    program = compiled(tmp_path, model, (x,))
    program(x)
    only_quick(program, monkeypatch)
    result = program(x)
    torch.testing.assert_close(result, model(x))
    assert not result.requires_grad
    with pytest.raises(AssertionError, match="a call in full"):
        program(x.clone().requires_grad_())


@pytest.mark.needs_internal("tensors.alias", "tensors.storage_users")
def test_memory_of_large_results_is_used_again(tmp_path, monkeypatch):
    x = torch.randn(1024, 1024)
    with torch.no_grad():
        program = compiled(tmp_path, lambda x: x * 2.0, (x,))
        program(x)
        only_quick(program, monkeypatch)
        first, second = program(x), program(x)
        assert first.data_ptr() != second.data_ptr()
        place = first.data_ptr()
        del first
        third = program(x)
        assert third.data_ptr() == place
        assert torch.equal(third, x * 2.0) and torch.equal(second, x * 2.0)
