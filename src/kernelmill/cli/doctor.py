"""`kernelmill doctor`: checks the installation, and finds what is slow on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from kernelmill.cli.checks import storage, system, threads
from kernelmill.cli.checks.finding import Section
from kernelmill.cli.checks.versions import versions
from kernelmill.cli.output import (
    FINE,
    FOUND,
    Folder,
    Json,
    examples,
    print_indented,
    print_json,
    wide_console,
)
from kernelmill.core.text import counted


def add(app: typer.Typer) -> None:
    """Add `doctor`."""
    shown = examples("kernelmill doctor", "kernelmill doctor --quick", "kernelmill doctor --json")
    app.command(epilog=shown)(doctor)


def doctor(
    quick: Annotated[
        bool, typer.Option("--quick", help="Only what needs no torch: a few milliseconds.")
    ] = False,
    folder: Folder = None,
    json: Json = False,
) -> int:
    """Check versions, processor, threads, folders and system, and say what is slow here.

    Each finding says what to do about it. Exit code 1 if something is wrong, but not if it is only
    slow.
    """
    sections = list(_sections(quick, folder))
    counts = {
        level: sum(finding.level == level for each in sections for finding in each.findings)
        for level in ("wrong", "slow", "note")
    }
    if json:
        print_json({"sections": sections, **counts})
    else:
        _show(sections, counts)
    return FOUND if counts["wrong"] else FINE


def _sections(quick: bool, folder: str | None) -> Iterator[Section]:
    yield versions()
    isa, cores, permitted = system.processor(), threads.processors(), system.system()
    torch = None if quick else _torch(cores)
    if torch is not None:
        system.figures(isa, folder)
        threads.team(cores, torch)
        system.memory_watch(permitted)
    yield from (isa, cores, storage.environment(), storage.store(folder), permitted)
    if torch is not None:
        from kernelmill.cli.checks.trial import trial
        from kernelmill.cli.checks.versions import internals

        yield internals()
        yield trial(torch)


def _torch(section: Section) -> Any:
    try:
        import torch
    except Exception as error:
        section.wrong(
            f"torch does not import: {type(error).__name__}: {error}",
            "python -c 'import torch' shows the whole error; install torch anew",
        )
        return None
    return torch


def _show(sections: list[Section], counts: dict[str, int]) -> None:
    from rich.text import Text

    console = wide_console()
    styles = {"wrong": "bold red", "slow": "yellow", "note": "cyan"}
    for section in sections:
        console.print(Text(section.name, style="bold"))
        for name, value in section.facts.items():
            print_indented(console, Text(f"  {name}: {_plain(value)}"))
        for finding in section.findings:
            level = f"{finding.level}: ", styles[finding.level]
            print_indented(console, Text.assemble("  ", level, finding.what))
            print_indented(console, Text(f"      do: {finding.do}"))
    console.print(
        Text(f"{counts['wrong']} wrong, {counts['slow']} slow, {counted(counts['note'], 'note')}")
    )


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) or "none"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
