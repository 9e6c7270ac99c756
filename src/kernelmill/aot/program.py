"""Callable programs from compiled files. On a machine with the instructions and the version of
torch that a file needs, nothing is traced or compiled. Sizes of caches affect the speed of kernels,
not their results."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Never

import torch

from kernelmill.artifact.bind import Bound
from kernelmill.artifact.container import KMILL, Artifact, read_artifact, used
from kernelmill.artifact.manifest import Manifest
from kernelmill.artifact.program_set import ProgramSet, plans_of, program_set
from kernelmill.artifact.readable import other_machine
from kernelmill.artifact.target import Binder
from kernelmill.artifact.tensors import PacksOfFile, bind_weights, tensors_of
from kernelmill.core.errors import (
    CopyError,
    InputError,
    KernelmillError,
    UnsupportedError,
    file_errors,
)
from kernelmill.core.log import get_logger
from kernelmill.core.version import minor_of
from kernelmill.plan.ir import AtenCall
from kernelmill.runtime.counters import summed
from kernelmill.runtime.quick import REFUSED
from kernelmill.store.sealed import SealedFile
from kernelmill.torch_internals.registry import counters

_MOST_NAMES = 3

_log = get_logger("aot")


def load(
    path: str | os.PathLike[str], *, rebuild: bool = True, check_weights: bool = True
) -> AotProgram:
    """Return the program in a file of `kernelmill.aot.compile`, ready to call.

    rebuild        if this processor cannot run the file's code: True compiles its graph again
                   (seconds) through the kernel folder, False raises UnsupportedError
    check_weights  True: check the checksum of the weights too, which reads them all

    Raises UnsupportedError also for an entry of the compile cache, and for a file that calls
    operators of another minor version of torch (a file without such calls runs, with a warning).
    Raises FileError for a file that cannot be read (FileNotFoundError if it is missing), StoreError
    for one that is damaged, of another format, or could have been written by another user.

    >>> path = kernelmill.aot.compile(torch.nn.GELU(), (torch.ones(4),), path="gelu.kmill")
    >>> kernelmill.aot.load(path)(torch.zeros(4))
    tensor([0., 0., 0., 0.])
    """
    name = os.path.abspath(path)
    with file_errors(name):
        file = SealedFile(path, KMILL, writable=True)
    artifact = read_artifact(file, check_weights)
    with used(file):
        try:
            bound = _bound(artifact, name, rebuild)
        except KernelmillError as error:
            raise type(error)(f"{name}: {error}") from error
        return AotProgram(name, artifact.manifest, bound)


def _bound(artifact: Artifact, name: str, rebuild: bool) -> Bound:
    if artifact.manifest.guards.code:
        raise UnsupportedError(
            "this is an entry of the compile cache, for the method that it was recorded of; load "
            "takes files of kernelmill.aot.compile"
        )
    artifact = _for_this_machine(artifact, name, rebuild)
    tensors = tensors_of(artifact)
    return Bound(artifact.manifest, _programs(artifact, tensors), tensors)


def _for_this_machine(artifact: Artifact, name: str, rebuild: bool) -> Artifact:
    _check_torch(artifact, name)
    reason = other_machine(artifact.manifest.ingredients)
    if not reason:
        return artifact
    made = f"it was made for another machine: {reason}"
    if not rebuild:
        raise UnsupportedError(f"{made}. Compile it here, or let load(rebuild=True)")
    try:
        from kernelmill.aot.exporting import retargeted
    except ImportError as error:
        raise UnsupportedError(f"{made}. It cannot be compiled here: {error}") from error

    _log.warning("%s was made for another machine, and is compiled for this one: %s", name, reason)
    return retargeted(artifact)


def _check_torch(artifact: Artifact, path: str) -> None:
    """Raise UnsupportedError when operators of torch would run whose minor version differs from the
    compiled one; warn when only kernels of ours run."""
    recorded, here = artifact.manifest.ingredients.get("torch", "unknown"), torch.__version__
    if minor_of(recorded) == minor_of(here):
        return
    steps = (step for plan in plans_of(artifact) for step in (*plan.steps, *plan.views))
    called = sorted({step.target for step in steps if isinstance(step, AtenCall)})
    if not called:
        _log.warning("%s was compiled with torch %s, and this is torch %s", path, recorded, here)
        return
    more = f" and {len(called) - _MOST_NAMES} more" if len(called) > _MOST_NAMES else ""
    raise UnsupportedError(
        f"it was compiled with torch {recorded}, this is torch {here}, and it calls operators of "
        f"torch ({', '.join(called[:_MOST_NAMES])}{more}), which may have changed: compile it "
        "again with this torch"
    )


def _programs(artifact: Artifact, tensors: Sequence[torch.Tensor]) -> ProgramSet:
    manifest, file, place = artifact.manifest, artifact.file, None
    if manifest.packed and file is not None:
        mapped = torch.frombuffer(file.mapping, dtype=torch.uint8)
        place = PacksOfFile(manifest.packed, tensors, mapped, file.sections["packed"][0])
    programs = program_set(artifact, place=place)
    if place is not None and programs.single is not None:
        # before the caller can write to the weights
        bind_weights(programs.single, manifest.spec, tensors)
    return programs


class AotProgram:
    """A loaded program. A call takes the arguments of the compiled function and returns its result,
    which does not require grad. InputError names an argument that it refuses.

    `tensors` maps names to parameters, buffers and constants; writes to them stay in memory.
    """

    def __init__(self, path: str, manifest: Manifest, bound: Bound) -> None:
        self.path, self.name = path, manifest.spec.name
        names = [tensor.name for tensor in manifest.tensors]
        self.tensors: Mapping[str, torch.Tensor] = MappingProxyType(
            dict(zip(names, bound.tensors, strict=True))
        )
        parameters = manifest.spec.parameters
        self._binder = Binder(manifest.spec.names, sum(not p.keyword for p in parameters))
        self._count = self._binder.count
        self._bound: Callable[[tuple[Any, ...]], Any] = bound
        self._quick = bound.quick
        self._counts = bound.counts

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program. InputError names a refused argument; nothing is written then."""
        values = args
        if kwargs or len(args) != self._count:
            found = self._binder.values(args, kwargs)
            if found is None:
                raise InputError(self._binder.refusal(args, kwargs))
            values = found
        result = self._quick(values)
        return self._bound(values) if result is REFUSED else result

    def __reduce__(self) -> Never:
        raise CopyError(
            f"a loaded program is neither copied nor pickled: load its file again, in another "
            f"process too: kernelmill.aot.load({self.path!r})"
        )

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of its arguments; keyword-only ones come last."""
        return self._binder.names

    def report(self) -> dict[str, int]:
        """Return counters of calls and launches, and sizes in bytes. `without_...` names a private
        part of torch or another package that is not as expected, and is not used."""
        return {**summed(self._counts()), **counters()}

    def __repr__(self) -> str:
        return f"AotProgram({self.name}({', '.join(self.parameters)}), {self.path!r})"
