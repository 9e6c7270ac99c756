"""What holds for every test: a folder of compiled kernels of its own, and threads that share.

The folder is one for the whole run, also over the workers of pytest-xdist, which then compile each
kernel once between them. Tests of the store make folders of their own.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest

# Before torch loads OpenMP: waiting threads that spin would starve the other worker's.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

_FOLDER = "KERNELMILL_KERNEL_META"


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    if not _is_worker(config):
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="kernelmill-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not _is_worker(config):
        shutil.rmtree(os.environ.pop(_FOLDER), ignore_errors=True)
