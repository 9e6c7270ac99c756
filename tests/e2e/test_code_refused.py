"""Where the system lets no process run code that it made, models run in torch, and one warning for
graphs and one for each method say why and what to do."""

import os
from pathlib import Path

from tests.fresh import FreshProcesses
from tests.kept_methods import KEPT

SCRIPT = Path(__file__).with_name("code_refused.py")


@KEPT
def test_models_run_in_torch_and_one_warning_says_why(tmp_path: Path, fresh: FreshProcesses):
    places = tmp_path / "m.kmill", tmp_path / "methods"
    environment = {name: text for name, text in os.environ.items() if name != "KERNELMILL_STRICT"}
    environment["KERNELMILL_KERNEL_META"] = str(tmp_path / "kernels")
    fresh.output(SCRIPT, *places, "may", cwd=tmp_path, env=environment)
    done = fresh.run(SCRIPT, *places, "may not", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    statistics, error, doctor = done.stdout.splitlines()
    assert statistics == "{'loaded': 0, 'traced': 1, 'uncached': 2}"
    assert error == "NoCodeError"
    said = [line for line in done.stderr.splitlines() if "run code that it made" in line]
    in_torch, method = sorted(said, key=lambda line: "cannot be cached" in line)
    assert "runs in torch: the system does not let this process run code that it made" in in_torch
    for line in (in_torch, method, doctor):
        assert "allow executable memory (SELinux: execmem; systemd: MemoryDenyWriteExecute" in line
