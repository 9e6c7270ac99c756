"""What `kernelmill.compile` makes of modules, functions, methods and classes."""

from __future__ import annotations

import copy
import functools
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import kernelmill
from tests import zoo
from tests.kept_methods import COMPILED

pytestmark = COMPILED


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_CACHE_HOME", str(tmp_path))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = 2.0

    def forward(self, x: Any) -> Any:
        return self.linear(x) * self.scale

    def twice(self, x: Any) -> Any:
        return self.forward(x) * 2

    def __len__(self) -> int:
        return 7


@kernelmill.compile
def doubled(x: Any) -> Any:
    """Twice."""
    return x * 2


class Decorated(Model):
    @kernelmill.compile
    def forward(self, x: Any) -> Any:
        return super().forward(x) + 1


class Twice(Decorated):
    @kernelmill.compile(dynamic=True)
    def forward(self, x: Any) -> Any:
        return super().forward(x) + 1


def kept(compiled: Any) -> int:
    """The programs that it has; none of its calls went to torch.compile."""
    report = compiled.report()
    assert report.torch == {}, str(report)
    return len(report.programs)


def test_a_module_has_what_the_original_has() -> None:
    model = Model().eval()
    compiled = kernelmill.compile(model)
    assert issubclass(type(compiled), nn.Module) and kernelmill.uncompile(compiled) is model
    assert list(compiled.state_dict()) == ["_orig_mod.linear.weight", "_orig_mod.linear.bias"]
    assert [*compiled.parameters()] == [*model.parameters()] and len(compiled) == 7
    compiled.scale = 3.0
    compiled.new = nn.ReLU()
    assert (model.scale, compiled.scale) == (3.0, 3.0) and model.new is compiled.new
    del compiled.new
    assert not hasattr(model, "new") and not hasattr(compiled, "nothing")
    assert compiled.train() is compiled and model.training and compiled.training
    assert compiled.eval() is compiled and not model.training
    assert compiled.half() is compiled and model.linear.weight.dtype == torch.half
    assert "scale" in dir(compiled) and "linear" in repr(compiled)
    compiled.float().load_state_dict(compiled.state_dict())
    x = torch.randn(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    assert kept(compiled) == 1


def test_a_module_is_a_part_of_another() -> None:
    inner = Model().eval()
    outer = nn.Sequential(kernelmill.compile(inner), nn.ReLU()).eval()
    assert len([*outer.parameters()]) == 2
    x = torch.randn(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(outer(x), torch.relu(inner(x)))
    assert kept(outer[0]) == 1


def saved(value: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - made here


@pytest.mark.parametrize("again", [copy.deepcopy, saved, pickled])
@pytest.mark.parametrize("make", [lambda: kernelmill.compile(Model()), Decorated, Twice])
def test_copies_compute_with_their_own_weights(
    make: Callable[[], Any], again: Callable[[Any], Any]
) -> None:
    compiled, x = make().eval(), torch.randn(3, 4)
    with torch.no_grad():
        expected = compiled(x)
        other = again(compiled)
        compiled.linear.weight.zero_()
        torch.testing.assert_close(other(x), expected)
        assert not torch.equal(compiled(x), expected)


def test_a_shallow_copy_shares_the_module() -> None:
    compiled = kernelmill.compile(Model())
    assert kernelmill.uncompile(copy.copy(compiled)) is kernelmill.uncompile(compiled)


def test_functions() -> None:
    def product(a: Any, b: Any) -> Any:
        """A product."""
        return a @ b

    compiled = kernelmill.compile(product)
    assert compiled.__name__ == "product" and compiled.__doc__ == "A product."
    assert compiled(torch.ones(2, 2), b=torch.ones(2, 2)).tolist() == [[2, 2], [2, 2]]
    assert kept(compiled) == 1 and kernelmill.uncompile(compiled) is product
    assert doubled(torch.ones(2)).tolist() == [2, 2] and doubled.__doc__ == "Twice."
    assert kept(doubled) == 1
    assert pickled(doubled) is doubled and copy.deepcopy(doubled) is doubled


def test_functions_of_any_arguments() -> None:
    @kernelmill.compile
    def total(first: Any, *others: Any, by: Any = 1.0, **more: Any) -> Any:
        for each in (*others, *more.values()):
            first = first + each
        return first * by

    x = torch.ones(2)
    for _ in range(2):
        assert total(x, x, x, by=2.0, y=x).tolist() == [8, 8]
        assert total(x).tolist() == [1, 1]
    assert kept(total) == 2
    with pytest.raises(TypeError, match="first"):
        total()


def test_decorated_functions_run_their_decorators() -> None:
    def adds(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            kwargs.pop("unused", None)
            return function(*args, **kwargs) + 1

        return wrapper

    @kernelmill.compile
    @adds
    def plain(x: Any, y: Any = None) -> Any:
        return x if y is None else x * y

    x = torch.full((2,), 3.0)
    assert plain(x, unused=True).tolist() == [4, 4]
    assert plain(x, y=x).tolist() == [10, 10]
    assert kept(plain) == 2


def test_methods_of_modules_and_of_other_objects() -> None:
    model = Model().eval()
    compiled = kernelmill.compile(model.twice)

    class Holder:
        def __init__(self) -> None:
            self.weight = torch.full((2,), 3.0)

        def __call__(self, x: Any) -> Any:
            return x * self.weight

    x, holder = torch.randn(3, 4), Holder()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model.twice(x))
        for each in (kernelmill.compile(holder), kernelmill.compile(holder.__call__)):
            assert each(torch.ones(2)).tolist() == [3, 3]
            assert kept(each) == 1
    assert kept(compiled) == 1


def test_a_forward_that_takes_the_place_of_the_model_s() -> None:
    model, x = Model().eval(), torch.randn(3, 4)
    with torch.no_grad():
        expected = model(x)
        model.forward = kernelmill.compile(model.forward)  # type: ignore[method-assign]
        torch.testing.assert_close(model(x), expected)
        torch.testing.assert_close(copy.deepcopy(model)(x), expected)
    assert kept(model.forward) == 1


@pytest.mark.parametrize(("kind", "more"), [(Decorated, 1), (Twice, 2)])
def test_a_decorated_forward_is_of_each_object(kind: type[Model], more: int) -> None:
    first: Any = kind().eval()
    second: Any = kind().eval()
    whole: Any = kind.forward
    x = torch.randn(3, 4)
    with torch.no_grad():
        for model in (first, second, first):
            torch.testing.assert_close(model(x), model.linear(x) * 2 + more)
    assert first.forward is first.forward is not second.forward
    if kind is Decorated:  # Dynamo knows no super() but of functions
        assert kept(first.forward) == kept(second.forward) == 1
    assert whole.report().programs == ()


def test_objects_without_a_place_for_programs_are_refused() -> None:
    class Slots:
        __slots__ = ()

        @kernelmill.compile
        def call(self, x: Any) -> Any:
            return x

    with pytest.raises(kernelmill.InputError, match="compile the method of each"):
        Slots().call(torch.ones(1))


def test_what_is_no_function_of_python_goes_to_torch() -> None:
    compiled = kernelmill.compile(functools.partial(torch.add, torch.ones(2)))
    assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert list(compiled.report().torch) == ["partial is no function of Python"]
    script = kernelmill.compile(torch.jit.trace(nn.ReLU(), torch.ones(2)))
    assert script(-torch.ones(2)).tolist() == [0, 0]


def test_models_of_torch_and_of_transformers_are_kept() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    compiled = kernelmill.compile(model)
    case = zoo.bert()
    bert = kernelmill.compile(case.model)
    with torch.no_grad():
        torch.testing.assert_close(compiled(torch.ones(3, 4)), model(torch.ones(3, 4)))
        found, expected = (each(*case.args) for each in (bert, case.model))
    assert type(found) is type(expected)
    torch.testing.assert_close(found[0], expected[0], atol=1e-4, rtol=1e-4)
    assert kept(compiled) == kept(bert) == 1


class CalledTwice(Model):
    def __call__(self, x: Any) -> Any:
        return super().__call__(x) * 2


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", [Model, CalledTwice])
def test_torch_export_takes_the_original(kind: type[Model], strict: bool) -> None:
    model, x = kind().eval(), torch.randn(3, 4)
    compiled = kernelmill.compile(model)
    sizes = ({0: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(compiled, (x,), dynamic_shapes=sizes, strict=strict)
    for given in (x, torch.randn(5, 4)):
        torch.testing.assert_close(program.module()(given), model(given))
    assert compiled.report().torch == {} and compiled.report().captures == ()
    with torch.no_grad():  # and what torch.compile makes of it afterwards is compiled
        torch.testing.assert_close(compiled(x), model(x))
    report = compiled.report()
    assert len(report.programs) + sum(not each.refused for each in report.captures) == 1


def test_reports_name_arguments_as_the_model_does_behind_a_decorator() -> None:
    def decorated(forward: Any) -> Any:
        @functools.wraps(forward)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            return forward(self, *args, **kwargs)

        return wrapper

    class Wrapped(nn.Module):
        @decorated
        def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
            return input_ids * attention_mask

    compiled = kernelmill.compile(Wrapped())
    ids, mask = torch.ones(2, 3), torch.ones(2, 3)
    compiled(input_ids=ids, attention_mask=mask)
    compiled(ids, mask)
    expected = ("input_ids f32[2, 3]", "attention_mask f32[2, 3]")
    assert [each.arguments for each in compiled.report().programs] == [expected] * 2


def test_generate_calls_the_compiled_model() -> None:
    model: Any = zoo.llama()
    prompt = torch.tensor([[5, 6, 7]])
    options: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False}
    options["attention_mask"] = torch.ones_like(prompt)
    with torch.no_grad():
        expected = model.generate(prompt, **options)
        compiled = kernelmill.compile(model)
        for _ in range(2):
            assert torch.equal(compiled.generate(prompt, **options), expected)
            assert compiled.report().programs and compiled.report().statistics["traced"]
        model.forward = kernelmill.compile(model.forward)
        assert torch.equal(model.generate(prompt, **options), expected)
    report = model.forward.report()
    assert report.torch == {} and report.statistics["loaded"] and not report.statistics["traced"]
