"""AOTAutograd: its metadata, settings and calling convention."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import functorch.compile
from torch import fx

from kernelmill.core.dataclass import dataclass
from kernelmill.core.errors import UnsupportedError
from kernelmill.torch_internals.modules import check
from kernelmill.torch_internals.operators import overload_named
from kernelmill.torch_internals.registry import internal

Call = Callable[..., Any]

_functorch: Any = functorch.compile


@internal(
    "autograd.metadata",
    reason="calling programs without AOTAutograd's wrapper, and telling parameters from inputs",
    fallback="calls go through the wrapper, weights are not packed, and methods behind "
    "cache_compile are compiled in each process",
)
def _context() -> Callable[[], Any]:
    from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta
    from torch._guards import TracingContext

    check(TracingContext, "fw_metadata", "output_strides")
    check(
        ViewAndMutationMeta, "dynamic_outputs", "grad_enabled_mutation", "input_info",
        "mutated_inp_runtime_indices", "num_forward", "num_intermediate_bases", "num_outputs",
        "num_outputs_aliased", "output_info", "static_input_indices", "tokens",
    )  # fmt: skip
    return TracingContext.try_get


def metadata() -> Any:
    """Return AOTAutograd's ViewAndMutationMeta of the current graph; None where there is none."""
    find = _context.get()
    context = None if find is None else find()
    return None if context is None else context.fw_metadata


def waits_for_collectives(known: Any) -> bool:
    """Return whether the wrapper waits for arguments that are results of pending collectives.
    `known` is the metadata: torch 2.12 and 2.13 list the numbers of these arguments, later versions
    their paths; earlier ones do not wait."""
    lists = ("act_input_indices", "act_input_paths")
    return any(getattr(known, name, None) for name in lists)


def output_strides() -> list[Any] | None:
    """Return the list that takes the strides of the forward's results; None if not asked for."""
    find = _context.get()
    context = None if find is None else find()
    return None if context is None else context.output_strides


@dataclass(frozen=True)
class OutputKinds:
    """Values of `output_type`: those of inputs and views of them, and all that are known."""

    itself: Any
    of_input: tuple[Any, ...]
    known: tuple[Any, ...]


@internal(
    "autograd.output_kinds",
    reason="telling results of a recorded program that are views of its arguments",
    fallback="methods behind cache_compile are compiled in each process",
)
def output_kinds() -> OutputKinds:
    """Return the kinds of results."""
    from torch._functorch._aot_autograd.schemas import OutputAliasInfo, OutputType

    check(OutputAliasInfo, "output_type", "base_idx")
    of_input = OutputType.alias_of_input, OutputType.is_input
    return OutputKinds(
        of_input[1], of_input, (*of_input, OutputType.non_alias, OutputType.unsafe_view_alias)
    )


def views_with_gradients(metadata: Any) -> bool:
    """Return whether a result may be, or be a view of, an argument that requires a gradient; or a
    view of another result that does."""
    kinds = output_kinds.get()
    if kinds is None:
        return metadata.num_outputs_aliased > 0
    arguments = metadata.input_info
    return any(
        result.requires_grad
        or (result.output_type in kinds.of_input and arguments[result.base_idx].requires_grad)
        for result in metadata.output_info
    )


# ---- arguments ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Descriptions:
    plain: type
    shared: tuple[type, ...]


@internal(
    "autograd.descriptions",
    reason="telling which argument of Dynamo's a graph's argument is, or that it is several",
    fallback="graphs that write to arguments run in torch; calls go through AOTAutograd's wrapper, "
    "and methods behind cache_compile are compiled in each process",
)
def _descriptions() -> _Descriptions:
    from torch._functorch._aot_autograd import descriptors

    check(descriptors.PlainAOTInput, "idx")
    shared = (descriptors.SyntheticBaseAOTInput, descriptors.ViewBaseAOTInput)
    return _Descriptions(descriptors.PlainAOTInput, shared)


def position_of(placeholder: fx.Node) -> int | None:
    """Return a placeholder's position among Dynamo's arguments; None where unknown."""
    kinds = _descriptions.get()
    described: Any = placeholder.meta.get("desc")
    return described.idx if kinds is not None and type(described) is kinds.plain else None


def shared_memory(placeholders: Sequence[fx.Node]) -> list[fx.Node]:
    """Return the arguments that stand for the memory below several of Dynamo's arguments.

    AOTAutograd makes one where arguments overlap and one of them is written to. Its size depends on
    the tensor that the caller took the views of, so no traced size is reliable. UnsupportedError
    where arguments are written to and it is unknown whether there are such.
    """
    kinds = _descriptions.get()
    if kinds is not None:
        return [node for node in placeholders if type(node.meta.get("desc")) in kinds.shared]
    known = metadata()
    if known is None or any(info.mutates_data for info in known.input_info):
        raise UnsupportedError("arguments are written to, and may share memory with others")
    return []


# ---- effects --------------------------------------------------------------------------------


@internal(
    "autograd.config",
    reason="taking effects (assertions inside linear algebra) in the order of our ATen calls, and "
    "leaving torch's cache of compiled graphs out",
    fallback="graphs with effects run in torch, and all where that cache is forced",
)
def _config() -> Any:
    settings = _functorch.config
    with settings.patch(**_OURS):
        right = all(getattr(settings, name) is value for name, value in _OURS.items())
    return settings if right and isinstance(settings.functionalize_rng_ops, bool) else None


_OURS = {"unlift_effect_tokens": True, "force_autograd_cache": False}
"""No effect tokens among arguments and results; and torch's cache of AOTAutograd's results, which
holds programs of Inductor's alone, is not used even where it is forced (vLLM does that)."""


@contextmanager
def our_settings() -> Generator[None]:
    """Run AOTAutograd with the settings of a backend of ours (`_OURS`)."""
    settings = _config.get()
    if settings is None:
        yield
        return
    with settings.patch(**_OURS):
        yield


def has_unknown_effects(gm: fx.GraphModule) -> bool:
    """Return whether a graph has effects whose tokens may be among its arguments and results."""
    marker = overload_named("higher_order.with_effects")
    return not _config.works and any(node.target is marker for node in gm.graph.nodes)


def random_numbers_are_functions() -> bool:
    """Return whether AOTAutograd passes random states as arguments; True where unknown."""
    settings = _config.get()
    return settings is None or settings.functionalize_rng_ops


# ---- calling convention ---------------------------------------------------------------------

_BOXED = "_boxed_call"


@internal(
    "autograd.boxed",
    reason="letting go of arguments during a call",
    fallback="arguments live until the call returns",
)
def _boxed_mark() -> str | None:
    return _BOXED if getattr(_functorch.make_boxed_func(lambda: None), _BOXED, False) else None


def boxed(call: Call) -> Call:
    """Return a function of one list of arguments, which it empties (AOTAutograd's convention)."""
    mark = _boxed_mark.get()
    if mark is None:
        return _functorch.make_boxed_func(call)

    def run(args: list[Any]) -> Any:
        flat = tuple(args)
        args.clear()
        return call(*flat)

    setattr(run, mark, True)
    return run


# ---- functions that torch keeps -------------------------------------------------------------


class KeptFunction:
    """A function with the methods that torch, and vLLM, call to keep one; `save` returns its bytes.
    A subclass has `deserialize_compile_artifacts`, which makes a function of them."""

    def __init__(self, call: Call, save: Callable[[], bytes]) -> None:
        self._call, self._save = call, save

    def __call__(self, *args: Any) -> Any:
        """Run the function."""
        return self._call(*args)

    @classmethod
    def serialize_compile_artifacts(cls, fn: KeptFunction) -> bytes:
        """Return the bytes of a function. Raises the error of its `save`."""
        return fn._save()

    def finalize_loading(self, *config: Any) -> None:
        """Do nothing after a load: all is there."""


@internal(
    "autograd.kept_functions",
    reason="torch.compile(...).aot_compile, which vLLM compiles models by",
    fallback="torch refuses to compile so",
)
def _kept_functions() -> bool | None:
    from torch._dynamo.aot_compile_types import SerializableCallable

    wanted = frozenset(("__call__", "serialize_compile_artifacts", "deserialize_compile_artifacts"))
    SerializableCallable.register(KeptFunction)
    return SerializableCallable.__abstractmethods__ == wanted or None


def is_to_be_kept() -> bool:
    """Return whether torch asks for a `KeptFunction`, as `aot_compile` does."""
    settings: Any = _functorch.config
    wanted = ("bundled_autograd_cache", "strict_autograd_cache")
    return all(getattr(settings, name, False) for name in wanted) and _kept_functions.works
