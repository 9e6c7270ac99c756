"""Fresh processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def child(call: str, folder: str, module: str) -> Any:
    """What `{module}.{call}` returns in a fresh process whose kernels are in `folder`."""
    script = f"import json, {module} as m; print(json.dumps(m.{call}))"
    environment = os.environ | {
        "KERNELMILL_KERNEL_META": folder,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}-inductor",
    }
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
