"""`kernelmill bench`: a user's model in eager, with kernelmill and with Inductor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
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
    config_of,
    examples,
    on_threads,
    print_json,
    user_output,
    wide_console,
)
from kernelmill.core.errors import ConfigError
from kernelmill.core.factory import load
from kernelmill.core.text import counted

if TYPE_CHECKING:
    from kernelmill.cli.race import Race, Standing

_TITLES = ("", "ms a call", "x eager", "GFLOP/s", "error", "quartiles", "first call")
_NARROW_COLUMNS, _WIDE = 5, 80


def add(app: typer.Typer) -> None:
    """Add `bench`."""
    app.command(
        epilog=examples(
            "kernelmill bench model.py:make",
            "kernelmill bench package.models:small --threads 1",
            "kernelmill bench model.py:make --no-inductor --json",
            "kernelmill bench model.py:make --mode reduce-overhead",
            "kernelmill bench model.py:make --config target=x86-64-v2",
        )
    )(bench)


def bench(
    model: FactoryName,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", metavar="N", min=0.0, help="For all measuring; compiles come first."
        ),
    ] = 5.0,
    dynamic: Dynamic = None,
    mode: Mode = None,
    threads: Threads = None,
    settings: Settings = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose schedules by measuring; compiles take longer.")
    ] = False,
    no_inductor: Annotated[
        bool,
        typer.Option("--no-inductor", help="Leave out Inductor, which needs a C++ compiler."),
    ] = False,
    json: Json = False,
) -> int:
    """Measure a model without gradients: eager, kernelmill, Inductor, in turns.

    Says the medians, how far results are from eager's, and what to look at where kernelmill is the
    slower one. Exit code 1 when it did not compile the model or a result is wrong.
    """
    config = config_of(mode, settings)
    if tune:
        if config.mode != "max-autotune":
            raise ConfigError("--tune goes with --mode max-autotune")
        config.aoe_config.aoe_mode = "2"
    with on_threads(threads):
        with user_output(json):
            factory = load(model)
            from kernelmill.cli.race import race, why_no_inductor  # late: errors are shown at once

            lacking = "not asked for" if no_inductor else why_no_inductor()
            found = race(factory, seconds, config, lacking, dynamic)
        remarks = list(_remarks(found, bool(getattr(factory.model, "training", False))))
        if json:
            print_json(_data(model, found, remarks))
        else:
            _show(model, found, remarks)
    return FINE if _is_fine(found) else FOUND


def _is_fine(found: Race) -> bool:
    ours = found.named("kernelmill")
    compiled = found.captured > len(found.refused)
    return ours is not None and compiled and (ours.agrees or not found.repeats)


def ratio(found: Race, standing: Standing) -> float:
    """Return the speed relative to eager; 0 for a contestant that was not measured."""
    eager = found.named("eager")
    return eager.seconds / standing.seconds if eager and standing.seconds else 0.0


def _data(name: str, found: Race, remarks: list[str]) -> dict[str, Any]:
    import torch

    from kernelmill.core.target.isa import host_isa, processor_name

    return {
        "model": name, "processor": processor_name(), "isa": str(host_isa()),
        "threads": torch.get_num_threads(), "operations": found.operations,
        "contestants": [
            {
                **asdict(each), "ratio": ratio(found, each),
                "gflops": _gflops(found, each) or None,
            }
            for each in found.standings
        ],
        "graphs": found.captured, "refused": found.refused, "graph_breaks": found.breaks,
        "kernels": sum(len(report.kernels) for report in found.reports),
        "aten_calls": [each for report in found.reports for each in report.fallbacks],
        "remarks": remarks,
    }  # fmt: skip


def _gflops(found: Race, standing: Standing) -> float:
    return found.operations / standing.seconds / 1e9 if standing.seconds else 0.0


def _remarks(found: Race, training: bool) -> Iterator[str]:
    """Return remarks on the results, most important first."""
    ours = found.named("kernelmill")
    if not found.captured:
        yield "nothing of the model was captured: torch.compile(fullgraph=True) says why"
    for reason in dict.fromkeys(found.refused):
        yield f"a graph runs in torch as a whole: {reason}"
    if not found.repeats:
        yield (
            "two calls of eager differ (the model keeps state, or draws random numbers by itself): "
            "errors say nothing"
        )
    elif ours and not ours.agrees:
        yield "the result differs from eager's: please report it with the model"
    if training:
        yield "the model is in training mode: for inference, call eval() in the factory"
    if ours and ratio(found, ours) < 1.0:
        yield from _slower(found, ours)


def _slower(found: Race, ours: Standing) -> Iterator[str]:
    eager = found.named("eager")
    assert eager is not None
    if ours.quartiles[0] < eager.quartiles[1]:
        yield "the measurements overlap: the machine may be busy, try --seconds 30"
    yield from found.advice
    if found.breaks:
        places = counted(len(found.breaks), "place")
        yield f"Dynamo breaks the graph at {places}: {found.breaks[0]}"
    calls = [operator for report in found.reports for operator, _, _ in report.fallbacks]
    if calls:
        names = ", ".join(dict.fromkeys(calls))
        yield f"{len(calls)} operators run in ATen, outside of kernels: {names}"
    if eager.seconds < 50e-6:
        yield "a call takes microseconds, most of them Dynamo's guards: see cache_compile and aot"
    yield "`kernelmill doctor` looks at threads and system; --tune measures schedules"


def _show(name: str, found: Race, remarks: list[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    data = _data(name, found, remarks)
    console = wide_console()
    threads = counted(data["threads"], "thread")
    console.print(Text(f"{name} on {data['processor'] or data['isa']}, {threads}"))
    if found.operations:
        console.print(Text(f"{found.operations / 1e9:.3g} GFLOP a call in products"))
    table = Table(box=None, pad_edge=False)
    # On a narrow terminal the last columns are left out, and no number is cut.
    count = len(_TITLES) if console.width >= _WIDE else _NARROW_COLUMNS
    for title in _TITLES[:count]:
        table.add_column(title, justify="left" if not title else "right", no_wrap=True)
    for each in found.standings:
        if not each.refused:
            table.add_row(*_row(found, each)[:count])
    console.print(table)
    for each in found.standings:
        if each.refused:
            console.print(Text(f"{each.name} was not measured: {each.refused}"))
    for remark in remarks:
        console.print(Text(f"look at: {remark}"))


def _row(found: Race, each: Standing) -> list[str]:
    low, high = (f"{value * 1e3:.3g}" for value in each.quartiles)
    is_eager = each.name == "eager"
    return [
        each.name,
        f"{each.seconds * 1e3:.3g}",
        "" if is_eager else f"{ratio(found, each):.2f}",
        f"{_gflops(found, each):.3g}" if found.operations else "",
        "" if is_eager else f"{each.error:.1e}",
        f"{low}-{high}",
        "" if is_eager else f"{each.first_call:.1f} s",
    ]
