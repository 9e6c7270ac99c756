"""Sources in Python's bytecode, as those of an installed package are."""

from __future__ import annotations

import compileall
from pathlib import Path

HERE = Path(__file__).parent.parent.parent


def have_bytecode(tree: Path = HERE) -> None:
    """Compile the package's modules of a checkout, for fresh processes that are measured. Else each
    would compile what was changed, up to 0.5 s of a first call: PYTHONDONTWRITEBYTECODE may be set,
    and a checkout that was just made has none."""
    compileall.compile_dir(tree / "src", quiet=1)
