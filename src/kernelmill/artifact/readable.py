"""An artifact as text for people and as data for programs; needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from kernelmill.artifact.container import Artifact
from kernelmill.artifact.manifest import Guards, Manifest
from kernelmill.artifact.paths import text_of
from kernelmill.core.isa import parse_isa, why_not_here


def readable(artifact: Artifact, everything: bool = True) -> str:
    """Signature, what it was made with and depends on, whether its objects run here, tensors,
    kernels; with `everything` the texts of graph, kernels and plan too."""
    manifest, guards = artifact.manifest, artifact.manifest.guards
    parts: dict[str, Iterable[str]] = {
        "signature": _signature(manifest),
        "key": _named(manifest.ingredients),
        "this machine": [_here(manifest)],
        "settings": _named(guards.settings),
        "packages": _named(guards.packages),
        "code": _code(guards),
        "read": (f"{r.text()}: {r.kind} {r.found}" for r in guards.reads),
        "tensors": _tensors(manifest),
    }
    if artifact.file is not None:
        sizes = artifact.file.sections.items()
        parts["sections"] = (f"{name}: {size} bytes" for name, (_, size, _) in sizes)
    kernels = artifact.kernels
    if everything:
        parts["graph"] = [artifact.graphs]
        parts["kernels"] = (f"# {k.name} ({k.type})\n{k.text}" for k in kernels)
        parts["plan"] = [artifact.plans]
    else:
        parts["kernels"] = (f"{k.name} ({k.type})" for k in kernels)
    texts = {name: "\n".join(lines) for name, lines in parts.items()}
    return "\n".join(f"==== {name} ====\n{text}\n" for name, text in texts.items())


def data_of(artifact: Artifact, everything: bool = True) -> dict[str, Any]:
    """The same facts as `readable`, of JSON's types. Sizes and offsets are in bytes."""
    manifest, guards = artifact.manifest, artifact.manifest.guards
    file, kernels = artifact.file, [{"name": k.name, "type": k.type} for k in artifact.kernels]
    found: dict[str, Any] = {
        "name": manifest.spec.name,
        "signature": list(_signature(manifest)),
        "key": dict(manifest.ingredients),
        "this_machine": _here(manifest),
        "settings": dict(guards.settings),
        "packages": dict(guards.packages),
        "code": [asdict(use) for use in guards.code],
        "read": [{"what": r.text(), "kind": r.kind, "found": r.found} for r in guards.reads],
        "tensors": [
            {"name": t.name, "role": t.role, "dtype": t.dtype, "shape": t.shape, "offset": t.offset}
            for t in manifest.tensors
        ],
        "sections": {} if file is None else {n: size for n, (_, size, _) in file.sections.items()},
        "kernels": kernels,
    }  # fmt: skip
    if everything:
        for kernel, saved in zip(kernels, artifact.kernels, strict=True):
            kernel["text"] = saved.text
        found |= {"graph": artifact.graphs, "plan": artifact.plans}
    return found


def _named(values: Mapping[str, str]) -> Iterator[str]:
    return (f"{name} = {value}" for name, value in sorted(values.items()))


def _here(manifest: Manifest) -> str:
    """Whether this machine, and this process on it, can run the objects."""
    try:
        isa = parse_isa(manifest.ingredients.get("kernel.isa", ""))
    except ValueError as error:
        return f"its instruction set: {error}"
    return why_not_here(isa) or "can run it as it is"


def _signature(manifest: Manifest) -> Iterator[str]:
    spec = manifest.spec
    names, by_name = list(spec.names), sum(p.keyword for p in spec.parameters)
    if by_name:
        names.insert(len(names) - by_name, "*")
    yield f"{spec.name}({', '.join(names)})"
    for guard in spec.checks:
        yield f"{guard.text()}: {guard.kind} {guard.found}"
    for number, source in enumerate(spec.inputs):
        size = "" if source.axis < 0 else f", from size {source.axis}"
        yield f"input {number}: {text_of(source.path)}{size}"
    yield f"returns {json.dumps(spec.result)}"
    for limit in spec.limits:
        yield f"{limit.where}: {limit.text()}"
    for relation, left, right in spec.conditions:
        yield f"where {left} {relation} {right}"
    for name, value in manifest.options.items():
        yield f"config.{name} = {value!r}"


def _code(guards: Guards) -> Iterator[str]:
    for use in guards.code:
        yield f"{use.module}.{use.name or '(file)'} {use.digest}"
        yield from (
            f"  {name} = {value}" for name, value in use.globals.items() if value != "absent"
        )


def _tensors(manifest: Manifest) -> Iterator[str]:
    for tensor in manifest.tensors:
        shape = ", ".join(map(str, tensor.shape))
        yield f"{tensor.name}: {tensor.role} {tensor.dtype}[{shape}] at {tensor.offset}"
