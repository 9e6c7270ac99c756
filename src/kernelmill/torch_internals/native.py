"""Functions of torch, CPython and OpenMP for the native entry, and tvm-ffi's way to call it.

`runtime/native/foreign.h` declares the same functions in C. A function that is missing, or differs
from torch's public result, is not called.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import tvm_ffi

from kernelmill.core.dataclass import dataclass
from kernelmill.torch_internals.dispatch import outside_modes
from kernelmill.torch_internals.libraries import address_of, torch_library
from kernelmill.torch_internals.registry import internal

_TUPLE_ITEM = "PyTuple_GetItem"
_OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_OF_PYTHON = tuple(
    (
        "PyDict_Next _PyDict_GetItem_KnownHash _PyObject_GetDictPtr PyLong_AsLongLongAndOverflow "
        "PyList_SetItem Py_IncRef"
    ).split()
)
_GRADIENTS = "_ZN3c108GradMode10is_enabledEv"
_DEFAULT_DTYPE = "_ZN3c1031get_default_dtype_as_scalartypeEv"
_AUTOCAST = "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE"
_AUTOCAST_DTYPE = "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE"
_CONTEXT = "_ZN2at13globalContextEv"
_DETERMINISM = "_ZNK2at7Context23deterministicAlgorithmsEv"
_PRECISION = "_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE"
_FUNCTION_MODES = "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"
_DISPATCH_MODES = "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv"
_REQUIRES_GRADIENT = "_ZNK3c1010TensorImpl13requires_gradEv"
_IS_NEGATED = "_ZN2at6native6is_negERKNS_6TensorE"
_OF_TORCH = (
    "aoti_torch_get_device_type", "aoti_torch_get_layout", "fegetmode", _REQUIRES_GRADIENT,
    _AUTOCAST, _CONTEXT, _DETERMINISM, _DEFAULT_DTYPE, _GRADIENTS, _AUTOCAST_DTYPE,
    _FUNCTION_MODES, _DISPATCH_MODES, _PRECISION,
)  # fmt: skip
_FOR_WATCHERS = ("PyDict_Unwatch", "PyType_Unwatch")

Addresses = dict[str, int]


# ---- addresses ------------------------------------------------------------------------------


def python_function(name: str) -> int | None:
    """Return the address of a function of CPython; None if missing."""
    function = getattr(ctypes.pythonapi, name, None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def provided() -> Addresses:
    """Return addresses for the entry, 0 for a missing one: code that needs it is not called.
    Functions of torch that are not among these are required."""
    told = watchers.get()
    found = dict.fromkeys((*_OPENMP, *_OF_PYTHON, *_OF_TORCH, *_FOR_WATCHERS), 0)
    found |= {_TUPLE_ITEM: python_function(_TUPLE_ITEM) or 0}
    return found | (openmp.get() or {}) | (for_checks.get() or {}) | (told.unwatch if told else {})


def _all(names: Sequence[str], find: Callable[[str], int | None]) -> Addresses | None:
    found = {name: find(name) or 0 for name in names}
    return found if all(found.values()) else None


@internal(
    "native.threads",
    reason="running launches on torch's own threads",
    fallback="programs run on the calling thread",
)
def openmp() -> Addresses | None:
    """Return the functions of torch's OpenMP runtime, where it has the GNU interface."""
    return _all(_OPENMP, address_of)


# ---- calls that are checked natively --------------------------------------------------------


def _called(name: str, *arguments: Any) -> int:
    """Call a function that returns a bool or int8_t."""
    function = torch_library()[name]
    function.restype = ctypes.c_uint8
    return function(*arguments)


def _word(name: str, *arguments: Any) -> int:
    function = torch_library()[name]
    function.restype = ctypes.c_int64
    return function(*arguments)


def _scalar_type(dtype: torch.dtype) -> int:
    """Return the number of a dtype, by torch's C functions for tensors."""
    sample = torch.empty(0, dtype=dtype, device="cpu")
    handle, number = ctypes.c_void_p(sample._cdata), ctypes.c_int32()
    torch_library().aoti_torch_get_dtype(ctypes.byref(handle), ctypes.byref(number))
    return number.value


def _settings_are_told() -> bool:
    context = ctypes.c_void_p(_word(_CONTEXT))
    modes = (torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack)
    precision = {"none": 0, "ieee": 1, "tf32": 2, "bf16": 3}
    operators = {1: "conv", 2: "rnn", 3: "matmul"}
    return (
        _called(_GRADIENTS) == torch.is_grad_enabled()
        and _called(_AUTOCAST, 0) == torch.is_autocast_enabled("cpu")
        and _called(_DETERMINISM, context) == torch.are_deterministic_algorithms_enabled()
        and _called(_DEFAULT_DTYPE) == _scalar_type(torch.get_default_dtype())
        and _called(_AUTOCAST_DTYPE, 0) == _scalar_type(torch.get_autocast_dtype("cpu"))
        and [_word(_FUNCTION_MODES), _word(_DISPATCH_MODES)] == [count() for count in modes]
        and all(
            max(_called(_PRECISION, context, 2, number), 1)
            == max(precision[getattr(torch.backends.mkldnn, name).fp32_precision], 1)
            for number, name in operators.items()
        )
    )


def _tensors_are_told() -> bool:
    plain, tracked = torch.zeros(1), torch.zeros(1, requires_grad=True)
    negated = torch.zeros(1, dtype=torch.complex64).conj().imag
    pointers = [ctypes.c_void_p(tensor._cdata) for tensor in (plain, tracked, negated)]
    return [_called(_REQUIRES_GRADIENT, each) for each in pointers] == [0, 1, 0] and [
        _called(_IS_NEGATED, ctypes.byref(each)) for each in pointers
    ] == [0, 0, 1]


@internal(
    "native.checks",
    reason="reading torch's settings and taking arguments apart without running Python",
    fallback="calls are checked in Python",
)
def for_checks() -> Addresses | None:
    """Return the functions that the native check of a call uses, by name."""
    of_python, of_torch = _all(_OF_PYTHON, python_function), _all(_OF_TORCH, address_of)
    if of_python is None or of_torch is None:
        return None
    right = True
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients), torch.autocast("cpu", enabled=gradients):
            right &= _settings_are_told()
    right &= outside_modes(_tensors_are_told)
    return {**of_python, **of_torch} if right else None


@internal(
    "native.switches",
    reason="reading further settings of torch without running Python",
    fallback="they are read in Python at each call, some 100 ns each",
)
def context_switch() -> Callable[[str], tuple[int, bool]] | None:
    """Return a function from NAME to the address of `bool at::Context::NAME() const` and its value
    now; address 0 where torch has no such function."""
    context = ctypes.c_void_p(_word(_CONTEXT))

    def find(name: str) -> tuple[int, bool]:
        symbol = f"_ZNK2at7Context{len(name)}{name}Ev"
        address = address_of(symbol)
        return (address, bool(_called(symbol, context))) if address else (0, False)

    address, given = find("deterministicAlgorithms")
    return find if address and given == torch.are_deterministic_algorithms_enabled() else None


# ---- changes of dicts and classes -----------------------------------------------------------


def _watching(name: str) -> Callable[[int, object], int]:
    """Return a function of CPython that takes a watcher's number and an object."""
    kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.py_object)
    return kind((name, ctypes.pythonapi))


@dataclass(frozen=True)
class Watchers:
    """CPython's functions for watchers. `unwatch` are the addresses of those that callbacks call.
    Those that add one take its callback's address, and raise RuntimeError when all places are
    taken."""

    add_dict: Callable[[int], int]
    add_type: Callable[[int], int]
    clear_dict: Callable[[int], int]
    clear_type: Callable[[int], int]
    watch_dict: Callable[[int, object], int]
    watch_type: Callable[[int, object], int]
    assign_tag: Callable[[type], bool]
    unwatch: Addresses


def _adding(name: str) -> Callable[[int], int]:
    return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)((name, ctypes.pythonapi))


def _clearing(name: str) -> Callable[[int], int]:
    return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)((name, ctypes.pythonapi))


@internal(
    "native.watchers",
    reason="being told of changes of dicts and classes: one word says that none has changed",
    fallback="what was read from dicts and classes is compared one by one",
    applies=sys.version_info >= (3, 12),
)
def watchers() -> Watchers | None:
    """Return CPython's watchers (PyDict_Watch, PyType_Watch); `runtime/calls/changes.py` tests that
    they report every kind of change."""
    unwatch = _all(_FOR_WATCHERS, python_function)
    if unwatch is None:
        return None
    tag: Any = ctypes.pythonapi.PyUnstable_Type_AssignVersionTag
    return Watchers(
        _adding("PyDict_AddWatcher"), _adding("PyType_AddWatcher"),
        _clearing("PyDict_ClearWatcher"), _clearing("PyType_ClearWatcher"),
        _watching("PyDict_Watch"), _watching("PyType_Watch"),
        lambda kind: bool(tag(ctypes.py_object(kind))), unwatch,
    )  # fmt: skip


# ---- tvm-ffi --------------------------------------------------------------------------------


@internal(
    "native.packed",
    reason="calling machine code with tensors, in half a microsecond",
    fallback="graphs run in torch",
)
def _packed() -> Callable[..., Any] | None:
    """Return the function (address, keep_alive_object) -> tvm_ffi.Function (packed convention)."""
    integer, answer = 1, 7  # kTVMFFIInt

    @ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32,
        ctypes.POINTER(ctypes.c_int64),
    )  # fmt: skip
    def sample(itself: Any, arguments: Any, count: int, result: Any) -> int:
        result[0], result[1] = integer, answer * count
        return 0

    make: Callable[..., Any] = tvm_ffi.Function.__from_extern_c__
    address = ctypes.cast(sample, ctypes.c_void_p).value
    function = make(address, keep_alive_object=sample)
    return make if function(1, 2) == 2 * answer else None


def packed_function(address: int, code: object, *, release_gil: bool) -> Any:
    """Return the function of the packed convention at an address; `code` is kept alive. While it
    runs, Python's lock is kept, or released. UnsupportedError where tvm-ffi cannot."""
    function = _packed.require()(address, keep_alive_object=code)
    function.release_gil = release_gil
    return function
