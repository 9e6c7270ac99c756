"""The report of a compile names the template of each kernel."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import kernelmill
from kernelmill.lower.templates.registry import TEMPLATES


class Everything(nn.Module):
    """A kernel of each template."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image = nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3)
        )
        self.linear = nn.Linear(16, 16)
        self.recurrent = nn.GRU(16, 16)

    def forward(self, image: Tensor, x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        heads = self.linear(x).reshape(1, 2, 8, 16)
        attended = scaled_dot_product_attention(heads, heads, heads)
        scattered = torch.zeros_like(x).index_add(0, at, x)
        found = torch.searchsorted(x.sort(1).values, x)
        states, _ = self.recurrent(x)
        return self.image(image), attended, x.cumsum(0), found, scattered, x.sum(1), states


def test_a_program_of_all_templates_names_each() -> None:
    arguments = torch.randn(1, 3, 20, 20), torch.randn(16, 16), torch.randint(0, 16, (16,))
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        explained = kernelmill.explain(Everything(), *arguments)
    (report,) = explained.reports
    assert {k.template for k in report.kernels} - {""} == {t.name for t in TEMPLATES}
    text = str(explained)
    assert all(f" {template.name}: " in text for template in TEMPLATES)
