"""Lines of the user's code in exported functions."""

from __future__ import annotations

import inspect

import pytest
import torch

from kernelmill.torch_internals import export


def test_lines_are_kept_under_the_one_name_that_older_traces_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch.fx import proxy

    monkeypatch.delattr(proxy, "_register_stack_trace_anchor", raising=False)
    keep, amount = export._anchor.probe(), 2.0

    def scaled(x: torch.Tensor, *, more: float = 1.0) -> torch.Tensor:
        return x * amount + more

    class Owner:
        def times(self, x: torch.Tensor) -> torch.Tensor:
            return x * 3.0

    for function, value in ((scaled, 3.0), (Owner().times, 3.0)):
        kept, module = keep(function), torch.nn.Module()
        assert inspect.signature(kept) == inspect.signature(function)
        assert kept.__name__ == function.__name__
        assert kept(torch.ones(1)).item() == value
        module.forward = kept
        nodes = torch.export.export(module, (torch.ones(2),)).graph.nodes
        (line,) = {n.stack_trace.splitlines()[0] for n in nodes if n.op == "call_function"}
        assert __file__ in line
    assert keep(torch.relu) is torch.relu
