"""`kernelmill precompile`, `pull`, `pack` and `shared`: kernels of many models and machines."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelmill.cli.output import (
    FINE,
    FOUND,
    Folder,
    Json,
    check_writable,
    examples,
    print_result,
    print_text,
    user_output,
)
from kernelmill.core.errors import ConfigError
from kernelmill.core.text import counted

if TYPE_CHECKING:
    from kernelmill.fleet import Progress, Summary

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

Model = Annotated[str, typer.Argument(metavar="MODEL", help="The name of a job.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", show_default=False,
        help="The shared store. Default: KERNELMILL_REMOTE.",
    ),
]  # fmt: skip
Target = Annotated[
    str, typer.Option("--target", metavar="ISA", help="What the model was compiled for.")
]


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+)([smhd])", text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is no time; write 30d, 12h, 90m or 600s")
    return float(int(match[1]) * _UNITS[match[2]])


def add(app: typer.Typer) -> None:
    """Add the commands."""
    fill = "kernelmill precompile fleet.toml"
    app.command("precompile", epilog=examples(fill, f"{fill} --store redis://host:6379/0"))(
        precompile
    )
    app.command("pull", epilog=examples("kernelmill pull embedder"))(pull)
    app.command("pack", epilog=examples("kernelmill pack embedder embedder.tar"))(pack)
    shared = typer.Typer(no_args_is_help=True)
    clean = "kernelmill shared gc --older 30d --dry-run"
    app.add_typer(shared, name="shared", help="The store that hosts share.", epilog=examples(clean))
    shared.command("gc", epilog=examples(clean, "kernelmill shared gc --older 30d"))(collect)


def precompile(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Jobs, in TOML.")],
    store: Url = None,
    folder: Folder = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", metavar="N", min=1, help="Processes here. Default: one a processor."
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="A Dask scheduler, tcp://host:8786."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="ADDRESS", help="A Ray cluster, ray://host:10001 or auto."),
    ] = None,
    json: Json = False,
) -> int:
    """Compile the kernels of all jobs of a file; exit code 1 when one fails."""
    from kernelmill import fleet

    if sum(value is not None for value in (workers, dask, ray)) > 1:
        raise ConfigError("--workers, --dask and --ray exclude each other")
    jobs = fleet.read_jobs(file)
    with user_output(json), _executor(workers, dask, ray) as executor, _progress() as tell:
        done = fleet.precompile(jobs, executor, store, folder=folder, progress=tell)
    return _tell(done, len(jobs), json)


@contextmanager
def _executor(workers: int | None, dask: str | None, ray: str | None) -> Generator[Executor]:
    from kernelmill.fleet import LocalPool, RayExecutor

    if dask is not None:
        distributed = _library("distributed", "dask")
        with distributed.Client(dask) as client:
            yield client.get_executor()
    elif ray is not None:
        library = _library("ray", "ray")
        library.init(address=ray, log_to_driver=False)
        try:
            yield RayExecutor()
        finally:
            library.shutdown()
    else:
        with LocalPool(workers) as pool:
            yield pool


def _library(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(f"--{extra} needs pip install 'kernelmill[{extra}]'") from None


@contextmanager
def _progress() -> Generator[Callable[[Progress], None]]:
    """Draw on a terminal the work done, failed and left, the rate and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (
        TextColumn("compiling"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[more]}"),
    )
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None, more="")

        def tell(now: Progress) -> None:
            done = now.found + now.compiled + now.failed
            left = "" if now.seconds_left is None else f", {now.seconds_left:.0f} s left"
            failed = f", {now.failed} failed" if now.failed else ""
            more = f"{now.rate:.0f}/s{left}{failed}"
            bar.update(task, completed=done, total=done + now.left, more=more)

        yield tell


def _tell(done: Summary, jobs: int, json: bool) -> int:
    for failure in () if json else done.failures:
        print_text(f"failed: {failure.what}: {failure.reason}", file=sys.stderr)
    if done.unshared and not json:
        print_text(
            f"only in the folder of this machine: {counted(done.unshared, 'entry')}; run it again "
            "when the shared store serves",
            file=sys.stderr,
        )
    print_result(
        json,
        done,
        f"{len(done.jobs)} of {counted(jobs, 'job')}: {done.found} found, "
        f"{done.compiled} compiled, {len(done.failures)} failed in {done.seconds:.1f} s",
    )
    return FOUND if done.failures or done.unshared else FINE


def pull(
    model: Model, store: Url = None, target: Target = "native", folder: Folder = None,
    json: Json = False,
) -> int:  # fmt: skip
    """Fetch all that a model needs into the kernel folder; exit code 1 when some is missing."""
    from kernelmill import fleet

    done = fleet.pull(model, store, target=target, folder=folder)
    print_result(
        json,
        done,
        f"{model}: {done.present} there, {done.fetched} fetched "
        f"({counted(done.bytes, 'byte')}), {len(done.missing)} missing",
    )
    return FOUND if done.missing else FINE


def pack(
    model: Model,
    archive: Annotated[str, typer.Argument(metavar="FILE", help="The archive to write.")],
    store: Url = None,
    target: Target = "native",
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Write all that a model needs into one file for `kernelmill cache import`."""
    from kernelmill import fleet

    check_writable(archive)
    count = fleet.pack(model, archive, store, target=target, folder=folder)
    text = f"packed {counted(count, 'kernel')} of {model} into {archive}"
    print_result(json, {"model": model, "packed": count, "file": archive}, text)


def collect(
    older: Annotated[
        float,
        typer.Option(
            "--older", parser=_seconds, metavar="TIME",
            help="Since the last use (Redis) or write: 30d, 12h.",
        ),
    ],
    store: Url = None,
    manifests: Annotated[
        float | None,
        typer.Option(
            "--manifests", parser=_seconds, metavar="TIME", show_default=False,
            help="Remove manifests older than this too.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Remove kernels that no manifest names and that nobody has used for long."""
    from kernelmill import fleet
    from kernelmill.store.remote import named_shared

    shared = named_shared(store)
    done = fleet.clean(shared, older, manifests, dry_run)
    print_result(
        json,
        done,
        f"{'would remove' if dry_run else 'removed'} {counted(done.removed, 'kernel')} and "
        f"{counted(done.manifests, 'manifest')}, {counted(done.bytes, 'byte')}; "
        f"{counted(done.left, 'kernel')} left in {shared.shown}",
    )
