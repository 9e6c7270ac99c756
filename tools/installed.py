"""The wheel and the sdist as a stranger gets them.

python -m tools.installed               both are built, each is installed in an environment of its
                                        own, and the quick start runs there

Nothing of the checkout is on the import path of what runs. Exit code 1 when something fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
_PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def main() -> int:
    """Build, install, run; prints what is done."""
    with tempfile.TemporaryDirectory(prefix="kernelmill-installed-") as folder:
        try:
            for package in _built(Path(folder)):
                _try(package, Path(folder) / f"of-{package.suffix[1:]}")
        except subprocess.CalledProcessError as error:
            print(f"failed: {' '.join(map(str, error.cmd))}\n{error.stdout}", file=sys.stderr)
            return 1
    return 0


def _built(folder: Path) -> list[Path]:
    """The wheel and the sdist, made by the build backend that pyproject.toml names."""
    python = _environment(folder / "builder")
    _pip(python, "hatchling")
    _run([python, "-m", "hatchling", "build", "-d", folder / "dist"], cwd=ROOT)
    found = sorted((folder / "dist").iterdir())
    assert sorted(path.suffix for path in found) == [".gz", ".whl"], found
    return found


def _try(package: Path, folder: Path) -> None:
    python = _environment(folder)
    _pip(python, package)
    command = python.parent / "kernelmill"
    work = folder / "work"
    work.mkdir()
    print(f"{package.name}: {_run([command, '--version'], cwd=work).strip()}")
    text = (ROOT / "docs" / "index.md").read_text()
    script = work / "quick_start.py"
    script.write_text("".join(_PYTHON_BLOCK.findall(text)))
    _run([python, script], cwd=work)
    _run([command, "doctor", "--quick"], cwd=work)
    print(f"{package.name}: the quick start runs in {python.parent.parent.name}")


def _environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def _pip(python: Path, what: Path | str) -> None:
    constraint = ["--constraint", CONSTRAINTS]
    _run([python, "-m", "pip", "install", "--quiet", *constraint, what], cwd=python.parent)


def _run(command: list[Path | str], cwd: Path) -> str:
    """Its output. CalledProcessError with all that it printed when it fails."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV") and not name.startswith("KERNELMILL_")
    }
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=True,
    )  # fmt: skip
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
