"""Where the tile unit is configured in assembly text: what would leave a function, or go to another
one, with tiles that the system has to save at each switch of threads."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LABEL = re.compile(r"^([.\w]+):")
_FUNCTION = re.compile(r"\t\.type\t([.\w]+),@function")
_TILE = re.compile(r"tile(?:zero|load|stored)|tdp")


def problems(assembly: str) -> list[str]:
    """What is wrong with the state of tiles in any function of it, on any path: returns and tail
    calls with a configuration loaded, tiles without one, jumps that cannot be followed."""
    return [f"{name}: {what}" for name, body in _functions(assembly) for what in _walk(body)]


def uses_tiles(assembly: str) -> bool:
    """Whether any instruction of it works on tiles."""
    return any(_TILE.match(line.strip()) for line in assembly.splitlines())


def _functions(assembly: str) -> Iterator[tuple[str, list[str]]]:
    lines = assembly.splitlines()
    for name in _FUNCTION.findall(assembly):
        start = lines.index(f"{name}:") if f"{name}:" in lines else _labelled(lines, name)
        end = next(n for n in range(start, len(lines)) if lines[n].startswith("\t.size\t"))
        yield name, lines[start:end]


def _labelled(lines: list[str], name: str) -> int:
    return next(n for n, line in enumerate(lines) if line.startswith(f"{name}:"))


def _walk(body: list[str]) -> list[str]:
    labels = {match[1]: n for n, line in enumerate(body) if (match := _LABEL.match(line))}
    found: list[str] = []
    seen: set[tuple[int, bool]] = set()
    pending = [(0, False)]
    while pending:
        place, loaded = pending.pop()
        if (place, loaded) in seen or place >= len(body):
            continue
        seen.add((place, loaded))
        name, _, operands = body[place].strip().partition("\t")
        if name == "ldtilecfg":
            loaded = True
        elif name == "tilerelease":
            loaded = False
        elif _TILE.match(name) and not loaded:
            found.append(f"{name} without a configuration")
        goes_on, targets = _next(name, operands, labels)
        leaves = name.startswith("ret") or (name.startswith("j") and not targets)
        if leaves and loaded:
            found.append(f"{name} {operands} with tiles".replace("  ", " "))
        if name.startswith("jmp") and "*" in operands:
            found.append(f"{name} {operands} cannot be followed")
        pending += [(target, loaded) for target in targets]
        if goes_on:
            pending.append((place + 1, loaded))
    return found


def _next(name: str, operands: str, labels: dict[str, int]) -> tuple[bool, list[int]]:
    """Whether the line below follows, and the lines of this function that it jumps to."""
    if name.startswith(("ret", "ud2")):
        return False, []
    if not name.startswith("j"):
        return True, []
    targets = [labels[operands]] if operands in labels else []
    return name != "jmp", targets
