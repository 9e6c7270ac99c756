"""Images: timm, torchvision, ultralytics and diffusers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from tools.libraries.row import Backend, Row, library


def _images(*sizes: tuple[int, int]) -> list[Any]:
    """A batch of so many images of so many pixels a side, for each."""
    generator = torch.Generator().manual_seed(3)
    return [torch.rand((n, 3, side, side), generator=generator) for n, side in sizes]


def _timm(name: str) -> Any:
    timm = library("timm")

    return timm.create_model(name, pretrained=False, num_classes=10).eval()


def _torchvision(kind: str, name: str) -> Any:
    torchvision = library("torchvision")

    models = torchvision.models
    models = getattr(models, kind) if kind else models
    return (
        getattr(models, name)(weights=None, weights_backbone=None).eval()
        if kind
        else (getattr(models, name)(weights=None).eval())
    )


def _yolo(name: str) -> Any:
    YOLO = library("ultralytics").YOLO

    return YOLO(name).model.eval()


# ---- diffusers --------------------------------------------------------------------------------


def _unet() -> Any:
    diffusers = library("diffusers")

    return diffusers.UNet2DConditionModel(
        sample_size=16, block_out_channels=(32, 64), layers_per_block=1, cross_attention_dim=32,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), norm_num_groups=8,
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), attention_head_dim=4,
    ).eval()  # fmt: skip


def _dit() -> Any:
    diffusers = library("diffusers")

    return diffusers.DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=16, in_channels=4, num_layers=4, sample_size=16,
        num_embeds_ada_norm=1000,
    ).eval()  # fmt: skip


def _flux() -> Any:
    diffusers = library("diffusers")

    return diffusers.FluxTransformer2DModel(
        in_channels=16, num_layers=2, num_single_layers=3, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32,
        axes_dims_rope=(4, 6, 6),
    ).eval()  # fmt: skip


def _noise(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator)


def _of_unet() -> list[dict[str, Any]]:
    g = torch.Generator().manual_seed(3)
    return [
        {"sample": _noise(g, n, 4, 16, 16), "timestep": torch.tensor(step),
         "encoder_hidden_states": _noise(g, n, length, 32)}
        for n, step, length in ((2, 10, 7), (2, 500, 7), (2, 30, 9), (2, 900, 11))
    ]  # fmt: skip


def _of_dit() -> list[dict[str, Any]]:
    g = torch.Generator().manual_seed(3)
    return [
        {"hidden_states": _noise(g, n, 4, 16, 16), "timestep": torch.full((n,), 7 * n),
         "class_labels": torch.arange(n)}
        for n in (2, 3, 4, 5)
    ]  # fmt: skip


def _of_flux() -> list[dict[str, Any]]:
    g = torch.Generator().manual_seed(3)
    return [
        {"hidden_states": _noise(g, 1, image, 16), "encoder_hidden_states": _noise(g, 1, text, 32),
         "pooled_projections": _noise(g, 1, 32), "timestep": torch.tensor([0.3]),
         "img_ids": _noise(g, image, 3), "txt_ids": torch.zeros(text, 3)}
        for image, text in ((16, 8), (24, 8), (32, 12), (20, 9))
    ]  # fmt: skip


def _blocks(model: Any, backend: Backend) -> Any:
    model.compile_repeated_blocks(backend=backend)
    return model


_BLOCKS = "`compile_repeated_blocks`"
_SMALL = partial(_images, (2, 64), (3, 64), (4, 64), (5, 64))
_FOR_TRANSFORMERS = partial(_images, (2, 224), (3, 224), (4, 224), (2, 224))

ROWS = (
    Row("timm: mobilenetv3_small_100", partial(_timm, "mobilenetv3_small_100"), _SMALL, quick=True),
    Row("timm: convnext_atto", partial(_timm, "convnext_atto"), _SMALL),
    Row("timm: vit_tiny_patch16_224", partial(_timm, "vit_tiny_patch16_224"), _FOR_TRANSFORMERS),
    Row("torchvision: resnet18", partial(_torchvision, "", "resnet18"), _SMALL, quick=True),
    Row("torchvision: swin_t", partial(_torchvision, "", "swin_t"), _SMALL),
    Row(
        "torchvision: lraspp_mobilenet_v3_large",
        partial(_torchvision, "segmentation", "lraspp_mobilenet_v3_large"), _SMALL,
    ),
    # The model makes its anchors anew for another batch, and keeps them: that is traced as well.
    Row("ultralytics: yolov8n", partial(_yolo, "yolov8n.yaml"), _SMALL, warm=4),
    Row("ultralytics: yolo11n", partial(_yolo, "yolo11n.yaml"), _SMALL, warm=4),
    Row("diffusers: UNet2DConditionModel", _unet, _of_unet),
    Row("diffusers: UNet2DConditionModel, blocks", _unet, _of_unet, door=_blocks, said=_BLOCKS,
        ours=False),
    Row("diffusers: DiTTransformer2DModel", _dit, _of_dit),
    Row("diffusers: FluxTransformer2DModel, blocks", _flux, _of_flux, door=_blocks, said=_BLOCKS,
        ours=False, quick=True),
)  # fmt: skip
