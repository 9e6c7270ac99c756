"""Operators of torch's own database: imported and interpreted, each sample agrees with eager.

`TRANSLATED` are those of which no sample may need ATen; `tests/differential` looks at all others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
import torch
from functorch.compile import aot_function
from torch import Tensor, fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from kernelmill.core.dtype import InputRole
from kernelmill.frontend.decompositions import decomposition_table
from kernelmill.frontend.importer import import_fx
from kernelmill.graph.interpreter import run_graph
from kernelmill.graph.verifier import verify_graph
from kernelmill.passes import run_pipeline
from tests.differential.opinfo import operators

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo, SampleInput

TRANSLATED = """
add addcdiv addcmul addmm all amax arange argmax atan2 baddbmm cat clamp constant_pad_nd copysign
cdist cos count_nonzero cumprod cumsum diagonal diff div.no_rounding_mode div.floor_rounding dot eq
erf exp expand eye fill flip floor floor_divide fmax fmod full_like heaviside hypot index_add
index_copy index_fill index_select gather scatter scatter_add isfinite linalg.cross
linalg.vector_norm log log_softmax logical_and logical_not logit logsumexp masked_fill matmul
max.reduction_with_dim maximum mean mm mul nan_to_num native_layer_norm
nn.functional.adaptive_avg_pool2d nn.functional.avg_pool2d nn.functional.conv1d nn.functional.conv2d
nn.functional.cross_entropy nn.functional.elu nn.functional.embedding nn.functional.gelu
nn.functional.group_norm nn.functional.hardswish nn.functional.layer_norm nn.functional.leaky_relu
nn.functional.linear nn.functional.logsigmoid nn.functional.max_pool2d nn.functional.pad.constant
nn.functional.pad.reflect nn.functional.rms_norm nn.functional.silu nn.functional.smooth_l1_loss
nn.functional.softplus nn.functional.upsample_bilinear nn.functional.upsample_nearest permute pow
prod remainder repeat roll round select select_scatter scatter_reduce.amax scatter_reduce.mean
scatter_reduce.prod sigmoid sign signbit slice slice_scatter softmax split_with_sizes stack tanh
transpose triu unbind unfold unsqueeze var var_mean where xlogy
""".split()
"""Their float32 samples are translated whole."""

SAMPLES = 2
pytestmark = pytest.mark.filterwarnings("ignore:.* is deprecated")


def reference(op: OpInfo, sample: SampleInput) -> tuple[Callable[..., list[Any]], list[Tensor]]:
    """The sample as a function of its tensors."""
    leaves, structure = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def function(*tensors: Tensor) -> list[Any]:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        value, args, kwargs = tree_unflatten(filled, structure)
        return tree_flatten(op(value, *args, **kwargs))[0]

    return function, [leaves[i] for i in places]


def compiled(function: Callable[..., list[Any]], fallbacks: list[str]) -> Callable[..., list[Any]]:
    """The function through importer, passes and interpreter; ATen calls are noted."""

    def compiler(gm: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
        imported = import_fx(gm, "sample", [InputRole.USER] * len(names), names)
        graph = run_pipeline(imported.graph)
        verify_graph(graph, "the passes")
        fallbacks.extend(
            f"{node.attrs['target']} ({node.attrs['reason']})"
            for node in graph.nodes
            if node.op == "aten" and node.attrs["reason"] != "a view that is returned"
        )

        def run(args: list[Any]) -> Any:
            return run_graph(graph, [*args, *imported.constants])

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    return aot_function(
        function, fw_compiler=compiler, inference_compiler=compiler,
        decompositions=decomposition_table(), keep_inference_input_mutations=True,
    )  # fmt: skip


def check(op: OpInfo, dtype: torch.dtype) -> list[str]:
    """Fallbacks of the operator's first samples, which all agree with eager."""
    fallbacks: list[str] = []
    samples = op.sample_inputs("cpu", dtype, requires_grad=False)
    with torch.no_grad():
        for sample in itertools.islice(samples, SAMPLES):
            function, tensors = reference(op, sample)
            expected = function(*[tensor.clone() for tensor in tensors])
            actual = compiled(function, fallbacks)(*[tensor.clone() for tensor in tensors])
            for have, want in zip(actual, expected, strict=True):
                if isinstance(want, Tensor):
                    rtol, atol = (2e-2, 2e-2) if want.dtype == torch.bfloat16 else (1e-4, 1e-5)
                    torch.testing.assert_close(have, want, rtol=rtol, atol=atol, equal_nan=True)
    return fallbacks


def test_the_list_names_operators_of_this_torch() -> None:
    assert not [name for name in TRANSLATED if name not in operators()]


@pytest.mark.parametrize("name", TRANSLATED)
def test_float32(name: str) -> None:
    assert not check(operators()[name], torch.float32)


HALF = """
add addcmul addmm amax cat clamp cumsum div.no_rounding_mode exp fmod log_softmax matmul mean mul
nn.functional.gelu nn.functional.layer_norm nn.functional.silu nn.functional.softplus pow prod
remainder rsqrt sigmoid softmax sub sum var where
""".split()


@pytest.mark.parametrize("name", HALF)
def test_bfloat16(name: str) -> None:
    assert not check(operators()[name], torch.bfloat16)


WHOLE = """
abs add all amax any argmax bitwise_and bitwise_not cat ceil clamp cumsum eq floor gt index_add
logical_and logical_not lt masked_fill max.reduction_no_dim maximum mul ne neg prod round rsub
sign signbit sqrt square sub sum tril where
""".split()


@pytest.mark.parametrize("name", WHOLE)
def test_int64(name: str) -> None:
    assert not check(operators()[name], torch.int64)


@pytest.mark.parametrize("name", ["all", "any", "eq", "logical_not", "mul", "sum", "where"])
def test_bool(name: str) -> None:
    assert not check(operators()[name], torch.bool)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_integer_division_by_a_tensor_is_atens(name: str) -> None:
    """Eager raises ZeroDivisionError; no kernel does."""
    assert any("may have to raise" in reason for reason in check(operators()[name], torch.int64))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_in_bools_are_refused_as_by_eager(name: str) -> None:
    fallbacks: list[str] = []
    with pytest.raises(RuntimeError, match="does not support bool"):
        compiled(lambda x: [getattr(torch, name)(x, 1)], fallbacks)(torch.ones(2, 3) > 0)
