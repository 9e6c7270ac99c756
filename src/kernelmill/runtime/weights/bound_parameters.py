"""Long-lived arguments in their state at binding.

Nothing here refers to a tensor, not even weakly: `torch.utils.swap_tensors` refuses tensors with
weak references. A tensor is identified by the addresses of its object and its TensorImpl; and by
its storage, whose death releases the binding.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Union

import torch

from kernelmill.core.dataclass import dataclass
from kernelmill.runtime.argument_validation import has_memory
from kernelmill.runtime.weights.contents import (
    WATCHED_BYTES,
    CheckWeights,
    Contents,
    Way,
    memory_span,
    read_contents,
    way_for,
)  # fmt: skip
from kernelmill.runtime.weights.page_scan import SharedMappings
from kernelmill.runtime.weights.write_watch import Span, Watch, write_watch
from kernelmill.torch_internals.libraries import torch_library
from kernelmill.torch_internals.tensors import handle_of, version_of

OnDeath = Union[Callable[[object], None], None]
"""A callback for the death of a storage."""


@dataclass(frozen=True)
class ParameterState:
    """A parameter's state at binding. `version` is None where torch counts none or hides it."""

    impl: int
    data: int
    version: int | None
    inference: bool
    negated: bool
    dtype: int
    layout: tuple[int, ...]
    contents: Contents | None


@dataclass
class BoundParameter:
    """A bound parameter: its object's address and class, its storage and that one's address. `copy`
    is read by kernels if strides differ. `looks` is the watch's number when the state was read."""

    argument: int
    object: int
    type: type
    storage: weakref.ref[torch.UntypedStorage]
    base: int
    state: ParameterState
    way: Way
    watch: Watch | None = None
    copy: torch.Tensor | None = None
    looks: int = 0

    @property
    def address(self) -> int:
        """Address that kernels read."""
        return self.state.data if self.copy is None else self.copy.data_ptr()

    @property
    def is_there(self) -> bool:
        """True if its storage is alive and at the same address."""
        storage = self.storage()
        return storage is not None and storage.data_ptr() == self.base


class BoundParameters:
    """Factory of the bound parameters of a program. Something is packed from the arguments
    `packed`; `validate(argument number, value)` returns the tensor that kernels may read for an
    argument, itself or a copy, or raises InputError."""

    def __init__(
        self,
        arguments: Collection[int],
        packed: Collection[int],
        validate: Callable[[int, object], torch.Tensor],
    ) -> None:
        handle_of.require()  # now, and not when the first weight is bound
        self._arguments, self._packed, self._validate = arguments, packed, validate
        self.check: CheckWeights = "auto"
        self.copies = 0

    def read(
        self, arguments: Sequence[object], old: Mapping[int, BoundParameter], on_death: OnDeath
    ) -> dict[int, BoundParameter]:
        """Return bound parameters for these arguments as they are now; an unchanged argument keeps
        its parameter. InputError names one that cannot be bound."""
        if self.check == "auto":
            write_watch().look()
        found = {i: old[i] for i in self._arguments if i in old and _same(old[i], arguments[i])}
        fitting = {i: self._validate(i, arguments[i]) for i in self._arguments if i not in found}
        tensors = {i: t for i in fitting if isinstance(t := arguments[i], torch.Tensor)}
        watches, mappings = self._watches(tensors, fitting), SharedMappings()
        for i, tensor in tensors.items():
            copy = None if fitting[i] is tensor else fitting[i]
            self.copies += copy is not None
            watch = watches.get(memory_span(tensor)) if self._counts(i, copy) else None
            if copy is not None and watch is not None:
                copy.copy_(tensor.detach())  # once more, now that writes are seen
            way = Way.UNREAD
            if self._counts(i, copy):
                way = way_for(tensor, self.check, watch, mappings)
            found[i] = _bind(i, tensor, copy, watch, way, on_death)
        if watches:
            _settle(found[i] for i in tensors)
        return {i: found[i] for i in self._arguments}

    def read_once(self, arguments: Sequence[object]) -> dict[int, BoundParameter]:
        """Return bound parameters for one immediate call, without detection of later writes.
        Existing bindings and the watch over memory are not touched."""
        found: dict[int, BoundParameter] = {}
        for i in self._arguments:
            fitting, tensor = self._validate(i, arguments[i]), arguments[i]
            assert isinstance(tensor, torch.Tensor)
            copy = None if fitting is tensor else fitting
            found[i] = _bind(i, tensor, copy, None, Way.UNREAD, None)
        return found

    def _counts(self, number: int, copy: torch.Tensor | None) -> bool:
        """Return whether kernels read a copy or packing of this argument: writes make it stale."""
        return copy is not None or number in self._packed

    def _watches(
        self,
        tensors: Mapping[int, torch.Tensor],
        fitting: Mapping[int, torch.Tensor],
    ) -> Mapping[Span, Watch]:
        if self.check != "auto":
            return {}
        spans = (
            memory_span(tensor)
            for i, tensor in tensors.items()
            if i in self._packed or fitting[i] is not tensor
        )
        return write_watch().watch(span for span in spans if span[1] - span[0] > WATCHED_BYTES)


def _bind(
    number: int,
    tensor: torch.Tensor,
    copy: torch.Tensor | None,
    watch: Watch | None,
    way: Way,
    on_death: OnDeath,
) -> BoundParameter:
    looks = 0 if watch is None else watch.looks
    state = read_state(tensor, way, watch)
    storage = tensor.untyped_storage()
    reference = weakref.ref(storage, on_death)
    base, kind = storage.data_ptr(), type(tensor)
    return BoundParameter(number, id(tensor), kind, reference, base, state, way, watch, copy, looks)


def _settle(parameters: Iterable[BoundParameter]) -> None:
    """Accept writes made during binding: binding allocates on the heap pages at weights' edges,
    which the native entry compares from now on."""
    write_watch().look()
    for parameter in parameters:
        watch, contents = parameter.watch, parameter.state.contents
        if watch is not None and contents is not None and watch.writes == contents.writes:
            parameter.looks = watch.looks


def _same(parameter: BoundParameter, argument: object) -> bool:
    """Return whether an argument has the state it was bound in. `looks` is updated."""
    if id(argument) != parameter.object or type(argument) is not parameter.type:
        return False
    assert isinstance(argument, torch.Tensor)
    if not has_memory(argument) or parameter.storage() is not argument.untyped_storage():
        return False
    if parameter.watch is not None:
        parameter.looks = parameter.watch.looks
    state = read_state(argument, parameter.way, parameter.watch)
    return state.contents is not None and state == parameter.state


def read_state(tensor: torch.Tensor, way: Way, watch: Watch | None) -> ParameterState:
    """Return the current state of a parameter."""
    layout = (*tensor.shape, *tensor.stride())
    return ParameterState(
        handle_of.require()(tensor), tensor.data_ptr(), _version(tensor), tensor.is_inference(),
        tensor.is_neg(), scalar_type(tensor), layout, read_contents(tensor, way, watch),
    )  # fmt: skip


def _version(tensor: torch.Tensor) -> int | None:
    count = version_of.get()
    return None if count is None or tensor.is_inference() else count(tensor)


def scalar_type(tensor: torch.Tensor) -> int:
    """Return the number that torch's C shims have for the tensor's dtype."""
    handle, number = ctypes.c_void_p(handle_of.require()(tensor)), ctypes.c_int32()
    torch_library().aoti_torch_get_dtype(ctypes.byref(handle), ctypes.byref(number))
    return number.value
