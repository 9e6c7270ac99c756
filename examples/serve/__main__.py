"""`python -m examples.serve`: the server, or the warm-up that fills its folders.

    python -m examples.serve                      # two workers on port 8000
    python -m examples.serve --workers 4 --port 80
    python -m examples.serve --warm-up            # compile what is missing, and end

SIGTERM and Ctrl-C stop it: requests under way are answered first.
"""

from __future__ import annotations

import argparse
import os
import tempfile

_SILENT_SECONDS = 60
"""A worker that says nothing for so long is replaced."""


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m examples.serve")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--grace", type=int, default=30, metavar="SECONDS", help="for requests under way at the end"
    )
    parser.add_argument("--warm-up", action="store_true", help="fill the folders, and end")
    options = parser.parse_args()
    if options.warm_up:
        from examples.serve.model import CompiledEmbedder

        model = CompiledEmbedder()
        model.warm_up()
        reports = list(model.report().values())
        names = ("loaded", "traced", "aten_calls")
        print({name: sum(report[name] for report in reports) for name in names})
        return
    serve(options.host, options.port, options.workers, options.grace)


def serve(host: str, port: int, workers: int, grace: int) -> None:
    """Run until a signal. The processors are shared out among the workers."""
    import uvicorn

    threads = max(1, len(os.sched_getaffinity(0)) // workers)
    os.environ.setdefault("SERVE_THREADS", str(threads))
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    with tempfile.TemporaryDirectory(prefix="serve-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # read when the workers import the client
        uvicorn.run(
            "examples.serve.app:app", host=host, port=port, workers=workers,
            timeout_graceful_shutdown=grace, timeout_worker_healthcheck=_SILENT_SECONDS,
            log_level="info", access_log=False,
        )  # fmt: skip


if __name__ == "__main__":
    main()
