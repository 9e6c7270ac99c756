"""Parts that are not there when kernelmill is imported, as with another version of torch."""

from __future__ import annotations

import os
from pathlib import Path

from tests.fresh import FreshProcesses


def test_methods_run_in_torch_where_functions_of_sizes_are_not_there_at_import(
    fresh: FreshProcesses, tmp_path: Path
) -> None:
    code = (
        "import torch\n"
        "from kernelmill.inference import cache_compile\n"
        "class Model(torch.nn.Module):\n"
        "    def run(self, x):\n"
        "        return torch.relu(x) * x.shape[0]\n"
        "model = Model()\n"
        "kept = cache_compile(model.run, cache_dir='cache')\n"
        "with torch.no_grad():\n"
        "    for rows in (2, 3, 5):\n"
        "        x = torch.randn(rows, 3)\n"
        "        assert torch.equal(kept(x), model.run(x))\n"
        "print(kept.statistics['loaded'])\n"
    )
    settings = {**os.environ, "KERNELMILL_WITHOUT_INTERNALS": "sizes.functions"}
    assert fresh.output("-c", code, cwd=tmp_path, env=settings).split() == ["0"]
    assert not list(tmp_path.rglob("*.kmill"))
