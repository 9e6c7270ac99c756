"""Files that somebody has sealed anew with other contents: load refuses them, or takes them where
the change means something, and raises nothing that is outside of kernelmill's errors."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from kernelmill import KernelmillError, StoreError, aot
from kernelmill.artifact.container import KMILL, read_artifact
from kernelmill.artifact.readable import readable
from kernelmill.cli.main import main
from kernelmill.inference import set_dim_gears
from kernelmill.store.sealed import SealedFile, write_sealed
from tests.unit.artifact.test_resealed import WRONG, changed, ways


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, other: dict[str, Any]) -> Any:
        y = self.linear(x)
        return {"y": y, "sum": (torch.linalg.vector_norm(y + other["z"], dim=0), 2.5)}


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> dict[str, list[bytes]]:
    x = torch.randn(4, 8)
    set_dim_gears(x, {0: [4, 16]})
    path = str(tmp_path_factory.mktemp("file") / "m.kmill")
    aot.compile(Model().eval(), (x, {"z": torch.ones(4)}), path=path)
    file = SealedFile(path, KMILL)
    aot.load(path)
    return {name: [bytes(file.section(name))] for name in file.sections}


def _load(path: Path, sections: dict[str, list[bytes]]) -> str:
    write_sealed(str(path), KMILL, sections)
    readable(read_artifact(SealedFile(path, KMILL)))
    try:
        aot.load(path)
    except KernelmillError as error:
        return type(error).__name__
    return "loaded"


def _outcomes(path: Path, original: dict[str, list[bytes]], section: str, texts: Any) -> set[str]:
    found: set[str] = set()
    for text in texts:
        try:
            found.add(_load(path, {**original, section: [text.encode()]}))
        except StoreError:
            found.add("refused")
    return found


@pytest.mark.parametrize("section", ["manifest", "kernels"])
def test_a_changed_document(tmp_path: Path, original: Any, section: str):
    text, random = original[section][0].decode(), Random(1)
    every = random.sample([*ways(json.loads(text))], 60 if section == "manifest" else 10)
    texts = (changed(text, way, random.choice((*WRONG, ...))) for way in every)
    assert "refused" in _outcomes(tmp_path / "m.kmill", original, section, texts)


def test_a_changed_plan(tmp_path: Path, original: Any):
    lines, random = original["plan"][0].decode().splitlines(), Random(2)

    def texts():
        for _ in range(40):
            number = random.randrange(len(lines))
            words = lines[number].split(" ")
            words[random.randrange(len(words))] = random.choice(
                ["", "-1", "x", "(" * 5000, "9" * 30]
            )
            yield "\n".join([*lines[:number], " ".join(words), *lines[number + 1 :], ""])
        yield "".join(lines[:4])
        yield ""

    assert "Damaged" in _outcomes(tmp_path / "m.kmill", original, "plan", texts())


def test_a_program_of_fewer_results_than_are_returned(tmp_path: Path, original: Any):
    text = original["manifest"][0].decode()
    texts = [text.replace('{"result": 0}', '{"result": 9}')]
    assert _outcomes(tmp_path / "m.kmill", original, "manifest", texts) == {"Damaged"}


def test_what_a_file_says_moves_no_cursor(tmp_path: Path, original: Any, capfd: Any):
    title = "\x1b]0;title\x07\x1b[2J\r\x9b1A"
    document = json.loads(original["manifest"][0])
    document["spec"][0] = title
    text = json.dumps(document)
    for section, contents in {"manifest": text, "plan": title, "graph": title}.items():
        path = tmp_path / f"{section}.kmill"
        write_sealed(str(path), KMILL, {**original, section: [contents.encode()]})
        assert main(["aot", "info", str(path), "--all"]) == 0
        out = capfd.readouterr().out
        assert r"\x1b]0;title\x07\x1b[2J\r\x9b1A" in out and out.replace("\n", "").isprintable()
