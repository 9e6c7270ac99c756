"""The tests of libraries are collected where these are installed: vLLM in an environment of its
own."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("vllm") else ["test_vllm.py"]
