"""`kernelmill static`: compiles recorded operators, and packs them."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from kernelmill import static_kernels
from kernelmill.cli.folder import add_folder


def add_static(commands: Any) -> None:
    """Add `static` with its actions to the command's subparsers."""
    static = commands.add_parser("static", help="static kernels of recorded operators")
    actions = static.add_subparsers(required=True, metavar="ACTION")
    compile = actions.add_parser("compile", help="compile them into the kernel folder")
    build = actions.add_parser("build", help="compile them, and pack them as a .run file")
    for action in (compile, build):
        action.add_argument("path", help="a log of recorded operators, or a folder of documents")
        action.add_argument("--jobs", type=_jobs, default=0, help="default: one a processor")
        action.add_argument(
            "--target", default="native", help="native, x86-64-v2, -v3 or -v4; default: %(default)s"
        )
        add_folder(action)
    compile.set_defaults(command=compile_log)
    build.add_argument("--wheel", action="store_true", help="a wheel for pip instead")
    build.add_argument("--output", default=".", metavar="DIR", help="where the package goes")
    build.add_argument("--name", default="", help="of the package; default: static_kernel_TIME")
    build.set_defaults(command=build_package)


def _jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("expected a whole number above 0")
    return int(text)


def compile_log(options: argparse.Namespace) -> int:
    """Compile, print what was done. Returns 1 when an operator failed."""
    done = static_kernels.compile_log(options.path, options.jobs, options.target, options.folder)
    return _tell(done)


def build_package(options: argparse.Namespace) -> int:
    """Compile and pack, print what was done. Returns 1 when an operator failed."""
    done = static_kernels.build(
        options.path, options.output, wheel=options.wheel, name=options.name, jobs=options.jobs,
        target=options.target, folder=options.folder,
    )  # fmt: skip
    return _tell(done)


def _tell(done: static_kernels.Built) -> int:
    for operator, reason in done.failures:
        print(f"failed: {operator}: {reason}", file=sys.stderr)
    print(
        f"{done.operators} operators, {done.compiled} compiled now, {len(done.failures)} failed"
        + (f"; {done.path}" if done.path else "")
    )
    return 1 if done.failures else 0
