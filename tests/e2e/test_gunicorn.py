"""gunicorn with a preloaded application: its workers are forks of a process that has compiled."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

APPLICATION = """
import gc, json, os, threading
import torch
from torch import nn
from kernelmill import codegen
from kernelmill.inference import cache_compile

torch.set_num_threads(1)  # OpenMP's threads do not come along to a fork


class Model(nn.Module):
    def __init__(self, factor):
        super().__init__()  # not seeded: torch.manual_seed takes a lock that no fork gives back
        self.linear = nn.Linear(8, 8)
        self.factor = factor
        self.cached = cache_compile(self.run)

    def run(self, x):
        return torch.relu(self.linear(x)) * self.factor


def close(call, model):
    x = torch.randn(3, 8)
    with torch.no_grad():
        return torch.allclose(call(x), model.run(x), atol=1e-5)


def again_and_again():
    # Always in the midst of a compile, also when the workers are forked.
    for number in range(10_000):
        if os.path.exists("enough"):
            return
        other = Model(number + 0.5)
        compiled = torch.compile(other.run, backend="kernelmill")
        assert close(compiled, other)
        torch._dynamo.reset()


warm = Model(1.0)
assert close(warm.cached, warm)
busy = threading.Thread(target=again_and_again, daemon=True)
master = os.getpid()
busy.start()


def app(environ, start_response):
    fresh = Model(float(environ["QUERY_STRING"]))
    answer = {
        "forked": os.getpid() != master,
        "collecting": gc.isenabled(),
        "warm": close(warm.cached, warm),
        "not made again": warm.cached.statistics["traced"] == 1,
        "fresh": close(fresh.cached, fresh),
        "traced": fresh.cached.statistics["traced"] == 1,
    }
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def ask(port: int, number: float) -> dict[str, bool]:
    url = f"http://127.0.0.1:{port}/?{number}"
    with urllib.request.urlopen(url, timeout=600) as answer:
        return json.load(answer)


def wait_for(port: int, server: subprocess.Popen[str]) -> None:
    while server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    pytest.fail(f"gunicorn has ended: {server.communicate()[1][-3000:]}")


def test_workers_call_what_the_master_compiled_and_compile_more(tmp_path: Path) -> None:
    pytest.importorskip("gunicorn")
    (tmp_path / "application.py").write_text(APPLICATION)
    port = free_port()
    command = [
        sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--timeout", "600",
        "--bind", f"127.0.0.1:{port}", "--no-control-socket", "application:app",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "KERNELMILL_KERNEL_META": str(tmp_path / "kernels"),
        "KERNELMILL_CACHE_HOME": str(tmp_path / "methods"),
    }
    server = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for(port, server)
        answers = [ask(port, 2.0)]
        (tmp_path / "enough").touch()
        answers.append(ask(port, 3.0))
    finally:
        server.send_signal(signal.SIGTERM)
        errors = server.communicate(timeout=600)[1]
    assert server.returncode == 0, errors[-3000:]
    for answer in answers:
        assert answer == dict.fromkeys(answer, True)
    assert not [path.name for path in (tmp_path / "kernels").iterdir() if ".bad-" in path.name]
