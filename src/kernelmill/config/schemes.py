"""Which layers are computed with smaller numbers, and how: the values of `config.quantize`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Union, cast

from kernelmill.config.option import Option
from kernelmill.core.errors import ConfigError, ConfigTypeError

SCHEMES = ("int8", "int8-weights", "int4-weights", "int4-weights-128")
"""Ways to quantise a layer. "int8": weights by output channel and inputs by row; "int8-weights":
weights by output channel; "int4-weights": weights by groups of 32 inputs, or of 128."""

Quantize = Union[str, Mapping[str, Union[str, None]], None]
"""A scheme for all layers, or a scheme or None by patterns of layer names."""


class Schemes(Option[Quantize]):
    """A scheme, or a dict of schemes by patterns; the first pattern that a layer matches counts."""

    def check(self, where: str, value: object) -> Quantize:
        if value is None or isinstance(value, str):
            return None if value is None else _checked(where, value)
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
    if scheme not in SCHEMES:
        near = difflib.get_close_matches(scheme, SCHEMES, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"config.{where}: {scheme!r} is not one of {', '.join(map(repr, SCHEMES))}{meant}"
        )
    return scheme


def scheme_of(quantize: Quantize, *names: str) -> str | None:
    """The scheme for a layer with these names, None for one that stays as it is.

    >>> scheme_of({"encoder.*": "int8", "*": "int8-weights"}, "head")
    'int8-weights'
    """
    if quantize is None or isinstance(quantize, str):
        return quantize
    for pattern, scheme in quantize.items():
        if any(fnmatchcase(name, pattern) for name in names):
            return scheme
    return None


LEAST_OUTPUTS = 16
"""A layer of fewer outputs, such as a head of two classes, stays as it is: nothing is gained."""
MOST_INPUTS = 2**16
"""Sums of more products of int8 might not fit in 32 bits."""


def group_of(scheme: str) -> int:
    """The inputs that share a scale; 0 where all inputs of an output do."""
    return {"int4-weights": 32, "int4-weights-128": 128}.get(scheme, 0)


def why_not(scheme: str, inputs: int, outputs: int) -> str:
    """Why a layer of this size stays as it is; "" where it is quantised."""
    group = group_of(scheme)
    if outputs < LEAST_OUTPUTS:
        return f"it has fewer than {LEAST_OUTPUTS} outputs"
    if not 0 < inputs <= MOST_INPUTS:
        return f"it has no inputs, or more than {MOST_INPUTS}"
    return f"its inputs are no multiple of {group}" if group and inputs % group else ""


def layer_name(weight: str) -> str:
    """The name of the layer of a parameter.

    >>> layer_name("encoder.0.weight"), layer_name("attention.in_proj_weight")
    ('encoder.0', 'attention.in_proj')
    """
    return weight.removesuffix("weight").rstrip("._") or weight
