"""`kernelmill explain` and `kernelmill trace`: a report on a model, and the timeline of a call."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelmill.cli.output import (
    FINE,
    FOUND,
    Dynamic,
    FactoryName,
    Json,
    Mode,
    Settings,
    Threads,
    check_writable,
    config_of,
    examples,
    on_threads,
    print_indented,
    print_json,
    print_result,
    print_text,
    text_of,
    user_output,
    wide_console,
)
from kernelmill.core.errors import ConfigError, KernelmillError
from kernelmill.core.factory import load, user_code
from kernelmill.core.text import counted

if TYPE_CHECKING:
    from kernelmill.config import CompilerConfig
    from kernelmill.report import Explanation

_Gradients = Annotated[
    bool, typer.Option("--gradients", help="Call with gradients enabled, as in training.")
]


def add(app: typer.Typer) -> None:
    """Add `explain` and `trace`."""
    app.command(
        epilog=examples(
            "kernelmill explain model.py:make",
            "kernelmill explain model.py:make -o report.html",
            "kernelmill explain shop.models:ranker --json",
            "kernelmill explain model.py:make --against before.json",
            "kernelmill explain model.py:make --dynamic",
        )
    )(explain)
    app.command(
        epilog=examples(
            "kernelmill trace model.py:make",
            "kernelmill trace model.py:make -o call.json",
            "kernelmill trace model.py:make --threads 1",
        )
    )(trace)


def explain(
    factory: FactoryName,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write a page of HTML here too."),
    ] = None,
    no_measure: Annotated[
        bool,
        typer.Option(
            "--no-measure", help="Leave out timing calls in turns with eager, and kernels."
        ),
    ] = False,
    gradients: _Gradients = False,
    dynamic: Dynamic = None,
    mode: Mode = None,
    threads: Threads = None,
    settings: Settings = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", metavar="FILE", help="Compare with an earlier report: what --json printed."
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Compile a model and say what became of it, and where the time of a call goes.

    Exit code 1 when nothing of it was compiled, or a call fails while it is measured.
    """
    if output is not None:
        check_writable(output)
    config, before = config_of(mode, settings), None if against is None else _report_in(against)
    with user_output(json), on_threads(threads):
        found = _explained(factory, gradients, not no_measure, config, dynamic)
    if output is not None:
        found.save(output)
    if json:
        print_json(found.as_dict())
    elif before is None:
        _show(found)
    else:
        print_text(found.changes_since(before))
    return FOUND if found.call.error or not found.is_compiled else FINE


def _report_in(file: Path) -> Any:
    """Return the report in a file. ConfigError for another file."""
    from kernelmill.report.sums import changes

    try:
        report = json_module.loads(text_of(file))
        changes(report, report)
    except ValueError as error:
        raise ConfigError(f"--against {file} is no report: {error}") from None
    return report


def _show(found: Explanation) -> None:
    """Print the report; on a terminal the line that compares with eager has a colour."""
    from rich.text import Text

    from kernelmill.report.text import call_lines

    console = wide_console()
    verdict, *_ = call_lines(found.call) or [""]
    colour = {"faster": "bold green", "slower": "bold red"}.get(found.call.outcome, "")
    for line in str(found).split("\n"):
        print_indented(console, Text(line, colour if line == verdict else ""))


def trace(
    factory: FactoryName,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write it.")
    ] = Path("trace.json"),
    gradients: _Gradients = False,
    dynamic: Dynamic = None,
    mode: Mode = None,
    threads: Threads = None,
    settings: Settings = None,
    json: Json = False,
) -> int:
    """Write a call's kernels as a trace for ui.perfetto.dev and chrome://tracing.

    Exit code 1, and no file, when nothing of the model was compiled or a call fails.
    """
    check_writable(output)
    config = config_of(mode, settings)
    with user_output(json), on_threads(threads):
        found = _explained(factory, gradients, True, config, dynamic)
    why = found.call.error or ("" if found.is_compiled else "nothing of the model was compiled")
    if why:
        print_text(f"no trace: {why}", file=sys.stderr)
        return FOUND
    output.write_text(json_module.dumps(found.trace()))
    threads, parts = len(found.call.threads), len(found.call.timeline)
    print_result(
        json,
        {"file": str(output), "threads": threads, "parts": parts},
        f"{output}: a call on {counted(threads, 'thread')}, {counted(parts, 'part')}",
    )
    return FINE


def _explained(
    factory: str, gradients: bool, measure: bool, config: CompilerConfig, dynamic: bool | None
) -> Explanation:
    # Imports torch, which the command's help does without.
    import torch

    import kernelmill

    made = load(factory)
    failed = user_code(f"{factory}: the call failed", KernelmillError, OSError)
    with torch.set_grad_enabled(gradients), failed:
        return kernelmill.explain(
            made.model, *made.args, compiler_config=config, dynamic=dynamic, measure=measure,
            **made.kwargs,
        )  # fmt: skip
