"""Random weights of each scorer's own architecture, small, written as its folder is laid out."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import (
    BertTokenizer,
    BlipConfig,
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPModel,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    Mask2FormerConfig,
    Mask2FormerForUniversalSegmentation,
    Mask2FormerImageProcessorPil,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)

from recast_eval.scorers.models import image_reward
from recast_train.starter.pipeline import build_tokenizer

WIDTHS = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}


def clip(folder: Path, seed: int = 0) -> CLIPModel:
    """A CLIP folder: model, tokenizer, image processor."""
    torch.manual_seed(seed)
    tokenizer = build_tokenizer()
    text = {
        **WIDTHS,
        "num_attention_heads": 2,
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 77,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "hidden_act": "gelu",
    }
    vision = {
        **WIDTHS,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
        "hidden_act": "gelu",
    }
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    model = CLIPModel(config).eval()
    model.save_pretrained(folder)
    tokenizer.model_max_length = 77
    tokenizer.save_pretrained(folder)
    size = {"height": 32, "width": 32}
    CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=size).save_pretrained(folder)
    return model


def head(widths: tuple[int, ...], prefix: str) -> dict[str, torch.Tensor]:
    """A published head's tensors: linear layers at 0, 2, 4, 6, 7."""
    found = {}
    for number, a, b in zip((0, 2, 4, 6, 7), widths, widths[1:], strict=False):
        found[f"{prefix}.{number}.weight"] = torch.randn(b, a) / a**0.5
        found[f"{prefix}.{number}.bias"] = torch.randn(b) * 0.1
    return found


def aesthetic(folder: Path) -> None:
    """CLIP and the MLP."""
    clip(folder)
    save_file(head((16, 12, 10, 8, 6, 1), "layers"), folder / "aesthetic.safetensors")


def open_clip_names(model: CLIPModel) -> dict[str, torch.Tensor]:
    """The reverse of the conversion, written apart from it: transformers' names to open_clip's."""
    state, found = model.state_dict(), {}
    blocks = {"vision_model": "visual.transformer", "text_model": "transformer"}
    pairs = {
        "layer_norm1": "ln_1",
        "layer_norm2": "ln_2",
        "self_attn.out_proj": "attn.out_proj",
        "mlp.fc1": "mlp.c_fc",
        "mlp.fc2": "mlp.c_proj",
    }
    for tower, prefix in blocks.items():
        for i in range(2):
            old, new = f"{tower}.encoder.layers.{i}", f"{prefix}.resblocks.{i}"
            for ours, theirs in pairs.items():
                for kind in ("weight", "bias"):
                    found[f"{new}.{theirs}.{kind}"] = state[f"{old}.{ours}.{kind}"]
            for kind in ("weight", "bias"):
                parts = [state[f"{old}.self_attn.{p}_proj.{kind}"] for p in "qkv"]
                found[f"{new}.attn.in_proj_{kind}"] = torch.cat(parts)
    for kind in ("weight", "bias"):
        found[f"ln_final.{kind}"] = state[f"text_model.final_layer_norm.{kind}"]
        found[f"visual.ln_pre.{kind}"] = state[f"vision_model.pre_layrnorm.{kind}"]
        found[f"visual.ln_post.{kind}"] = state[f"vision_model.post_layernorm.{kind}"]
    embed = "vision_model.embeddings"
    found["visual.class_embedding"] = state[f"{embed}.class_embedding"]
    found["visual.positional_embedding"] = state[f"{embed}.position_embedding.weight"]
    found["visual.conv1.weight"] = state[f"{embed}.patch_embedding.weight"]
    found["token_embedding.weight"] = state["text_model.embeddings.token_embedding.weight"]
    found["positional_embedding"] = state["text_model.embeddings.position_embedding.weight"]
    found["visual.proj"] = state["visual_projection.weight"].T
    found["text_projection"] = state["text_projection.weight"].T
    found["logit_scale"] = state["logit_scale"]
    return {k: v.contiguous() for k, v in found.items()}


def hpsv2(folder: Path) -> CLIPModel:
    """A CLIP under open_clip's names."""
    model = clip(folder)
    (folder / "model.safetensors").unlink()
    save_file(open_clip_names(model), folder / "hpsv2.safetensors")
    return model


def image_reward_folder(folder: Path) -> None:
    """BLIP's two encoders and the head, under the published names, and a BERT tokenizer."""
    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    words += ["##" + c for c in "abcdefghijklmnopqrstuvwxyz"]
    BertTokenizer(vocab={w: i for i, w in enumerate(words)}).save_pretrained(folder)
    vision = {**image_reward.vision_config(), **WIDTHS, "num_attention_heads": 2}
    vision |= {"image_size": 32, "patch_size": 8}
    text = {**image_reward.text_config(), **WIDTHS, "num_attention_heads": 2}
    text |= {"encoder_hidden_size": 32, "vocab_size": len(words)}
    BlipConfig(text_config=text, vision_config=vision).save_pretrained(folder)
    tensors = {f"blip.visual_encoder.{k}": v for k, v in _blip_vision().items()}
    tensors |= {f"blip.text_encoder.{k}": v for k, v in _bert(len(words)).items()}
    tensors |= head((32, 24, 16, 8, 4, 1), "mlp.layers")
    save_file(tensors, folder / image_reward.FILE)


def _linear(name: str, out: int, into: int) -> dict[str, torch.Tensor]:
    weight = torch.randn(out, into) / into**0.5
    return {f"{name}.weight": weight, f"{name}.bias": torch.randn(out) * 0.1}


def _norm(name: str) -> dict[str, torch.Tensor]:
    return {f"{name}.weight": torch.ones(32), f"{name}.bias": torch.zeros(32)}


def _blip_vision() -> dict[str, torch.Tensor]:
    found = {
        "cls_token": torch.randn(1, 1, 32),
        "pos_embed": torch.randn(1, 17, 32),
        "patch_embed.proj.weight": torch.randn(32, 3, 8, 8) * 0.1,
        "patch_embed.proj.bias": torch.zeros(32),
    }
    for i in range(2):
        block = f"blocks.{i}"
        found |= _norm(f"{block}.norm1") | _norm(f"{block}.norm2")
        found |= _linear(f"{block}.attn.qkv", 96, 32) | _linear(f"{block}.attn.proj", 32, 32)
        found |= _linear(f"{block}.mlp.fc1", 64, 32) | _linear(f"{block}.mlp.fc2", 32, 64)
    return found | _norm("norm")


def _bert(vocabulary: int) -> dict[str, torch.Tensor]:
    found = {
        "embeddings.position_ids": torch.arange(512)[None],
        "embeddings.word_embeddings.weight": torch.randn(vocabulary, 32),
        "embeddings.position_embeddings.weight": torch.randn(512, 32) * 0.1,
        **_norm("embeddings.LayerNorm"),
    }
    for i in range(2):
        for kind in ("attention", "crossattention"):
            at = f"encoder.layer.{i}.{kind}"
            for part in ("self.query", "self.key", "self.value", "output.dense"):
                found |= _linear(f"{at}.{part}", 32, 32)
            found |= _norm(f"{at}.output.LayerNorm")
        found |= _linear(f"encoder.layer.{i}.intermediate.dense", 64, 32)
        found |= _linear(f"encoder.layer.{i}.output.dense", 32, 64)
        found |= _norm(f"encoder.layer.{i}.output.LayerNorm")
    return found


def geneval(folder: Path) -> None:
    """A detector and a CLIP."""
    torch.manual_seed(0)
    clip(folder / "clip")
    backbone: dict[str, Any] = {
        "model_type": "swin",
        "image_size": 64,
        "patch_size": 4,
        "embed_dim": 16,
        "depths": [1, 1, 1, 1],
        "num_heads": [1, 1, 2, 2],
        "window_size": 4,
        "out_features": ["stage1", "stage2", "stage3", "stage4"],
    }
    config = Mask2FormerConfig(
        backbone_config=backbone,
        feature_size=32,
        mask_feature_size=32,
        hidden_dim=32,
        encoder_feedforward_dim=32,
        dim_feedforward=32,
        encoder_layers=1,
        decoder_layers=2,
        num_attention_heads=2,
        num_queries=5,
        id2label={0: "dog", 1: "cat", 2: "bench"},
    )
    Mask2FormerForUniversalSegmentation(config).save_pretrained(folder / "detector")
    size = {"height": 64, "width": 64}
    Mask2FormerImageProcessorPil(size=size).save_pretrained(folder / "detector")


def _bytes_tokenizer(special: list[str]) -> tuple[PreTrainedTokenizerFast, dict[str, int]]:
    """A tokenizer of bytes with special tokens before them, the first of which pads."""
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel as Joined
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel

    vocab = {c: i for i, c in enumerate([*special, *sorted(ByteLevel.alphabet())])}
    plain = Tokenizer(BPE(vocab=vocab, merges=[]))
    plain.pre_tokenizer, plain.decoder = ByteLevel(add_prefix_space=False), Joined()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token=special[0])
    tokenizer.add_special_tokens({"additional_special_tokens": special[1:]})
    return tokenizer, vocab


def qwen(folder: Path) -> None:
    """A Qwen2.5-VL, which is what vqa-score takes by itself, laid out as its repository is."""
    torch.manual_seed(0)
    special = ["endoftext", "im_start", "im_end", "vision_start", "vision_end", "image_pad"]
    names = [f"<|{s}|>" for s in (*special, "video_pad")]
    tokenizer, vocab = _bytes_tokenizer(names)
    tokenizer.save_pretrained(folder)
    template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}"
        "{% if c['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
        "{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    pictures = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "merge_size": 2}
    pictures |= {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 64, "temporal_patch_size": 2}
    (folder / "preprocessor_config.json").write_text(json.dumps(pictures))
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    text = {**WIDTHS, **heads, "vocab_size": len(vocab), "max_position_embeddings": 4096}
    text["rope_scaling"] = {"rope_type": "default", "mrope_section": [2, 3, 3]}
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2}
    vision |= {"out_hidden_size": 32, "window_size": 56, "fullatt_block_indexes": [1]}
    ids = {f"{s.split('_')[0]}_token_id": vocab[f"<|{s}|>"] for s in ("image_pad", "video_pad")}
    ids |= {f"{s}_token_id": vocab[f"<|{s}|>"] for s in ("vision_start", "vision_end")}
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids)
    Qwen2_5_VLForConditionalGeneration(config).eval().save_pretrained(folder)


def llava(folder: Path) -> None:
    """Another vision-language model, with a processor of its own: LLaVA, of bytes."""
    torch.manual_seed(0)
    tokenizer, vocab = _bytes_tokenizer(["<pad>", "<image>"])
    size = {"height": 32, "width": 32}
    template = (
        "{% for m in messages %}{% for c in m['content'] %}"
        "{% if c['type'] == 'image' %}<image>{% else %}{{ c['text'] }}{% endif %}"
        "{% endfor %}{% endfor %}"
    )
    LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=size),
        tokenizer=tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=template,
    ).save_pretrained(folder)
    vision = {"model_type": "clip_vision_model", **WIDTHS, "num_attention_heads": 2}
    vision |= {"image_size": 32, "patch_size": 8}
    text = {"model_type": "llama", **WIDTHS, "num_attention_heads": 2, "vocab_size": len(vocab)}
    config = LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=1, vision_feature_layer=-1
    )
    LlavaForConditionalGeneration(config).eval().save_pretrained(folder)
