"""A compiled file as text for people; needs no torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from kernelmill.aot.file import open_file
from kernelmill.aot.manifest import Manifest, read_manifest


def info(path: str | os.PathLike[str], everything: bool = False) -> str:
    """What is in a file of `kernelmill.aot.compile`, all of it checked. With `everything` the
    graph, the kernels and the plan too. Raises as `kernelmill.aot.load` does."""
    file = open_file(path)
    manifest = read_manifest(file.text("manifest"))
    kernels = json.loads(file.text("kernels"))
    for section in ("objects", "weights", "packed"):
        file.section(section)
    sections = {
        "signature": "\n".join(_signature(manifest)),
        "made with": "\n".join(f"{n} = {v}" for n, v in sorted(manifest.ingredients.items())),
        "weights": "\n".join(_weights(manifest)),
        "sections": "\n".join(
            f"{name}: {size} bytes" for name, (_, size, _) in file.sections.items()
        ),
    }
    if everything:
        sections["graph"] = file.text("graph")
        sections["kernels"] = "\n".join(
            f"# {name} ({kind})\n{text}" for name, kind, text in kernels
        )
        sections["plan"] = file.text("plan")
    else:
        sections["kernels"] = "\n".join(f"{name} ({kind})" for name, kind, _ in kernels)
    return "\n".join(f"==== {name} ====\n{text}\n" for name, text in sections.items())


def _signature(manifest: Manifest) -> Iterator[str]:
    names = [parameter.name for parameter in manifest.parameters]
    keywords = [parameter.name for parameter in manifest.parameters if parameter.keyword]
    if keywords:
        names.insert(len(names) - len(keywords), "*")
    yield f"{manifest.name}({', '.join(names)})"
    for leaf in manifest.leaves:
        yield f"{leaf.name}: {leaf.kind}{f' {leaf.found}' if leaf.found else ''}"
    yield f"returns {json.dumps(manifest.result)}"
    for limit in manifest.limits:
        yield f"{limit.where}: {limit.low} to {'any' if limit.high is None else limit.high}"
    for relation, left, right in manifest.conditions:
        yield f"where {left} {relation} {right}"
    for name, value in manifest.options.items():
        yield f"config.{name} = {value!r}"


def _weights(manifest: Manifest) -> Iterator[str]:
    for weight in manifest.weights:
        shape = ", ".join(map(str, weight.shape))
        yield f"{weight.name}: {weight.role} {weight.dtype}[{shape}] at {weight.offset}"
