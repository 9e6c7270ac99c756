"""The native entry of all programs: linked once in a process, assembled if nobody brings it.

Its source is C (native/executor.c), of which a compiler made executor.ll: LLVM's text, the same for
all processors, so that users need no compiler.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tvm_ffi

from kernelmill.core.digest import DIGEST_BYTES
from kernelmill.core.errors import CodegenError
from kernelmill.runtime import linker
from kernelmill.runtime.layout import Changes
from kernelmill.torch_internals.llvm_calls import inside_llvm

_OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_FOR_QUICK = (
    "aoti_torch_get_device_type",
    "aoti_torch_get_layout",
    "_ZN2at6native6is_negERKNS_6TensorE",
    "_ZNK3c1010TensorImpl13requires_gradEv",
    "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE",
    "_ZN2at13globalContextEv",
    "_ZNK2at7Context23deterministicAlgorithmsEv",
    "_ZN3c1031get_default_dtype_as_scalartypeEv",
    "_ZN3c108GradMode10is_enabledEv",
    "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE",
    "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv",
    "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv",
    "_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE",
    "fegetmode",
)
_PYTHON_FOR_QUICK = (
    "PyDict_Next",
    "_PyDict_GetItem_KnownHash",
    "_PyObject_GetDictPtr",
    "PyLong_AsLongLongAndOverflow",
    "PyList_SetItem",
    "Py_IncRef",
)
_PYTHON_FOR_WATCHERS = ("PyDict_Unwatch", "PyType_Unwatch")
_WATCHERS = ("km_dict_changed", "km_type_changed")
_ENTRIES = (
    "km_call",
    "km_admit",
    "km_launch",
    "km_repeat",
    "km_digest",
    "km_quick",
    "km_objects",
    "km_unmoved",
    "km_settings",
)


@dataclass(frozen=True)
class Executor:
    """The entries, the first five as pairs: one that keeps the GIL and one that lets go of it. The
    others look at Python's objects, and keep it; without `has_quick` they must not be called.
    `watchers` are the addresses of what CPython may call when a dict or a class has changed, which
    is then noted in `changes`; 0 where CPython watches nothing.

    `threaded` is False when torch has no OpenMP runtime with the GNU interface: programs then run
    on the calling thread.
    """

    call: tuple[Any, Any]
    admit: tuple[Any, Any]
    launch: tuple[Any, Any]
    repeat: tuple[Any, Any]
    digest: tuple[Any, Any]
    quick: Any
    objects: Any
    unmoved: Any
    settings: Any
    has_quick: bool
    threaded: bool
    watchers: tuple[int, int]
    changes: Changes


@cache
def executor() -> Executor:
    """Assemble and link it. CodegenError when torch lacks a function that it needs."""
    addresses = {name: linker.address_of(name) for name in _OPENMP}
    threaded = all(addresses.values())
    python: dict[str, int | None] = {n: _python_function(n) for n in _PYTHON_FOR_QUICK}
    quickly = {**python, **{name: linker.address_of(name) for name in _FOR_QUICK}}
    provided = {name: address or 0 for name, address in quickly.items()}
    provided["PyTuple_GetItem"] = _python_function("PyTuple_GetItem") or 0
    if not threaded:
        # Never called: frames then allow one thread only.
        provided.update(dict.fromkeys(_OPENMP, 0))
    watching = {name: _python_function(name) or 0 for name in _PYTHON_FOR_WATCHERS}
    changes = Changes()
    provided.update(watching, km_changes=ctypes.addressof(changes))
    code = linker.link((*_ENTRIES, *_WATCHERS), _image(), provided)
    watchers = (code["km_dict_changed"], code["km_type_changed"])
    call, admit, launch, repeat, digest, *quickest = (_packed(code, name) for name in _ENTRIES)
    return Executor(
        call, admit, launch, repeat, digest, *(keeping for keeping, _ in quickest),
        has_quick=all(quickly.values()), threaded=threaded,
        watchers=watchers if all(watching.values()) else (0, 0), changes=changes,
    )  # fmt: skip


def _packed(code: linker.LinkedObject, name: str) -> tuple[Any, Any]:
    keeping = tvm_ffi.Function.__from_extern_c__(code[name], keep_alive_object=code)
    keeping.release_gil = False
    releasing = tvm_ffi.Function.__from_extern_c__(code[name], keep_alive_object=code)
    releasing.release_gil = True
    return keeping, releasing


def _python_function(name: str) -> int | None:
    function = getattr(ctypes.pythonapi, name, None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


class _Given:
    """The object of the native entry that somebody has brought, if anybody has."""

    image: bytes | None = None


def give_executor(objects: Mapping[str, bytes]) -> None:
    """Take the executor's object from these, if it is among them under its name, so that LLVM has
    nothing to do. Only good before the first call of `executor`."""
    _Given.image = _Given.image or objects.get(executor_name())


def executor_object() -> tuple[str, bytes]:
    """Name and object of the executor, for those who keep compiled programs."""
    return executor_name(), _image()


@cache
def executor_name() -> str:
    """ "executor" and the digest of what it is made of."""
    return f"executor {hashlib.blake2b(_source(), digest_size=DIGEST_BYTES).hexdigest()}"


@cache
def _source() -> bytes:
    return Path(__file__).with_name("executor.ll").read_bytes()


@cache
def _image() -> bytes:
    return _Given.image or _assembled()


def _assembled() -> bytes:
    # Imported here: a program that brings the object needs no LLVM.
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    with inside_llvm():
        try:
            module = llvm.parse_assembly(_source().decode())
            module.verify()
        except RuntimeError as error:
            raise CodegenError(f"runtime/executor.ll: {error}") from error
        # Optimising takes 40 ms and saves 3 ns a launch.
        machine: Any = llvm.Target.from_default_triple().create_target_machine(
            opt=0, reloc="pic", codemodel="small"
        )
        return machine.emit_object(module)
