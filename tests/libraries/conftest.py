"""The tests of libraries are collected where these are installed: most by the extra `libraries`,
vLLM in an environment of its own."""

from __future__ import annotations

from importlib.util import find_spec

from tools.libraries.cuda_builds import make_importable

_OF_THE_EXTRA = (
    "accelerate", "diffusers", "lightning", "peft", "timm", "torch_geometric", "torchaudio",
    "torchvision", "ultralytics",
)  # fmt: skip

collect_ignore: list[str] = []
if not all(map(find_spec, _OF_THE_EXTRA)):
    collect_ignore += ["test_rows.py"]
else:
    make_importable()
if not find_spec("vllm"):
    collect_ignore += ["test_vllm.py"]
