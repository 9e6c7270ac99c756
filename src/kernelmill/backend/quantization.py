"""Quantisation of a module's layers: the choice, and the loss of each on example inputs."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from kernelmill.config import schemes
from kernelmill.config.schemes import Quantize, layer_name, range_of, scheme_of, with_range
from kernelmill.core.dataclass import dataclass
from kernelmill.core.dtype import InputRole
from kernelmill.core.errors import ConfigError, ConfigTypeError, InputError
from kernelmill.frontend.decompositions import decomposition_table
from kernelmill.frontend.importer import import_fx
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.ir import Graph
from kernelmill.passes.pipeline import run_pipeline
from kernelmill.passes.quantize import Quantize as Pass
from kernelmill.passes.quantize import quantised_layers

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_NO_RANGE = "the range of its inputs is not known: pass examples=(x,)"


@dataclass(frozen=True)
class LayerReport:
    """The outcome for one layer. `scheme` is "" for one that is not quantised, for this `reason`.
    `error` is the relative error of its results on the example inputs, root mean square, and
    `model_error` that of the model's results where this layer alone is quantised; None where not
    measured."""

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
    """The outcome of quantisation: the `quantize` option, a report of each layer, and the relative
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
    model: torch.nn.Module, call: Callable[..., Any], quantize: Quantize,
    max_error: float | None = None, examples: Any = None,
) -> Quantization:  # fmt: skip
    """Choose the layers to quantise in a module that `call` runs.

    examples   a tuple of arguments, a dict of them by name, or a list of such: the module is run
               with each, in eager, to measure the error of quantised layers and the range of the
               inputs of convolutions
    max_error  the largest relative error of the module's results on the examples. The layers that
               cause most of it are not quantised until it holds: one run of the module per layer

    ConfigError for a pattern that matches no layer, a model without layers that can be quantised,
    and a `max_error` without examples or that cannot be reached.
    """
    weights = dict(_weights(model))
    _check_patterns(quantize, list(weights), model)
    owners = {id(m.weight): m for m in model.modules() if isinstance(m, _MODULES)}
    tables = {id(m.weight): m for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    owners = {**tables, **owners}
    layers = {n: _planned(n, w, quantize, owners.get(id(w))) for n, w in weights.items()}
    if examples is None:
        layers = {n: _with_range(each, weights[n], None) for n, each in layers.items()}
    if not any(each.scheme for each in layers.values()):
        raise ConfigError(
            f"quantize: {type(model).__name__} has no layer to quantise: {_reasons(layers)}"
        )
    if examples is None:
        if max_error is not None:
            raise ConfigError("max_error is measured on examples: pass examples=(x,) too")
        return Quantization(quantize, tuple(layers.values()))
    trial = _Trial(call, {id(w): n for n, w in weights.items()}, _calls(examples))
    layers = {n: _with_range(each, weights[n], trial.ranges) for n, each in layers.items()}
    schemes = {name: each.scheme for name, each in layers.items() if each.scheme}
    lost, refused = trial.errors(schemes)
    layers = {name: replace(each, error=lost.get(name)) for name, each in layers.items()}
    for name, why in refused.items():
        layers[name] = replace(layers[name], scheme="", reason=why, error=None)
    schemes = _without(schemes, list(refused))
    quantize = _with_schemes(quantize, {n: s for n, s in schemes.items() if range_of(s)})
    if max_error is None:
        return Quantization(quantize, tuple(layers.values()), trial.error(schemes))
    effects = {name: trial.error({name: scheme}) for name, scheme in schemes.items()}
    layers.update({n: replace(layers[n], model_error=effect) for n, effect in effects.items()})
    worst = sorted(schemes, key=lambda name: -effects[name])
    left, error = _fewest(worst, lambda names: trial.error(_without(schemes, names)), max_error)
    for name in left:
        reason = f"max_error={max_error:g}"
        layers[name] = replace(layers[name], scheme="", reason=reason)
    left_out = _with_schemes(quantize, dict.fromkeys(left))
    return Quantization(left_out, tuple(layers.values()), error)


def _with_schemes(quantize: Quantize, schemes: Mapping[str, str | None]) -> Quantize:
    """Return the option with schemes for single layers added."""
    if not schemes:
        return quantize
    given = {"*": quantize} if isinstance(quantize, str) else dict(quantize or {})
    return {**schemes, **{name: s for name, s in given.items() if name not in schemes}}


def _without(schemes: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: scheme for name, scheme in schemes.items() if name not in names}


def _fewest(
    worst: Sequence[str], error_without: Callable[[Sequence[str]], float], max_error: float
) -> tuple[Sequence[str], float]:
    """Find by bisection the fewest of the first layers to leave out; return them and the error."""
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
        finite = math.isfinite(error_without(worst))
        why = "" if finite else ": the model's results on the examples are not finite"
        raise ConfigError(f"max_error={max_error:g} holds only if no layer is quantised{why}")
    return worst[:low], found


# ---- layers ---------------------------------------------------------------------------------


_TRANSPOSED = (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)
_OF_IMAGES = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d, *_TRANSPOSED)
_MODULES = (torch.nn.Linear, *_OF_IMAGES)


def _weights(model: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of two dims and of convolutions by the names of their layers."""
    own = {id(module.weight) for module in model.modules() if isinstance(module, _MODULES)}
    for name, value in model.named_parameters(remove_duplicate=False):
        if (id(value) in own or value.dim() == 2) and value.dtype in _FLOATS:
            yield layer_name(name), value


def _planned(
    name: str, weight: Tensor, quantize: Quantize, module: torch.nn.Module | None
) -> LayerReport:
    scheme = scheme_of(quantize, name)
    if scheme is None:
        return LayerReport(name, "", "quantize asks for nothing else")
    if isinstance(module, _OF_IMAGES):
        transposed = isinstance(module, _TRANSPOSED)
        reason = schemes.why_no_convolution(scheme, weight.shape, module.groups, transposed)
        return LayerReport(name, "" if reason else scheme, reason)
    first, second = weight.shape
    if isinstance(module, torch.nn.Embedding):
        reason = schemes.why_no_table(scheme, first)
        return LayerReport(name, "" if reason else scheme, reason)
    reason = schemes.why_not(scheme, second, first)
    either = not isinstance(module, torch.nn.Linear)  # some have (k, n)
    if reason and either and not schemes.why_not(scheme, first, second):
        reason = ""
    return LayerReport(name, "" if reason else scheme, reason)


def _with_range(
    layer: LayerReport, weight: Tensor, ranges: Mapping[str, tuple[float, float]] | None
) -> LayerReport:
    """Return the report for a layer with the range of its inputs on the examples, None without
    these."""
    if weight.dim() <= 2 or layer.scheme != "int8":
        return layer
    if ranges is None:
        return replace(layer, scheme="", reason=_NO_RANGE)
    if layer.name not in ranges:
        return replace(layer, scheme="", reason="the examples do not get to it")
    scheme = with_range(*ranges[layer.name])
    if range_of(scheme) is None:
        return replace(layer, scheme="", reason="its inputs on the examples are not finite")
    return replace(layer, scheme=scheme)


def _reasons(layers: Mapping[str, LayerReport]) -> str:
    """Return the reasons why layers are not quantised, each once."""
    names: dict[str, list[str]] = {}
    for each in layers.values():
        names.setdefault(each.reason, []).append(each.name)
    told = (
        f"{of[0]}{f' and {len(of) - 1} more' if len(of) > 1 else ''}: {reason}"
        for reason, of in names.items()
    )
    return "; ".join(told) or "it has no weights of products and of convolutions"


def _check_patterns(quantize: Quantize, names: Sequence[str], model: torch.nn.Module) -> None:
    for pattern in () if quantize is None or isinstance(quantize, str) else quantize:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.0)
            nearest = f"; the nearest are {', '.join(map(repr, near))}" if near else ""
            raise ConfigError(
                f"quantize: {pattern!r} is the name of no layer of {type(model).__name__}{nearest}"
            )


# ---- errors of layers -----------------------------------------------------------------------

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
    """Runs of the model in eager with some layers quantised. `names` are those of layers, by the
    ids of their weights; `ranges` has the least and the largest input of convolutions."""

    def __init__(
        self, call: Callable[..., Any], names: Mapping[int, str], calls: Sequence[Example]
    ) -> None:
        self._call, self._names, self._calls = call, names, calls
        plain = _Quantised(names, {}, {})
        self._wanted = self._results(plain)
        self.ranges = plain.ranges

    def errors(self, schemes: Mapping[str, str]) -> tuple[dict[str, float], dict[str, str]]:
        """Return the error of each layer alone, of those called; and why some cannot be
        quantised."""
        measuring = _Quantised(self._names, {}, schemes)
        self._results(measuring)
        errors = {
            name: math.sqrt(lost / (whole or 1.0)) for name, (lost, whole) in measuring.sums.items()
        }
        return errors, measuring.refused

    def error(self, schemes: Mapping[str, str]) -> float:
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
    """A mode that computes products with the weights in `names` by their schemes in `replaced`. For
    those in `measured` it adds to `sums` the squares of their errors, and of their results;
    `refused` has reasons why layers of their sizes are not quantised, `ranges` the least and the
    largest input of convolutions."""

    def __init__(
        self, names: Mapping[int, str], replaced: Mapping[str, str], measured: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._names, self._replaced, self._measured = names, replaced, measured
        self.sums: dict[str, list[float]] = {}
        self.refused: dict[str, str] = {}
        self.ranges: dict[str, tuple[float, float]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        called = _product(func, args, kwargs)
        name = None if called is None else self._names.get(id(called.stored))
        if called is None or name is None:
            result = func(*args, **kwargs)
            self._note_views((*args, *kwargs.values()), result)
            return result
        if name in self._replaced:
            return called.quantised(self._replaced[name])
        if called.stored.dim() > 2 and called.x.numel():
            low, high = map(float, called.x.aminmax())
            before = self.ranges.get(name, (low, high))
            self.ranges[name] = min(low, before[0]), max(high, before[1])
        result, scheme = func(*args, **kwargs), self._measured.get(name)
        if scheme is not None and (reason := called.why_not(scheme)):
            self.refused[name] = reason
        elif scheme is not None:
            lost = called.quantised(scheme).double() - result.double()
            sums = self.sums.setdefault(name, [0.0, 0.0])
            sums[0] += float(lost.square().sum())
            sums[1] += float(result.double().square().sum())
        return result

    def _note_views(self, given: Sequence[Any], result: Any) -> None:
        """Refuse weights of convolutions of which another tensor is made: the compiler may see a
        layer in it too, and nobody knows the range of that one's inputs."""
        for each in given if isinstance(result, Tensor) else ():
            name = self._names.get(id(each), "")
            if each is not result and name in self._measured and each.dim() > 2:
                self.refused[name] = "the model computes another tensor from its weight"


@dataclass(frozen=True)
class _LayerCall:
    """A call of a product, a convolution or an embedding of `x` with the model's own weight,
    `stored`. Tensors are arguments themselves."""

    func: Callable[..., Tensor]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    x: Tensor
    stored: Tensor

    @cached_property
    def _compiled(self) -> tuple[Graph, list[Tensor]]:
        """The call as the compiler has it, and the tensors that it takes."""
        given = [*self.args, *self.kwargs.values()]
        places = [place for place, value in enumerate(given) if isinstance(value, Tensor)]
        own = [given[place] is self.stored for place in places]

        def call(*tensors: Tensor) -> tuple[Tensor]:
            now, count = list(given), len(self.args)
            for place, tensor in zip(places, tensors, strict=True):
                now[place] = tensor
            return (self.func(*now[:count], **dict(zip(self.kwargs, now[count:], strict=True))),)

        tensors = [given[place].detach() for place in places]
        module = make_fx(call, decomposition_table(), tracing_mode="fake")(*tensors)
        roles = [InputRole.PARAM if each else InputRole.USER for each in own]
        names = ["layer.weight" if each else f"x{number}" for number, each in enumerate(own)]
        imported = import_fx(module, "layer", roles, names)
        return run_pipeline(imported.graph), [*tensors, *imported.constants]

    def why_not(self, scheme: str) -> str:
        """Return why the layer is not quantised; "" where it is."""
        if quantised_layers(self._compiled[0], scheme):
            return ""
        reason, inputs = "", self.x.shape[-1]
        if not self.x.is_floating_point():
            reason = schemes.why_no_table(scheme, len(self.stored))
        elif self.stored.dim() == 2:
            reason = schemes.why_not(scheme, inputs, self.stored.numel() // (inputs or 1))
        return reason or "the compiler computes it in another way"

    def quantised(self, scheme: str) -> Tensor:
        """Return the result of the call, quantised by the compiler's pass."""
        graph, tensors = self._compiled
        (result,) = run_graph(Pass(scheme).apply(graph), tensors)
        assert isinstance(result, Tensor)
        return result


def _product(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _LayerCall | None:
    """Return the product, convolution or lookup of a call; None for other calls."""
    given = {**dict(zip(("input", "weight"), args, strict=False)), **kwargs}
    if func in _LAYERS:
        x, stored = given["input"], given["weight"]
    elif func is functional.embedding and args[1:]:
        x, stored = args[:2]
        if any((*args[3:4], kwargs.get("max_norm"))):
            return None  # it writes to the table
    elif func in (torch.addmm, torch.Tensor.addmm) and len(args) == 3 and not kwargs:
        x, stored = args[1:]
    elif func in _PRODUCTS and len(args) == 2 and not kwargs and args[1].dim() == 2:
        x, stored = args
    else:
        return None
    return _LayerCall(func, args, kwargs, x, stored)


_LAYERS = (
    functional.linear, torch.conv1d, torch.conv2d, torch.conv3d,
    torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d,
)  # fmt: skip
_PRODUCTS = (torch.matmul, torch.mm, torch.Tensor.matmul, torch.Tensor.__matmul__)


def _tensors_in(value: Any) -> list[Tensor]:
    """Return the floating tensors of a result, in its order."""
    if isinstance(value, Tensor):
        return [value.detach().double()] if value.is_floating_point() else []
    if isinstance(value, Mapping):
        value = list(cast("Mapping[Any, Any]", value).values())
    if isinstance(value, (list, tuple)):
        return [each for part in cast("Sequence[Any]", value) for each in _tensors_in(part)]
    return []
