"""The device "npu" on the CPU.

`torch.device("npu:0")` is a device of torch's own (the name of its PrivateUse1), so that C++ and
Python accept it everywhere. Functions of torch that take a device are wrapped: a tensor for that
device is made on the CPU. Dynamo puts such a wrapper into its graph as a plain call; it breaks no
graph and adds no guard. A TorchFunctionMode would be a condition of every program that is compiled
under it, and kernels for PrivateUse1 would give traced tensors a device of their own, on which they
could not meet others.

Two memories are distinguished where a script can see the difference: `.npu()` and `.to("npu")` copy
a tensor that was not made or brought there, `.cpu()` and `.to("cpu")` copy always. So a write to
the one is not visible in the other. While a graph is traced all tensors are "there".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from kernelmill.torch_internals.devices import device_context

NAME = "npu"
CPU = "cpu"

Function = Callable[..., Any]

_ATTRIBUTE = "_kernelmill_on_npu"
"""Set on tensors that were made or brought "there"."""

_BEFORE_OTHERS = 0
"""Priority among functions that restore storages; torch's own are from 10 on."""

FACTORIES = (
    "arange", "as_tensor", "asarray", "bartlett_window", "blackman_window", "empty", "empty_like",
    "empty_permuted", "empty_quantized", "empty_strided", "eye", "frombuffer", "full", "full_like",
    "hamming_window", "hann_window", "kaiser_window", "linspace", "logspace", "normal", "ones",
    "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm",
    "range", "scalar_tensor", "sparse_bsc_tensor", "sparse_bsr_tensor", "sparse_compressed_tensor",
    "sparse_coo_tensor", "sparse_csc_tensor", "sparse_csr_tensor", "tensor", "tril_indices",
    "triu_indices", "zeros", "zeros_like"
)  # fmt: skip
NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros")


def is_npu(device: Any) -> bool:
    """Return whether a value names the device: "npu", "npu:0", torch.device("npu", 0), an index."""
    if isinstance(device, str):
        return device == NAME or device.startswith(f"{NAME}:")
    if isinstance(device, torch.device):
        return device.type == NAME
    return isinstance(device, int) and not isinstance(device, bool)


def map_devices() -> None:
    """Change torch, for the whole process. It cannot be undone."""
    for owner, names in (
        (torch, FACTORIES),
        (torch.fft, ("fftfreq", "rfftfreq")),
        (torch.nested, ("nested_tensor",)),
        (Tensor, NEW),
    ):
        for name in names:
            setattr(owner, name, _factory(getattr(owner, name)))
    # Dynamo calls this one itself, where it can no longer trace what a function does.
    torch.compiler.allow_in_graph(torch.scalar_tensor)
    _map_methods()
    _map_settings()


def _factory(original: Function) -> Function:
    @wraps(original)
    def on_cpu(*args: Any, **kwargs: Any) -> Any:
        if not is_npu(kwargs.get("device")):
            return original(*args, **kwargs)
        kwargs["device"] = CPU
        return _there(original(*args, **kwargs))

    return on_cpu


def _there(value: Any) -> Any:
    if type(value) is Tensor:
        setattr(value, _ATTRIBUTE, True)
    return value


def _map_methods() -> None:
    tensors: Any = Tensor
    modules: Any = torch.nn.Module
    original_to, original_cpu = Tensor.to, Tensor.cpu

    @wraps(original_to)
    def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        device = kwargs.get("device", args[0] if args else None)
        if is_npu(device):
            kept = not kwargs.get("copy") and (hasattr(self, _ATTRIBUTE) or not _is_plain(self))
            if "device" in kwargs:
                kwargs["device"] = CPU
            else:
                args = (CPU, *args[1:])
            result = original_to(self, *args, **kwargs)
            return result if kept or result is not self else _there(_copied(self))
        result = original_to(self, *args, **kwargs)
        left = isinstance(device, str) and device == CPU and result is self
        return _copied(self) if left and _is_plain(self) else result

    @wraps(original_cpu)
    def cpu(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = original_cpu(self, *args, **kwargs)
        return _copied(self) if result is self and _is_plain(self) else result

    def npu(self: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """Move to the NPU, which is the CPU here."""
        return self.to(device=NAME if device is None else device, non_blocking=non_blocking)

    def module_npu(self: torch.nn.Module, device: Any = None) -> torch.nn.Module:
        """Move all parameters and buffers to the NPU, which is the CPU here."""
        return self.to(device=NAME if device is None else device)

    tensors.to, tensors.cpu, tensors.npu = to, cpu, npu
    tensors.is_npu = property(lambda self: True)
    tensors.pin_memory = lambda self, device=None: self
    tensors.record_stream = _record_stream
    modules.npu = module_npu


def _record_stream(tensor: Tensor, stream: object) -> None:
    """Do nothing: memory is in use while its tensor lives, whatever stream reads it."""


def _is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is neither traced nor of a class with a `to` of its own."""
    return type(tensor) in (Tensor, torch.nn.Parameter)


def _copied(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.preserve_format)


def _map_settings() -> None:
    """Wrap torch's functions that take a device and are no factories of tensors."""
    torch_names: Any = torch
    original_autocast, context_class = torch.autocast.__init__, device_context.get()
    original_default, original_generator = torch.set_default_device, torch.Generator

    @wraps(original_autocast)
    def autocast(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if is_npu(device_type):  # the default of npu
            device_type, dtype = CPU, dtype or torch.float16
        original_autocast(self, device_type, dtype, *args, **kwargs)

    @wraps(original_default)
    def set_default_device(device: Any) -> None:
        original_default(None if is_npu(device) else device)

    class Generator(original_generator, metaclass=_GeneratorType):
        def __new__(cls, device: Any = CPU) -> Any:
            return original_generator(CPU if is_npu(device) else device)

    torch.autocast.__init__ = autocast
    if context_class is not None:
        _map_context(context_class)
    torch_names.set_default_device, torch_names.Generator = set_default_device, Generator
    torch.serialization.register_package(_BEFORE_OTHERS, lambda storage: None, _restored)


def _map_context(kind: Any) -> None:
    original = kind.__init__

    @wraps(original)
    def context(self: Any, device: Any) -> None:
        original(self, CPU if is_npu(device) else device)

    kind.__init__ = context


def _restored(storage: Any, location: str) -> Any:
    """Return a storage for the device from a file of torch.save, unchanged."""
    return storage if is_npu(location) else None


_GENERATOR = torch.Generator  # before another takes its place


class _GeneratorType(type(torch.Generator)):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _GENERATOR)
