"""`kernelmill cache`: the folder of compiled kernels, and kept methods."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from kernelmill.cli.output import (
    FINE,
    FOUND,
    Folder,
    Json,
    check_writable,
    examples,
    print_json,
    print_result,
    print_text,
    writable_folder,
)
from kernelmill.core.errors import StoreError
from kernelmill.core.text import counted
from kernelmill.store import default_folders
from kernelmill.store.upkeep import (
    collect,
    explain_difference,
    export_archive,
    import_archive,
    parse_size,
    survey,
)


def add(app: typer.Typer) -> None:
    """Add `cache` with its actions."""
    actions = typer.Typer(no_args_is_help=True)
    app.add_typer(
        actions, name="cache", help="The folder of compiled kernels.",
        epilog=examples(
            "kernelmill cache ls", "kernelmill cache verify",
            "kernelmill cache gc --max-size 2G",
        ),
    )  # fmt: skip
    one = "kernelmill cache "
    actions.command("ls", epilog=examples(f"{one}ls", f"{one}ls --json"))(list_entries)
    actions.command("verify", epilog=examples(f"{one}verify"))(verify)
    actions.command("gc", epilog=examples(f"{one}gc --max-size 500M"))(collect_garbage)
    actions.command("export", epilog=examples(f"{one}export kernels.tar"))(export)
    actions.command("import", epilog=examples(f"{one}import kernels.tar"))(import_kernels)
    actions.command("why", epilog=examples(f"{one}why Map_3f2a Map_91c0"))(why)
    actions.command("show", epilog=examples(f"{one}show ~/.cache/kernelmill"))(show)


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Name = Annotated[
    str, typer.Argument(metavar="KERNEL", help="Its name, or the beginning of its digest.")
]
Archive = Annotated[str, typer.Argument(metavar="FILE", help="The archive.")]
MaxSize = Annotated[
    int, typer.Option("--max-size", parser=_size, metavar="SIZE", help="2G, 500M, ...")
]


def _read_from(folder: str | None) -> Sequence[str]:
    """Return the named folder, which must exist, or all default ones."""
    if folder and not os.path.isdir(folder):
        raise StoreError(f"no folder {folder}")
    return (folder,) if folder else default_folders()


def list_entries(folder: Folder = None, json: Json = False) -> None:
    """List the kernels, with the size of each in bytes."""
    found = {os.path.abspath(each): survey(each) for each in _read_from(folder)}
    data = [{"folder": path, "kernels": each.rows} for path, each in found.items()]
    lines: list[str] = []
    for path, each in found.items():
        lines += [f"{row.bytes:>10}  {row.state:10}  {row.name}" for row in each.rows]
        size = counted(sum(row.bytes for row in each.rows), "byte")
        lines.append(f"{counted(len(each.rows), 'kernel')}, {size} of objects in {path}")
    print_result(json, data, *lines)


def verify(folder: Folder = None, json: Json = False) -> int:
    """Check every file; exit code 1 when one is damaged or cannot be read."""
    found = {os.path.abspath(each): survey(each) for each in _read_from(folder)}
    rows = [row for each in found.values() for row in each.rows]
    states = ("ok", "incomplete", "bad", "unread")
    data = [
        {
            "folder": path, **{state: each.count(state) for state in states},
            "damaged": [row for row in each.rows if row.state == "bad"],
            "leftovers": each.leftovers,
        }
        for path, each in found.items()
    ]  # fmt: skip
    lines: list[str] = []
    for path, each in found.items():
        lines += [f"{row.state}: {row.reason}" for row in each.rows if row.reason]
        lines += [f"left over, may be deleted: {leftover}" for leftover in each.leftovers]
        told = [state for state in states if state != "unread" or each.count(state)]
        counts = ", ".join(f"{each.count(state)} {state}" for state in told)
        lines.append(f"{counts}, {len(each.leftovers)} left over in {path}")
    print_result(json, data, *lines)
    return FOUND if any(row.state in ("bad", "unread") for row in rows) else FINE


def collect_garbage(max_size: MaxSize, folder: Folder = None, json: Json = False) -> None:
    """Remove least recently used kernels that no process uses, until SIZE is left."""
    path = os.path.abspath(_read_from(folder)[-1])
    done = collect(path, max_size)
    print_result(
        json,
        {"folder": path, **vars(done)},
        f"removed {counted(done.removed, 'kernel')}, {counted(done.removed_bytes, 'byte')}, and "
        f"{counted(done.leftovers, 'leftover')}; {counted(done.left_bytes, 'byte')} left "
        f"({counted(done.in_use, 'kernel')} in use) in {path}",
    )


def export(file: Archive, folder: Folder = None, json: Json = False) -> None:
    """Write all good kernels into one tar file."""
    check_writable(file)
    count = export_archive(_read_from(folder)[-1], file)
    text = f"exported {counted(count, 'kernel')} to {file}"
    print_result(json, {"exported": count, "file": file}, text)


def import_kernels(file: Archive, folder: Folder = None, json: Json = False) -> int:
    """Take over the kernels of such a file, each checked; exit code 1 when some are refused."""
    path = os.path.abspath(writable_folder(folder))
    done = import_archive(path, file)
    print_result(
        json,
        {"folder": path, **vars(done)},
        *(f"refused: {line}" for line in done.refused),
        f"imported {counted(done.added, 'kernel')}, {done.present} already there, "
        f"{len(done.refused)} refused in {path}",
    )
    return FOUND if done.refused else FINE


def why(first: Name, second: Name, folder: Folder = None, json: Json = False) -> None:
    """Say why two kernels are two: the ingredients that differ, and lines only one has."""
    differences = explain_difference(_read_from(folder)[-1], first, second)
    lines: list[str] = []
    for each in differences:
        lines.append(f"{each.ingredient} differs:")
        lines += [f"  - {line}" for line in each.first]
        lines += [f"  + {line}" for line in each.second]
    lines = lines or ["the same in every ingredient"]
    print_result(json, {"first": first, "second": second, "differs": differences}, *lines)


def show(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="An entry's .kmill, the folder of a method, or one above."
        ),
    ],
    json: Json = False,
) -> None:
    """Show what cache_compile has kept, as text."""
    from kernelmill.artifact.readable import data_of
    from kernelmill.inference.cached_text import cached_artifacts, readable_cache

    if json:
        found = cached_artifacts(path)
        print_json([{"file": file, **data_of(artifact)} for file, artifact in found])
    else:
        print_text(readable_cache(path, print_output=False))
