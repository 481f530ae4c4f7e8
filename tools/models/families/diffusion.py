"""Denoisers of the diffusers library with random weights."""

import torch
from diffusers import FluxTransformer2DModel, UNet2DConditionModel
from torch import nn

from ..case import AUTO, Case


class UNet(nn.Module):
    """The text-conditioned form, with tensors instead of a dict as arguments."""

    def __init__(self, core):
        super().__init__()
        self.core = core

    def forward(self, sample, t, ctx, text, ids):
        conditions = {"text_embeds": text, "time_ids": ids}
        return self.core(sample, t, ctx, added_cond_kwargs=conditions).sample


class Flux(nn.Module):
    """The transformer, with plain arguments and a tensor as result."""

    def __init__(self, core):
        super().__init__()
        self.core = core

    def forward(self, x, ctx, pooled, t, img_ids, txt_ids, guidance):
        return self.core(hidden_states=x, encoder_hidden_states=ctx, pooled_projections=pooled, timestep=t,
                         img_ids=img_ids, txt_ids=txt_ids, guidance=guidance, return_dict=False)[0]


def unet_small():
    context, side = 64, 32
    core = UNet2DConditionModel(
        in_channels=4, out_channels=4, layers_per_block=2, addition_embed_type="text_time", addition_time_embed_dim=32,
        projection_class_embeddings_input_dim=32 * 6 + 64, use_linear_projection=True,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(32, 64, 128), transformer_layers_per_block=(1, 1, 2), cross_attention_dim=context,
        attention_head_dim=(2, 4, 8), sample_size=side)

    def call(batch, height, width):
        return (torch.randn(batch, 4, height, width), torch.tensor(500.0), torch.randn(batch, 77, context),
                torch.randn(batch, 64), torch.rand(batch, 6) * 1000)

    dynamic = ({0: AUTO, 2: AUTO, 3: AUTO}, None, {0: AUTO}, {0: AUTO}, {0: AUTO})
    return Case(UNet(core), call(2, side, side), dynamic, [call(1, side, side * 2)])


def flux_small():
    return _flux(heads=2, layers=2, single_layers=2)


def flux_small_bf16():
    return _flux(heads=2, layers=2, single_layers=2, dtype=torch.bfloat16)


def flux_big():
    return _flux(heads=12, layers=3, single_layers=5)


def _flux(heads, layers, single_layers, dtype=torch.float32):
    side, text_tokens = 16, 16
    core = FluxTransformer2DModel(
        in_channels=64, num_layers=layers, num_single_layers=single_layers, attention_head_dim=128,
        num_attention_heads=heads, joint_attention_dim=512, pooled_projection_dim=256, guidance_embeds=True,
        axes_dims_rope=(16, 56, 56)).to(dtype)

    def call(height, width):
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        places = torch.stack([torch.zeros(height, width), rows, columns], -1).reshape(-1, 3).float()
        image, context = torch.randn(1, height * width, 64), torch.randn(1, text_tokens, 512)
        pooled, time, guidance = torch.randn(1, 256), torch.tensor([0.5]), torch.tensor([3.5])
        image, context, pooled, time, guidance = (v.to(dtype) for v in (image, context, pooled, time, guidance))
        return image, context, pooled, time, places, torch.zeros(text_tokens, 3), guidance

    dynamic = ({1: AUTO}, None, None, None, {0: AUTO}, None, None)
    return Case(Flux(core), call(side, side), dynamic, [call(side, side // 2)])
