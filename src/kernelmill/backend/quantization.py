"""Which layers of a module are quantised, and what each loses on example inputs."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from kernelmill.config.schemes import Quantize, group_of, layer_name, scheme_of, why_not
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError, ConfigTypeError, InputError

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class LayerReport:
    """What becomes of a layer. `scheme` is "" for one that stays as it is, for this `reason`.
    `error` is the relative error of its results on the example inputs, root mean square, and
    `model_error` that of the model's results where this layer alone is quantised; None where it
    was not measured."""

    name: str
    scheme: str
    reason: str = ""
    error: float | None = None
    model_error: float | None = None

    def __str__(self) -> str:
        told = f"stays as it is: {self.reason}" if self.reason else self.scheme
        if self.error is not None:
            told += f", relative error {self.error:.2g}"
        if self.model_error is not None:
            told += f", by itself {self.model_error:.2g} in the model's results"
        return f"{self.name}: {told}"


@dataclass(frozen=True)
class Quantization:
    """What quantising does: the `quantize` option, what becomes of each layer, and the relative
    error of the model's results on the example inputs, None without these."""

    quantize: Quantize
    layers: tuple[LayerReport, ...]
    error: float | None = None

    def __str__(self) -> str:
        lines = list(map(str, self.layers))
        if self.error is not None:
            lines.append(f"results of the model: relative error {self.error:.2g}")
        return "\n".join(lines)


def quantization(
    model: torch.nn.Module,
    call: Callable[..., Any],
    quantize: Quantize,
    max_error: float | None = None,
    examples: Any = None,
) -> Quantization:
    """What to quantise in a module that `call` runs.

    examples   a tuple of arguments, a dict of them by name, or a list of such: the module is run
               with each, in eager, to see what quantised layers lose
    max_error  the largest relative error of the module's results on the examples. The layers that
               cost most of it stay as they are until it holds: the module runs once for each layer

    ConfigError for a pattern that is the name of no layer, a model without layers that can be
    quantised, and a `max_error` without examples or that cannot be reached.
    """
    weights = dict(_weights(model))
    _check_patterns(quantize, list(weights), model)
    linear = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Linear)}
    layers = {n: _planned(n, w, quantize, id(w) in linear) for n, w in weights.items()}
    if not any(each.scheme for each in layers.values()):
        reasons = "; ".join(f"{each.name}: {each.reason}" for each in layers.values())
        why = reasons or "it has no weights of two dims"
        raise ConfigError(f"quantize: {type(model).__name__} has no layer to quantise: {why}")
    if examples is None:
        if max_error is not None:
            raise ConfigError("max_error is measured on examples: pass examples=(x,) too")
        return Quantization(quantize, tuple(layers.values()))
    calls = _calls(examples)
    schemes = {name: each.scheme for name, each in layers.items() if each.scheme}
    trial = _Trial(call, {id(weights[name]): name for name in schemes}, calls)
    lost, refused = trial.errors(schemes)
    layers = {name: replace(each, error=lost.get(name)) for name, each in layers.items()}
    layers.update({n: replace(layers[n], scheme="", reason=why) for n, why in refused.items()})
    schemes = _without(schemes, list(refused))
    if max_error is None:
        return Quantization(quantize, tuple(layers.values()), trial.error(schemes))
    effects = {name: trial.error({name: scheme}) for name, scheme in schemes.items()}
    layers.update({n: replace(layers[n], model_error=effect) for n, effect in effects.items()})
    worst = sorted(schemes, key=lambda name: -effects[name])
    left, error = _fewest(worst, lambda names: trial.error(_without(schemes, names)), max_error)
    for name in left:
        reason = f"max_error={max_error:g}"
        layers[name] = replace(layers[name], scheme="", reason=reason)
    given: Mapping[str, str | None] = (
        {"*": quantize} if isinstance(quantize, str) else quantize or {}
    )
    return Quantization({**dict.fromkeys(left), **given}, tuple(layers.values()), error)


def _without(schemes: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: scheme for name, scheme in schemes.items() if name not in names}


def _fewest(
    worst: Sequence[str], error_without: Callable[[Sequence[str]], float], max_error: float
) -> tuple[Sequence[str], float]:
    """The fewest of the first layers that have to be left out, by halves, and the error then."""
    low, high = 0, len(worst)
    found = 0.0
    while low < high:
        middle = (low + high) // 2
        error = error_without(worst[:middle])
        if error <= max_error:
            high, found = middle, error
        else:
            low = middle + 1
    if low == len(worst):
        raise ConfigError(f"max_error={max_error:g} holds only if no layer is quantised")
    return worst[:low], found


# ---- layers ---------------------------------------------------------------------------------


def _weights(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The weights of two dims by the names of their layers; not the tables of embeddings, unless a
    layer has the same weight."""
    tables = {
        id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)
    }
    linear = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Linear)}
    for name, value in model.named_parameters(remove_duplicate=False):
        is_table = id(value) in tables and id(value) not in linear
        if value.dim() == 2 and value.dtype in _FLOATS and not is_table:
            yield layer_name(name), value


def _planned(name: str, weight: Tensor, quantize: Quantize, is_linear: bool) -> LayerReport:
    scheme = scheme_of(quantize, name)
    if scheme is None:
        return LayerReport(name, "", "quantize asks for nothing else")
    first, second = weight.shape
    reason = why_not(scheme, second, first)
    if reason and not is_linear and not why_not(scheme, first, second):  # some have (k, n)
        reason = ""
    return LayerReport(name, "" if reason else scheme, reason)


def _check_patterns(quantize: Quantize, names: Sequence[str], model: torch.nn.Module) -> None:
    for pattern in () if quantize is None or isinstance(quantize, str) else quantize:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.0)
            nearest = f"; the nearest are {', '.join(map(repr, near))}" if near else ""
            raise ConfigError(
                f"quantize: {pattern!r} is the name of no layer of {type(model).__name__}{nearest}"
            )


# ---- what layers lose -----------------------------------------------------------------------

Example = tuple[tuple[Any, ...], Mapping[str, Any]]


def _calls(examples: Any) -> list[Example]:
    given: list[Any] = examples if isinstance(examples, list) else [examples]
    found: list[Example] = []
    for one in given:
        if isinstance(one, tuple):
            found.append((cast("tuple[Any, ...]", one), {}))
        elif isinstance(one, Mapping):
            found.append(((), cast("Mapping[str, Any]", one)))
        else:
            raise ConfigTypeError(
                f"examples: {type(one).__name__} is no tuple of arguments, no dict of them by name "
                "and no list of these"
            )
    if not found:
        raise InputError("examples: there are none")
    return found


class _Trial:
    """Runs the model in eager with some layers quantised. `names` are those of layers, by the ids
    of their weights."""

    def __init__(
        self, call: Callable[..., Any], names: Mapping[int, str], calls: Sequence[Example]
    ) -> None:
        self._call, self._names, self._calls = call, names, calls
        self._wanted = self._results(_Quantised({}, {}, {}))

    def errors(self, schemes: Mapping[str, str]) -> tuple[dict[str, float], dict[str, str]]:
        """What each layer loses by itself, as far as it was called; and why some of them cannot be
        quantised."""
        measuring = _Quantised(self._names, {}, schemes)
        self._results(measuring)
        errors = {
            name: math.sqrt(lost / (whole or 1.0)) for name, (lost, whole) in measuring.sums.items()
        }
        return errors, measuring.refused

    def error(self, schemes: Mapping[str, str]) -> float:
        """What the model's results lose."""
        lost = whole = 0.0
        results = self._results(_Quantised(self._names, schemes, {}))
        for found, wanted in zip(results, self._wanted, strict=True):
            if found.shape == wanted.shape:
                lost += float((found - wanted).square().sum())
            whole += float(wanted.square().sum())
        return math.sqrt(lost / (whole or 1.0))

    def _results(self, mode: _Quantised) -> list[Tensor]:
        found: list[Tensor] = []
        with torch.no_grad(), mode:
            for args, kwargs in self._calls:
                found += _tensors_in(self._call(*args, **kwargs))
        return found


class _Quantised(TorchFunctionMode):
    """Computes products with the weights in `names` by their schemes in `replaced`. Of those in
    `measured` it adds to `sums` the squares of what they would lose, and of their results;
    `refused` says why layers of their sizes are not quantised."""

    def __init__(
        self, names: Mapping[int, str], replaced: Mapping[str, str], measured: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._names, self._replaced, self._measured = names, replaced, measured
        self.sums: dict[str, list[float]] = {}
        self.refused: dict[str, str] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        product = _product(func, args, kwargs)
        name = None if product is None else self._names.get(id(product[1]))
        if product is None or name is None:
            return func(*args, **kwargs)
        x, stored, bias = product
        weight = stored if func is torch.nn.functional.linear else stored.t()
        if name in self._replaced:
            return _quantised(x, weight, bias, self._replaced[name])
        result, scheme = func(*args, **kwargs), self._measured.get(name)
        outputs, inputs = weight.shape
        if scheme is not None and (reason := why_not(scheme, inputs, outputs)):
            self.refused[name] = reason
        elif scheme is not None:
            lost = _quantised(x, weight, bias, scheme).double() - result.double()
            sums = self.sums.setdefault(name, [0.0, 0.0])
            sums[0] += float(lost.square().sum())
            sums[1] += float(result.double().square().sum())
        return result


def _product(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """The rows, the weight and the bias of a call of a product; None for other calls."""
    if func is torch.nn.functional.linear:
        given = {**dict(zip(("input", "weight", "bias"), args, strict=False)), **kwargs}
        return given["input"], given["weight"], given.get("bias")
    if func in (torch.addmm, torch.Tensor.addmm) and len(args) == 3 and not kwargs:
        return args[1], args[2], args[0]
    if func in (torch.matmul, torch.mm, torch.Tensor.matmul, torch.Tensor.__matmul__):
        return (args[0], args[1], None) if len(args) == 2 and not kwargs else None
    return None


def _quantised(x: Tensor, weight: Tensor, bias: Tensor | None, scheme: str) -> Tensor:
    """The rows of x times the weight (n, k), as passes/quantize.py has it, sums in float64."""
    rows, w = x.reshape(-1, x.shape[-1]).float(), weight.float()
    group = group_of(scheme)
    if group:
        parts = w.reshape(w.shape[0], -1, group)
        low, high = parts.amin(2, keepdim=True), parts.amax(2, keepdim=True)
        scales = torch.where(-low > high, low, high) / -8
        scales = torch.where(scales.abs() < _SMALLEST, _SMALLEST, scales)
        numbers = (parts * scales.reciprocal()).round().clamp_max(7)
        result = rows.double() @ (numbers * scales).reshape(w.shape).double().t()
    else:
        scales = (w.abs().amax(1) / 127).clamp_min(_SMALLEST)
        numbers = (w * scales.reciprocal()[:, None]).round().double()
        if scheme == "int8":
            low = rows.amin(1, keepdim=True).clamp_max(0)
            width = rows.amax(1, keepdim=True).clamp_min(0) - low
            steps = (width / 255).clamp_min(_SMALLEST)
            zero = (low * steps.reciprocal()).round() + 128
            whole = ((rows * steps.reciprocal()).round() - zero).clamp_max(127) + zero
            result = (whole.double() @ numbers.t()) * steps
        else:
            result = rows.double() @ numbers.t()
        result = result * scales
    if bias is not None:
        result = result + bias
    return result.to(x.dtype).reshape(*x.shape[:-1], weight.shape[0])


_SMALLEST = 2.0**-100


def _tensors_in(value: Any) -> list[Tensor]:
    """The floating tensors of a result, in its order."""
    if isinstance(value, Tensor):
        return [value.detach().double()] if value.is_floating_point() else []
    if isinstance(value, Mapping):
        value = list(cast("Mapping[Any, Any]", value).values())
    if isinstance(value, (list, tuple)):
        return [each for part in cast("Sequence[Any]", value) for each in _tensors_in(part)]
    return []
