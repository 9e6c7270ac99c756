"""The plot of the landing page: times of other compilers over kernelmill's, from the record.

python -m tools.landing_plot        writes docs/assets/plot.html from docs/performance.json
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
PLOT = DOCS / "assets" / "plot.html"
MODELS = {
    "bert": "BERT-base, 1 x 128 tokens", "resnet50": "ResNet-50, batch 1",
    "minilm": "MiniLM-L6, 32 tokens",
}  # fmt: skip
OURS = ("kernelmill", "kernelmill aot")
OTHERS = {
    "eager": ("eager",), "Inductor": ("inductor", "inductor tuned", "aotinductor"),
    "ONNX Runtime": ("onnxruntime", "onnx runtime"), "OpenVINO": ("openvino",),
}  # fmt: skip
_LINE, _LEFT, _WIDTH, _MOST = 18, 110, 200, 4.5


def ratios(row: dict[str, Any]) -> tuple[float, dict[str, float]]:
    """Return kernelmill's seconds, the shorter of its two, and the others' over it."""
    seconds = {name.lower(): value for name, value in row["seconds"].items()}
    ours = min(seconds[name] for name in OURS if name in seconds)
    fastest = {
        title: min(seconds[name] for name in names if name in seconds)
        for title, names in OTHERS.items()
    }
    return ours, {title: value / ours for title, value in fastest.items()}


def plot() -> str:
    """Return a figure for each processor, as HTML with SVG in the colours of the page."""
    record = json.loads((DOCS / "performance.json").read_text())
    return "\n".join(_panel(name, found) for name, found in sorted(record.items())) + "\n"


def _panel(processor: str, found: dict[str, Any]) -> str:
    rows = [(title, found["steady"][model]) for model, title in MODELS.items()]
    height = 62 + len(rows) * (_LINE * (len(OTHERS) + 1) + 30)
    dates = re.findall(r"on (\d{4}-\d\d-\d\d)", found["measured"]["bert"])
    name = f"{processor}, {dates[0]}"
    parts = list(_rows(rows))
    return (
        f'<figure><svg class="km-svg" viewBox="0 0 360 {height}" role="img" aria-label="Times of a '
        f'call on {name}"><text class="title" x="4" y="18">{processor}</text>'
        f'<text class="soft" x="4" y="36">{dates[0]}, 2 threads; time over kernelmill\'s</text>'
        + "".join(parts) + "</svg></figure>"
    )  # fmt: skip


def _rows(rows: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    y = 62
    for title, row in rows:
        ours, others = ratios(row)
        yield f'<text class="title" x="4" y="{y + 2}">{title}</text>'
        y += 10
        for name, ratio in {"kernelmill": 1.0, **others}.items():
            wide = _WIDTH * min(ratio, _MOST) / _MOST
            text = f"{ours * 1e3:.3g} ms" if name == "kernelmill" else f"{ratio:.2f}"
            kind = "ours" if name == "kernelmill" else "other"
            yield (
                f'<text class="soft" x="{_LEFT - 8}" y="{y + 12}" text-anchor="end">{name}</text>'
                f'<rect class="{kind}" x="{_LEFT}" y="{y + 2}" width="{wide:.1f}" height="12"/>'
                f'<text x="{_LEFT + wide + 6:.1f}" y="{y + 12}">{text}</text>'
            )
            y += _LINE
        y += 20


if __name__ == "__main__":
    PLOT.write_text(plot())
