"""sentence-transformers: a model whose texts run sorted by length, in batches of declared sizes."""

from __future__ import annotations

import copy
import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from kernelmill.config import CompilerConfig
from kernelmill.config.schemes import Quantize
from kernelmill.core.errors import ConfigError, ConfigTypeError, InputError
from kernelmill.core.log import get_logger
from kernelmill.inference.compile import compile as compile_model
from kernelmill.inference.compile_report import CompileReport

BATCHES = (1, 3, 8)
LENGTHS = (8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512)
_CALL = 24
"""Fixed cost of a call, in tokens: all weights are read once."""
_TRIED = "6"
_TENSORS = frozenset(("input_ids", "attention_mask", "token_type_ids"))
_log = get_logger("integrations")


def compile(
    model: Any,
    *,
    batches: Sequence[int] = BATCHES,
    lengths: Sequence[int] | None = None,
    config: CompilerConfig | Mapping[str, Any] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    quantize: Quantize = None,
) -> Any:
    """Return a SentenceTransformer with the weights of `model`, whose `encode` runs compiled
    programs for these sizes of batches and lengths of texts.

    `encode` accepts batches of any size, so `batch_size` may be large. The texts of a batch are
    sorted by length, divided, and padded to the next length with a mask. `model` itself runs texts
    beyond the longest length, images, texts padded at the left, and calls with gradients enabled;
    the log says so once.

    batches  numbers of texts, 1 among them
    lengths  numbers of tokens; None: `LENGTHS` up to the model's limit, and that limit
    config, cache_dir, quantize  as for `kernelmill.compile`

    Raises InputError if `model` is not a SentenceTransformer, ConfigError for invalid sizes.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise InputError("sentence-transformers is not installed") from error
    if not isinstance(model, SentenceTransformer):
        raise InputError(f"{type(model).__name__} is no SentenceTransformer")
    if version("sentence-transformers").partition(".")[0] != _TRIED:
        _log.warning(
            "sentence-transformers %s was not tried, and %s was: compare a few embeddings",
            version("sentence-transformers"), _TRIED,
        )  # fmt: skip
    most = model.max_seq_length or LENGTHS[-1]
    known = (*(n for n in LENGTHS if n < most), most) if lengths is None else lengths
    compiled = copy.copy(model)
    compiled.forward = SortedCalls(
        model, _sizes("batches", batches), _sizes("lengths", known),
        {"config": config, "cache_dir": cache_dir, "quantize": quantize},
    )  # fmt: skip
    return compiled


def _sizes(name: str, given: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes, ascending and without duplicates."""
    if not given or any(type(size) is not int for size in given):
        raise ConfigTypeError(f"{name}: {given!r} are no sizes")
    if min(given) < (2 if name == "lengths" else 1):
        raise ConfigError(f"{name}: {min(given)} is too small")
    if name == "batches" and 1 not in given:
        raise ConfigError(f"batches: without 1, {given!r} leave texts over")
    return tuple(sorted(set(given)))


class Encoder(nn.Module):
    """The model as a function of tensors: ids, mask and, for models that have them, types of
    tokens, each (batch, length) int64. `rest` are other arguments of sentence-transformers to its
    modules."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        **rest: Any,
    ) -> dict[str, Any]:
        given: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask, **rest}
        if token_type_ids is not None:
            given["token_type_ids"] = token_type_ids
        found = type(self.model).forward(self.model, dict(given))
        return {name: value for name, value in found.items() if name not in given}


class SortedCalls:
    """The forward of a compiled model. `report()` has a report for batches of one text and one for
    larger ones: the code of models asks whether a size is 1, so that these are two traces."""

    def __init__(
        self,
        model: Any,
        batches: Sequence[int],
        lengths: Sequence[int],
        options: Mapping[str, Any],
    ) -> None:
        self._model, self._batches, self._lengths = model, batches, lengths
        self._told = False
        encoder = Encoder(model)
        several = [size for size in batches if size > 1]
        sizes = [(batch, length) for batch in several for length in lengths]
        self._compiled: dict[str, Any] = {
            name: compile_model(encoder, gears=_gears(each), **options)
            for name, each in (("one", [(1, length) for length in lengths]), ("several", sizes))
            if each
        }

    def report(self) -> dict[str, CompileReport]:
        """Return the reports by "one" and "several"."""
        return {name: each.report() for name, each in self._compiled.items()}

    def __call__(self, input: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Return the features, with the results of the modules added."""
        reason = self._why_not(input, kwargs)
        if reason:
            if not self._told:
                _log.warning("%s runs as it is: %s", type(self._model).__name__, reason)
            self._told = True
            return type(self._model).forward(self._model, input, **kwargs)
        tensors = {name: value for name, value in input.items() if name in _TENSORS}
        rest = {name: value for name, value in input.items() if name not in _TENSORS}
        counts = tensors["attention_mask"].sum(1).tolist()
        found: dict[str, Tensor] = {}
        for rows, length in divide(counts, self._batches, self._lengths):
            part = {name: _cut(value[rows], length) for name, value in tensors.items()}
            results = self._compiled["one" if len(rows) == 1 else "several"](**part, **rest)
            for name, value in results.items():
                _put(found, name, value, rows, length, tensors["input_ids"].shape)
        return {**input, **found}

    def _why_not(self, input: Mapping[str, Any], kwargs: Mapping[str, Any]) -> str:
        if torch.is_grad_enabled():
            return "gradients are on"
        if kwargs:
            return f"it is called with {', '.join(kwargs)}"
        if not {"input_ids", "attention_mask"} <= input.keys():
            return "these are no texts"
        if others := [n for n, v in input.items() if isinstance(v, Tensor) and n not in _TENSORS]:
            return f"there are tensors besides ids and mask: {', '.join(others)}"
        mask = input["attention_mask"]
        if not bool((mask[:, 1:] <= mask[:, :-1]).all()):
            return "texts are padded at the left"
        if int(mask.sum(1).max()) > self._lengths[-1]:
            return f"a text has more than {self._lengths[-1]} tokens: name more lengths"
        return ""


def divide(
    counts: Sequence[int], batches: Sequence[int], lengths: Sequence[int]
) -> Iterator[tuple[list[int], int]]:
    """Yield batches of texts' numbers, with the length of each, that cost least together: their
    tokens, padding included, and `_CALL` for each batch. `counts` are tokens of the texts;
    `lengths` ascend, and `batches` are sizes, 1 among them."""
    order = sorted(range(len(counts)), key=counts.__getitem__)
    padded = [lengths[bisect_left(lengths, counts[number])] for number in order]
    best = [(0, 0)]  # for the texts before each: the least cost, and the size of the last batch
    for end, length in enumerate(padded, 1):
        sizes = (size for size in batches if size <= end)
        best.append(min((best[end - size][0] + size * length + _CALL, size) for size in sizes))
    end = len(order)
    while end:
        size = best[end][1]
        yield order[end - size : end], padded[end - 1]
        end -= size


def _gears(sizes: Sequence[tuple[int, int]]) -> dict[str, dict[int, list[int]]]:
    """Return the gears of each tensor; a dim with one size has none."""
    columns = [[size[dim] for size in sizes] for dim in (0, 1)]
    dims = {dim: each for dim, each in enumerate(columns) if len(set(each)) > 1}
    return {name: dims for name in _TENSORS if dims}


def _cut(value: Tensor, length: int) -> Tensor:
    """Return the first `length` tokens of each row, padded with zeros."""
    missing = length - value.shape[1]
    return nn.functional.pad(value, (0, missing)) if missing > 0 else value[:, :length].contiguous()


def _put(
    found: dict[str, Tensor],
    name: str,
    value: Tensor,
    rows: Sequence[int],
    length: int,
    shape: Sequence[int],
) -> None:
    """Write a result of these rows into that of all rows; tokens that a text lacks are zero."""
    of_tokens = value.dim() > 2 and value.shape[1] == length
    size = (shape[0], shape[1], *value.shape[2:]) if of_tokens else (shape[0], *value.shape[1:])
    if name not in found:
        found[name] = value.new_zeros(size)
    if of_tokens:
        width = min(length, shape[1])
        found[name][rows, :width] = value[:, :width]
    else:
        found[name][rows] = value
