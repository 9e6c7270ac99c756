"""Quantisation schemes of layers: the values of `config.quantize`."""

from __future__ import annotations

import difflib
import math
import re
import struct
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Union, cast

from kernelmill.config.option import Option
from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import ConfigError, ConfigTypeError

SCHEMES = ("int8", "int8-weights", "int4-weights", "int4-weights-128")
"""Schemes to quantise a layer. "int8": weights by output channel and inputs by row; "int8-weights":
weights by output channel; "int4-weights": weights by groups of 32 inputs, or of 128. "int8(-1.5,
2.25)" is "int8" for inputs between these numbers in all rows, for convolutions."""

Quantize = Union[str, Mapping[str, Union[str, None]], None]
"""A scheme for all layers, or a scheme or None by patterns of layer names."""


class Schemes(Option[Quantize]):
    """A scheme, or a dict of schemes by patterns; the first pattern that a layer matches counts."""

    def check(self, where: str, value: object) -> Quantize:
        if isinstance(value, str):
            return _checked(where, value)
        if not isinstance(value, Mapping):
            raise ConfigTypeError(
                f"config.{where}: {value!r} is no scheme and no dict of schemes by layer names"
            )
        given = cast("Mapping[Any, Any]", value)
        for pattern in given:
            if not isinstance(pattern, str):
                raise ConfigTypeError(f"config.{where}: {pattern!r} is no name of a layer")
        return {
            pattern: None if scheme is None else _checked(f"{where}[{pattern!r}]", scheme)
            for pattern, scheme in given.items()
        }

    def values(self) -> str:
        return f"{', '.join(map(repr, SCHEMES))}, or a dict such as {{'encoder.*': 'int8'}}"


def _checked(where: str, scheme: object) -> str:
    if not isinstance(scheme, str):
        raise ConfigTypeError(f"config.{where}: {scheme!r} is no scheme")
    if scheme not in SCHEMES and range_of(scheme) is None:
        near = difflib.get_close_matches(scheme, SCHEMES, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"config.{where}: {scheme!r} is not one of {', '.join(map(repr, SCHEMES))}{meant}"
        )
    return scheme


def scheme_of(quantize: Quantize, *names: str) -> str | None:
    """Return the scheme for a layer with these names, None for one that is not quantised.

    >>> scheme_of({"encoder.*": "int8", "*": "int8-weights"}, "head")
    'int8-weights'
    """
    if quantize is None or isinstance(quantize, str):
        return quantize
    for pattern, scheme in quantize.items():
        if any(fnmatchcase(name, pattern) for name in names):
            return scheme
    return None


_RANGED = re.compile(r"int8\((-?[0-9.]+(?:e[+-]?\d+)?), (-?[0-9.]+(?:e[+-]?\d+)?)\)")


def with_range(low: float, high: float) -> str:
    """Return the scheme "int8" for inputs between these numbers, and zero.

    >>> with_range(0.5, 3.0)
    'int8(0, 3)'
    """
    return f"int8({min(low, 0.0):.9g}, {max(high, 0.0):.9g})"


def range_of(scheme: str) -> tuple[float, float] | None:
    """Return the least and the largest input of a scheme that names them; None for others.

    >>> range_of("int8(-1.5, 2.25)"), range_of("int8"), range_of("int8(1, 2)")
    ((-1.5, 2.25), None, None)
    """
    found = _RANGED.fullmatch(scheme)
    try:
        low, high = map(float, found.groups()) if found else (1.0, -1.0)
    except ValueError:
        return None
    return (low, high) if low <= 0 <= high and high - low < _INFINITE else None


@dataclass(frozen=True)
class RangeSteps:
    """Quantisation of a range of inputs to int8: x is `round(x * factor) - zero`, in -128 to 127,
    and `size` the difference of neighbours. All are float32."""

    size: float
    factor: float
    zero: int


def steps_of(low: float, high: float) -> RangeSteps:
    """Return the steps of a range that includes zero.

    >>> steps_of(0.0, 255.0)
    Steps(size=1.0, factor=1.0, zero=128)
    """
    size = _rounded(max((high - low) / 255, SMALLEST))
    factor = _rounded(1 / size)
    return RangeSteps(size, factor, round(_rounded(_rounded(low) * factor)) + 128)


def _rounded(number: float) -> float:
    """Return the nearest float32."""
    return struct.unpack("f", struct.pack("f", number))[0]


SMALLEST = 2.0**-100
"""The least scale."""
_INFINITE = 2.0**127


LEAST_OUTPUTS = 16
"""Least outputs of a quantised layer: fewer, as of a head of two classes, gain nothing."""
MOST_INPUTS = 2**16
"""Most inputs of a quantised layer: sums of more products of int8 could exceed 32 bits."""


def group_of(scheme: str) -> int:
    """Return the number of inputs that share a scale; 0 where all inputs of an output do."""
    return {"int4-weights": 32, "int4-weights-128": 128}.get(scheme, 0)


def why_not(scheme: str, inputs: int, outputs: int) -> str:
    """Return the reason why a layer of this size is not quantised; "" if it is."""
    group = group_of(scheme)
    if outputs < LEAST_OUTPUTS:
        return f"it has fewer than {LEAST_OUTPUTS} outputs"
    if not 0 < inputs <= MOST_INPUTS:
        return f"it has no inputs, or more than {MOST_INPUTS}"
    return f"its inputs are no multiple of {group}" if group and inputs % group else ""


def why_no_convolution(
    scheme: str, shape: Sequence[int], groups: int = 1, transposed: bool = False
) -> str:
    """Return the reason why a convolution with weights of this shape is not quantised; "" where
    "int8" for a range of its inputs quantises it."""
    outputs, channels, *kernel = shape
    if scheme != "int8" and range_of(scheme) is None:
        return f"{scheme} is for products of matrices"
    if transposed:
        outputs, channels = channels * groups, outputs // groups
    depthwise = channels == 1 < groups == outputs
    if channels < LEAST_OUTPUTS and not depthwise:
        return f"it has fewer than {LEAST_OUTPUTS} input channels{' of a group' * (groups > 1)}"
    return why_not(
        "int8", channels * math.prod(kernel), outputs if depthwise else outputs // groups
    )


def why_no_table(scheme: str, rows: int) -> str:
    """Return the reason why an embedding's table is not quantised; "" if it is."""
    if scheme not in ("int8", "int8-weights"):
        return f"{scheme} is for products of matrices"
    return "" if rows >= LEAST_OUTPUTS else f"it has fewer than {LEAST_OUTPUTS} rows"


def layer_name(weight: str) -> str:
    """Return the name of the layer of a parameter.

    >>> layer_name("encoder.0.weight"), layer_name("attention.in_proj_weight")
    ('encoder.0', 'attention.in_proj')
    """
    return weight.removesuffix("weight").rstrip("._") or weight
