"""The list of models: name, family, sets. Plain data, so that it can be read before any wheel is installed."""

from dataclasses import dataclass

SMALL = "requirements-models.txt"
ALL = "requirements-models-all.txt"

# Module of `families` -> the requirements file (in third_party/) its models need.
FAMILIES = {
    "zoo": SMALL,
    "blocks": SMALL,
    "mixed": SMALL,
    "documents": SMALL,
    "tables": SMALL,
    "speech": SMALL,
    "embedding": SMALL,
    "vision": SMALL,
    "text": SMALL,
    "translation": SMALL,
    "chat": ALL,
    "diffusion": ALL,
}


@dataclass(frozen=True)
class Entry:
    """One model: which module makes it, in which sets beside `all` it is, and what it is."""

    name: str
    family: str
    about: str
    sets: tuple = ()

    @property
    def requirements(self):
        return FAMILIES[self.family]


FAST, DEMO = ("fast",), ("demo",)
BOTH = FAST + DEMO

_ENTRIES = [
    # One feature of the archive format each.
    Entry("zoo_cond", "zoo", "torch.cond: two subgraphs", FAST),
    Entry("zoo_symint_input", "zoo", "a symbolic int among inputs and outputs", FAST),
    Entry("zoo_scan", "zoo", "scan: carried state and stacked outputs", FAST),
    Entry("zoo_while", "zoo", "while_loop with a lifted weight", FAST),
    Entry("zoo_mutate_input", "zoo", "input and buffer changed in place", FAST),
    Entry("zoo_mutate_functional", "zoo", "the same as mutations in the signature", FAST),
    Entry("zoo_nonzero", "zoo", "sizes that depend on data, assertions", FAST),
    Entry("zoo_complex", "zoo", "complex weights and a Fourier transform", FAST),
    Entry("zoo_args", "zoo", "arguments and outputs of every kind", FAST),
    Entry("zoo_dtypes", "zoo", "weights of many types, tied, viewed, empty", FAST),
    # Real weights.
    Entry("ocr_v6_det", "documents", "text detection: page image to text map", FAST),
    Entry("ocr_v6_rec", "documents", "text recognition: line image to characters", BOTH),
    Entry("ocr_cls", "documents", "is a text line upside down", FAST),
    Entry("ocr_v4_det", "documents", "text detection, older"),
    Entry("ocr_v4_rec", "documents", "text recognition, older"),
    Entry("layout_cdla", "documents", "page layout, ten classes", FAST),
    Entry("page_orientation", "documents", "page turned by 0, 90, 180 or 270 degrees", FAST),
    Entry("table_class", "documents", "table with or without ruling"),
    Entry("table_wired", "documents", "cells of ruled tables"),
    Entry("table_lore", "documents", "cells of tables without ruling"),
    Entry("table_slanet_encoder", "tables", "table image to features"),
    Entry("table_slanet_step", "tables", "features to one token of table structure"),
    Entry("table_slanet_full", "tables", "the whole with while_loop"),
    Entry("silero_vad", "speech", "speech or silence, stateful by its inputs", FAST),
    Entry("minilm_l6", "embedding", "sentence to unit vector", BOTH),
    Entry("smollm2_135m_prefill", "chat", "chat model, tokens to logits", DEMO),
    Entry("smollm2_135m_static", "chat", "chat model with a key-value cache inside"),
    # Random weights.
    Entry("blocks_12x64", "blocks", "many tiny nodes", FAST),
    *(Entry(f"mixed_{seed:02}", "mixed", "small net of random structure", FAST) for seed in range(16)),
    Entry("giant_linear", "mixed", "one product's weight larger than all the rest", FAST),
    Entry("giant_convolution", "mixed", "one convolution's weight larger than all the rest", FAST),
    Entry("blocks_8x1024", "blocks", "eight transformer blocks, 392 MiB"),
    Entry("blocks_27x1024", "blocks", "the same 27 times, 1.3 GiB: more than memory, for the disk tier"),
    Entry("blocks_1333x64", "blocks", "20,000 nodes, for planning times; takes minutes to make"),
    Entry("resnet50", "vision", "residual network", FAST),
    Entry("vit_b_16", "vision", "vision transformer"),
    Entry("bert_base", "text", "encoder, two outputs"),
    Entry("gpt2", "text", "decoder, embedding tied to the head"),
    Entry("t5_encoder", "text", "encoder with relative positions"),
    Entry("t5_small", "translation", "encoder and decoder in one pass, tied embedding"),
    Entry("qwen3_static", "text", "decoder with a key-value cache in constants", FAST),
    Entry("qwen3_static_bf16", "text", "the same in bfloat16"),
    Entry("qwen3_static_strict", "text", "the same with the cache in buffers"),
    Entry("qwen3_static_functional", "text", "the same with mutations in the signature"),
    Entry("unet_small", "diffusion", "convolutional denoiser"),
    Entry("flux_small", "diffusion", "transformer denoiser"),
    Entry("flux_small_bf16", "diffusion", "the same in bfloat16"),
    Entry("flux_big", "diffusion", "transformer denoiser, 1.8 GB"),
]

MODELS = {entry.name: entry for entry in _ENTRIES}
SETS = ("fast", "demo", "all")


def names_in(which):
    """Names of a set, in the order in which they are made."""
    return [entry.name for entry in _ENTRIES if which == "all" or which in entry.sets]
