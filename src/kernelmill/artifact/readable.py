"""Conversion of an artifact to text and to JSON-able data; needs no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from kernelmill.artifact.container import Artifact
from kernelmill.artifact.manifest import Manifest
from kernelmill.artifact.paths import text_of
from kernelmill.core import knobs
from kernelmill.core.target.isa import host_isa, machine_isa, parse_isa, why_not_here
from kernelmill.core.version import ABI_VERSION


def readable(artifact: Artifact, everything: bool = True) -> str:
    """Return signature, key, dependencies, whether the objects run here, tensors and kernels as
    text; with `everything` the texts of graph, kernels and plan too."""
    facts = data_of(artifact, everything)
    del facts["name"]  # the signature has it
    texts = {name.replace("_", " "): _text(name, value) for name, value in facts.items()}
    return "\n".join(f"==== {name} ====\n{text}\n" for name, text in texts.items())


def data_of(artifact: Artifact, everything: bool = True) -> dict[str, Any]:
    """Return the same facts as `readable`, of JSON's types. Sizes and offsets are in bytes."""
    manifest, guards = artifact.manifest, artifact.manifest.guards
    sections = {} if artifact.file is None else artifact.file.sections
    facts: dict[str, Any] = {
        "name": manifest.spec.name,
        "signature": list(_signature(manifest)),
        "key": dict(sorted(manifest.ingredients.items())),
        "this_machine": other_machine(manifest.ingredients) or "can run it as it is",
        "settings": dict(sorted(guards.settings.items())),
        "packages": dict(sorted(guards.packages.items())),
        "code": [asdict(use) for use in guards.code],
        "owned": list(guards.lines),
        "tensors": [
            {n: getattr(tensor, n) for n in ("name", "role", "dtype", "shape", "offset")}
            for tensor in manifest.tensors
        ],
        "sections": {name: size for name, (_, size, _) in sections.items()},
    }  # fmt: skip
    named = [{"name": k.name, "type": k.type} for k in artifact.kernels]
    if not everything:
        return facts | {"kernels": named}
    kernels = [{**n, "text": k.text} for n, k in zip(named, artifact.kernels, strict=True)]
    return facts | {"graph": artifact.graphs, "kernels": kernels, "plan": artifact.plans}


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        row = "{}: {} bytes" if name == "sections" else "{} = {}"
        return "\n".join(row.format(*pair) for pair in value.items())
    return "\n".join(map(_ROWS.get(name, str), value))


def _code(use: Mapping[str, Any]) -> str:
    known = (f"\n  {n} = {value}" for n, value in use["globals"].items() if value != "absent")
    return f"{use['module']}.{use['name'] or '(file)'} {use['digest']}{''.join(known)}"


def _kernel(kernel: Mapping[str, str]) -> str:
    title = f"{kernel['name']} ({kernel['type']})"
    return f"# {title}\n{kernel['text']}" if "text" in kernel else title


_ROWS: Mapping[str, Callable[[Any], str]] = {
    "code": _code,
    "tensors": lambda t: "{name}: {role} {dtype}{0} at {offset}".format([*t["shape"]], **t),
    "kernels": _kernel,
}
"""Formats of one row of the facts that have rows."""


def other_machine(ingredients: Mapping[str, str]) -> str:
    """Return why this process cannot run the objects; "" where it can. The instruction set named by
    KERNELMILL_TARGET is a limit here, as for the compiler."""
    made_for, abi = ingredients.get("kernel.isa", ""), ingredients.get("kernel.abi")
    host, reasons = host_isa(), list[str]()
    if abi != ABI_VERSION:
        reasons.append(f"its calling convention is {abi}, this one's {ABI_VERSION}")
    try:
        isa = parse_isa(made_for)
    except ValueError as error:
        return "; ".join((f"its instruction set: {error}", *reasons))
    reason = why_not_here(isa)
    if not reason and host != machine_isa() and not host.runs(isa):
        reason = f"{knobs.TARGET.name} is {knobs.TARGET.get()}"
    if reason:
        reasons.insert(0, f"its instruction set is {isa.name}, and {reason}")
    return "; ".join(reasons)


def _signature(manifest: Manifest) -> Iterator[str]:
    spec = manifest.spec
    names, by_name = list(spec.names), sum(p.keyword for p in spec.parameters)
    if by_name:
        names.insert(len(names) - by_name, "*")
    yield f"{spec.name}({', '.join(names)})"
    for guard in spec.checks:
        yield f"{guard.text()}: {guard.kind} {guard.found}"
    for number, source in enumerate(spec.inputs):
        what = source.what and f", from {source.what}"
        yield f"input {number}: {text_of(source.path)}{what}"
    yield f"returns {json.dumps(spec.result)}"
    for effect in spec.effects:
        yield effect.text()
    if gears := manifest.gears:
        read = (f"{text_of(spec.inputs[number].path)}[{axis}]" for number, axis in gears.sources)
        yield f"gears ({', '.join(read)}): {', '.join(str(sizes) for sizes, _ in gears.table)}"
        yield "other sizes run a program for all" if gears.otherwise >= 0 else "no other sizes"
    for limit in spec.limits:
        yield f"{limit.where}: {limit.text()}"
    for relation, left, right in spec.conditions:
        yield f"where {left} {relation} {right}"
    for name, value in manifest.options.items():
        yield f"config.{name} = {value!r}"
