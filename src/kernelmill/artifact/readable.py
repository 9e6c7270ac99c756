"""An entry as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmill.artifact.entry import Saved
from kernelmill.artifact.manifest import Manifest, path_of
from kernelmill.artifact.paths import text_of


def readable(saved: Saved) -> str:
    """Signature, key ingredients, dependences, graph, kernels, plan."""
    kernels = "\n".join(f"# {k.name} ({k.type})\n{k.text}" for k in saved.kernels)
    sections = {
        "signature": "\n".join(_signature(saved.manifest)),
        "key": "\n".join(f"{n} = {v}" for n, v in sorted(saved.manifest.ingredients.items())),
        "settings": "\n".join(f"{n} = {v}" for n, v in sorted(saved.manifest.state.items())),
        "packages": "\n".join(f"{n} = {v}" for n, v in sorted(saved.manifest.packages.items())),
        "code": "\n".join(_code(saved.manifest)),
        "read": "\n".join(f"{r.text()}: {r.kind} {r.found}" for r in saved.manifest.reads),
        "graph": saved.graphs,
        "kernels": kernels,
        "plan": saved.plans,
    }
    return "\n".join(f"==== {name} ====\n{text}\n" for name, text in sections.items())


def _signature(manifest: Manifest) -> Iterator[str]:
    yield f"{manifest.function}({', '.join(manifest.parameters)})"
    for number, entry in enumerate(manifest.inputs):
        size = f", size {entry[2]}" if entry[0] == "size" else ""
        yield f"input {number}: {text_of(path_of(entry))}{size}"
    yield f"returns {manifest.result}"
    for relation, left, right in manifest.conditions:
        yield f"where {left} {relation} {right}"
    for name, value in manifest.exact.items():
        yield f"where {name} == {value}"


def _code(manifest: Manifest) -> Iterator[str]:
    for use in manifest.code:
        yield f"{use.module}.{use.name or '(file)'} {use.digest}"
        yield from (
            f"  {name} = {value}" for name, value in use.globals.items() if value != "absent"
        )
