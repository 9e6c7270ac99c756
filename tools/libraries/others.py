"""Sound, graphs, and what trains, adapts and quantises models."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from tools.libraries.row import Backend, Row, library
from tools.libraries.text import decoder


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


# ---- sound --------------------------------------------------------------------------------------


def _whisper() -> Any:
    transformers = library("transformers")

    config = transformers.WhisperConfig(
        vocab_size=97, num_mel_bins=16, d_model=32, encoder_layers=2, encoder_attention_heads=2,
        decoder_layers=2, decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64,
        max_source_positions=50, max_target_positions=64, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1, suppress_tokens=[], begin_suppress_tokens=[],
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    model.generation_config.eos_token_id = None
    return model


def _whisper_both(model: Any, backend: Backend) -> Any:
    """Encoder and decoder: `generate` calls the encoder by itself."""
    encoder = model.model.encoder
    encoder.forward = torch.compile(encoder.forward, backend=backend)
    model.forward = torch.compile(model.forward, backend=backend)
    return model


def _transcribed(model: Any, features: Any) -> Any:
    return model.generate(features, max_new_tokens=8, do_sample=False)


def _vits() -> Any:
    transformers = library("transformers")

    config = transformers.VitsConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, ffn_dim=64,
        flow_size=32, spectrogram_bins=33, upsample_initial_channel=32, upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8], resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]],
        duration_predictor_num_flows=2, prior_encoder_num_flows=2, wavenet_dilation_rate=1,
        posterior_encoder_num_wavenet_layers=2, prior_encoder_num_wavenet_layers=2,
        duration_predictor_flow_bins=4,
    )  # fmt: skip
    return transformers.VitsModel(config).eval()


def _spoken(model: Any, ids: Any) -> Any:
    return model(input_ids=ids).waveform


def _wav2vec2() -> Any:
    wav2vec2_model = library("torchaudio.models").wav2vec2_model

    return wav2vec2_model(
        extractor_mode="group_norm", extractor_conv_layer_config=[(32, 10, 5), (32, 3, 2)],
        extractor_conv_bias=False, encoder_embed_dim=32, encoder_projection_dropout=0.0,
        encoder_pos_conv_kernel=16, encoder_pos_conv_groups=4, encoder_num_layers=2,
        encoder_num_heads=4, encoder_attention_dropout=0.0, encoder_ff_interm_features=64,
        encoder_ff_interm_dropout=0.0, encoder_dropout=0.0, encoder_layer_norm_first=False,
        encoder_layer_drop=0.0, aux_num_out=20,
    ).eval()  # fmt: skip


class _Spoken(nn.Module):
    """Sound to log mel features, and a Conformer on them."""

    def __init__(self) -> None:
        super().__init__()
        Conformer = library("torchaudio.models").Conformer
        MelSpectrogram = library("torchaudio.transforms").MelSpectrogram

        self.mel = MelSpectrogram(8000, n_fft=128, n_mels=16)
        self.conformer = Conformer(16, num_heads=2, ffn_dim=32, num_layers=2,
                                   depthwise_conv_kernel_size=7)  # fmt: skip

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        features = self.mel(sound).clamp(min=1e-6).log().transpose(1, 2)
        lengths = torch.full((features.shape[0],), features.shape[1])
        return self.conformer(features, lengths)[0]


def _sounds() -> list[Any]:
    g = _generator()
    return [torch.randn(2, length, generator=g) for length in (1600, 2400, 2000, 3210)]


# ---- graphs -------------------------------------------------------------------------------------


def _graph_model(kind: str) -> Any:
    models = library("torch_geometric.nn").models

    return getattr(models, kind)(8, hidden_channels=16, num_layers=2, out_channels=4).eval()


def _graphs() -> list[Any]:
    g, found = _generator(), []
    for nodes, edges in ((20, 60), (30, 100), (25, 90), (40, 77)):
        index = torch.randint(nodes, (2, edges), generator=g)
        found.append((torch.randn(nodes, 8, generator=g), index))
    return found


# ---- training -----------------------------------------------------------------------------------


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


def _lightning_module() -> Any:
    lightning = library("lightning")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = _mlp()

        def training_step(self, batch: Any, number: int) -> Any:
            return self.net(batch[0]).square().mean()

        def predict_step(self, batch: Any, number: int) -> Any:
            return self.net(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Module()


def _trained(module: Any, rows: Any) -> Any:
    """Weights after an epoch, and what is predicted then."""
    lightning = library("lightning")

    data = torch.utils.data.TensorDataset(rows)
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, barebones=False,
    )  # fmt: skip
    trainer.fit(module, loader)
    found = trainer.predict(module, loader)
    return [found, *module.parameters()]


def _accelerated() -> Any:
    Accelerator = library("accelerate").Accelerator

    return Accelerator(cpu=True).prepare(decoder())


def _regions(model: Any, backend: Backend) -> Any:
    compile_regions = library("accelerate.utils").compile_regions

    return compile_regions(model, backend=backend)


def _logits(model: Any, ids: Any) -> Any:
    return model(input_ids=ids, use_cache=False).logits


def _ids() -> list[Any]:
    g = _generator()
    return [torch.randint(1, 97, (2, length), generator=g) for length in (8, 13, 21, 17)]


def _rows() -> list[Any]:
    return [torch.randn(12, 16, generator=_generator())] * 2


# ---- adapters and quantisation ------------------------------------------------------------------


def _lora() -> Any:
    peft = library("peft")

    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return peft.get_peft_model(decoder(), config).eval()


def _adapted(model: Any, given: tuple[str, Any]) -> Any:
    """The logits with the adapter added, switched off or merged into the weights."""
    state, ids = given
    peft_model = getattr(model, "_orig_mod", model)
    if state == "off":
        with peft_model.disable_adapter():
            return _logits(model, ids)
    if state == "merged":
        peft_model.merge_adapter()
    try:
        return _logits(model, ids)
    finally:
        if state == "merged":
            peft_model.unmerge_adapter()


def _states() -> list[Any]:
    ids = _ids()
    states = "added", "added", "off", "merged", "off", "merged", "added"
    return [(state, ids[number % 3]) for number, state in enumerate(states)]


def _quantised(kind: str) -> Any:
    quantization = library("torchao").quantization

    model = decoder()
    quantization.quantize_(model, getattr(quantization, kind)())
    return model


ROWS = (
    Row(
        "transformers: Whisper, generate", _whisper,
        lambda: list(torch.randn(4, 1, 16, 100, generator=_generator())), _transcribed,
        _whisper_both, "`model.forward` and the encoder's", quick=True, ours=False,
    ),
    Row(
        "transformers: VITS, speech", _vits,
        lambda: [torch.randint(1, 40, (1, n), generator=_generator()) for n in (7, 9, 12, 10)],
        _spoken, most=1e-3,
    ),
    Row("torchaudio: wav2vec2", _wav2vec2, _sounds, quick=True),
    Row("torchaudio: mel spectrogram, Conformer", lambda: _Spoken().eval(), _sounds),
    Row("PyG: GCN", partial(_graph_model, "GCN"), _graphs),
    Row("PyG: GAT", partial(_graph_model, "GAT"), _graphs),
    Row("PyG: GraphSAGE", partial(_graph_model, "GraphSAGE"), _graphs, quick=True),
    Row(
        "lightning: fit and predict", _lightning_module, _rows, _trained, warm=1, ours=False,
        grad=True, said="`torch.compile(module)`",
    ),
    Row(
        "accelerate: Llama", _accelerated, _ids, _logits, _regions, "`compile_regions`",
        ours=False, quick=True,
    ),
    Row("peft: LoRA added, off and merged", _lora, _states, _adapted, warm=7, quick=True),
    Row("torchao: int8 weights", partial(_quantised, "Int8WeightOnlyConfig"), _ids, _logits),
    Row(
        "torchao: int8 activations and weights",
        partial(_quantised, "Int8DynamicActivationInt8WeightConfig"), _ids, _logits,
        most=2e-2,  # a scale that differs in its last bit rounds some numbers to the next
    ),
)  # fmt: skip
