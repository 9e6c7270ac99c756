"""A small program, compiled, run and compared with eager. Imports torch."""

from __future__ import annotations

import tempfile
import time
from typing import Any

from kernelmill.cli.checks.finding import Section


def trial(torch: Any) -> Section:
    """Compile a product with an epilogue into a folder of its own; wrong where that fails."""
    from kernelmill.backend.entry import Backend
    from kernelmill.compiler.report import GraphReport
    from kernelmill.config import CompilerConfig

    section = Section("trial")
    config, reports = CompilerConfig(), list[GraphReport]()
    x, w = torch.arange(64.0).reshape(8, 8), torch.eye(8)
    with tempfile.TemporaryDirectory(prefix="kernelmill-doctor-") as folder:
        config.experimental_config.kernel_meta_dir = folder
        try:
            start = time.perf_counter()
            backend = Backend(config, on_compiled=lambda made: reports.append(made.report))
            with torch.no_grad():
                compiled = torch.compile(_model, backend=backend, fullgraph=True)
                result = compiled(x, w)
            section.facts["seconds"] = round(time.perf_counter() - start, 2)
        except Exception as error:
            section.wrong(
                f"a small program does not compile: {type(error).__name__}: {error}",
                "report it with the output of `kernelmill doctor --json`",
            )
            return section
    section.facts["kernels compiled"] = sum(report.compiled for report in reports)
    section.facts["ATen calls"] = sum(len(report.fallbacks) for report in reports)
    if not torch.equal(result, _model(x, w)):
        section.wrong(
            "a small program gives a wrong result", "report it with `kernelmill doctor --json`"
        )
    if not section.facts["kernels compiled"] or section.facts["ATen calls"]:
        section.slow(
            "a small program was not compiled as a whole",
            "KERNELMILL_LOGS=all kernelmill doctor says why",
        )
    return section


def _model(x: Any, w: Any) -> Any:
    return (x @ w).relu() + 1.0
