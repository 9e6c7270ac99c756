"""Models of transformers whose attention cuts sequences and images into windows, blocks and chunks,
with sizes that are not known: small ones with random weights, called at several sizes.

What is left to ATen are views that are returned, where Dynamo breaks the graph.
"""

import pytest
import torch

from tests.compiled import reported
from tests.tolerances import assert_close

transformers = pytest.importorskip("transformers")

TEXT = {"num_hidden_layers": 1, "hidden_size": 32, "vocab_size": 50}
HEADS = {**TEXT, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 256}


def tokens(*shapes):
    return [{"input_ids": torch.randint(3, 50, shape)} for shape in shapes]


def images(*shapes):
    return [{"pixel_values": torch.randn(shape)} for shape in shapes]


def mamba():
    config = transformers.MambaConfig(**TEXT, state_size=4)
    return transformers.MambaModel(config), tokens((2, 12), (3, 20))


def mamba2():
    config = transformers.Mamba2Config(
        **TEXT, state_size=4, num_heads=4, head_dim=16, n_groups=2, chunk_size=8
    )
    return transformers.Mamba2Model(config), tokens((2, 12), (3, 20))


def reformer():
    config = transformers.ReformerConfig(
        **TEXT, attention_head_size=16, attn_layers=["local"], num_attention_heads=2,
        axial_pos_embds=False, feed_forward_size=64, local_attn_chunk_length=8,
        max_position_embeddings=256, is_decoder=False,
    )  # fmt: skip
    return transformers.ReformerModel(config), tokens((2, 24), (3, 40))


def longformer():
    config = transformers.LongformerConfig(**HEADS, attention_window=[8])
    return transformers.LongformerModel(config), tokens((2, 24), (3, 40))


def swin():
    config = transformers.SwinConfig(
        image_size=32, patch_size=4, embed_dim=16, depths=[2], num_heads=[2], window_size=4
    )
    return transformers.SwinModel(config), images((2, 3, 32, 32), (3, 3, 32, 32))


def swin_v2():
    config = transformers.Swinv2Config(
        image_size=32, patch_size=4, embed_dim=16, depths=[2], num_heads=[2], window_size=4
    )
    return transformers.Swinv2Model(config), images((2, 3, 32, 32), (3, 3, 32, 32))


def whisper():
    config = transformers.WhisperConfig(
        vocab_size=50, num_mel_bins=8, encoder_layers=1, encoder_attention_heads=2,
        decoder_layers=1, decoder_attention_heads=2, d_model=32, encoder_ffn_dim=64,
        decoder_ffn_dim=64, max_source_positions=20, max_target_positions=32, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    calls = [
        {"input_features": torch.randn(b, 8, 40), "decoder_input_ids": torch.ones(b, n).long()}
        for b, n in ((2, 5), (3, 9))
    ]
    return transformers.WhisperModel(config), calls


MODELS = (mamba, mamba2, reformer, longformer, swin, swin_v2, whisper)
AUTOMATIC = (swin, swin_v2)
"""Only the batch is unknown: to trace images of unknown sizes takes a minute."""


@pytest.mark.parametrize("family", MODELS, ids=lambda family: family.__name__)
def test_models_of_unknown_sizes_equal_eager(family):
    torch._dynamo.reset()
    model, calls = family()
    model = model.eval().requires_grad_(False)
    backend, reports = reported()
    dynamic = None if family in AUTOMATIC else True
    compiled = torch.compile(model, backend=backend, dynamic=dynamic)
    with torch.no_grad():
        found = [compiled(**call).last_hidden_state for call in calls]
        wanted = [model(**call).last_hidden_state for call in calls]
    exact = exact_results(model, calls)
    assert_close(found, wanted, exact)
    assert [capture.refused for capture in backend.captures if capture.refused] == []
    assert [fallback for report in reports for fallback in report.fallbacks] == []


def exact_results(model, calls):
    double = model.double()
    with torch.no_grad():
        return [
            double(**{
                name: value.double() if value.is_floating_point() else value
                for name, value in call.items()
            }).last_hidden_state
            for call in calls
        ]  # fmt: skip
