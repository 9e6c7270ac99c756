"""What a fleet lowers of an exported program is what `aot.compile` compiles of it."""

import pytest
import torch
from torch import nn
from torch.nn.functional import group_norm, layer_norm, scaled_dot_product_attention, softmax

from kernelmill import aot
from kernelmill.aot.exporting import exported_graph
from kernelmill.artifact.container import KMILL, read_artifact
from kernelmill.artifact.program_set import graph_texts
from kernelmill.compiler.pipeline import optimise
from kernelmill.config import CompilerConfig
from kernelmill.graph.text import parse_graph, print_graph
from kernelmill.store.sealed import SealedFile


class Called(nn.Module):
    """A module that is a function of one tensor."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: layer_norm(softmax(x, 0), (8,)),
        lambda x: scaled_dot_product_attention(*(x[None, None],) * 3),
        lambda x: group_norm(x[None].transpose(1, 2), 2),
        lambda x: x[:1].expand(x.shape[0], 8) + x.flip(0),
        lambda x: x * 2 if x.shape[0] > 3 else x,
        lambda x: x.unsqueeze(0).squeeze(0).repeat(2, 1),
    ],
    ids=["norms", "attention", "groups", "expand", "asks", "squeeze"],
)
@pytest.mark.parametrize("varies", [False, True], ids=["fixed", "varies"])
def test_the_graph_of_an_exported_program_is_that_of_its_file(tmp_path, function, varies):
    rows = torch.export.Dim("rows", min=4, max=64) if varies else None
    program = torch.export.export(
        Called(function), (torch.randn(5, 8),), dynamic_shapes=({0: rows},)
    )
    file = aot.compile(program, path=tmp_path / "model.kmill")
    (text,) = graph_texts(read_artifact(SealedFile(file, KMILL), check_weights=False))
    ours, _ = optimise(exported_graph(program, "exported"), CompilerConfig(), dump=False)
    assert print_graph(ours) == print_graph(parse_graph(text))
