#!/usr/bin/env python3
"""Makes the golden fixtures of tests/golden/data with Hugging Face transformers.

  python3 tools/make_goldens.py --out FOLDER [--only NAME ...] [--jobs N]

Each fixture is a tiny random checkpoint, saved by transformers itself, with the logits and greedy
continuations of the f32 model. tests/golden/README.md describes every file. Weights, tokenizers and
prompts depend on SEED alone; logits may differ in the last bits from one CPU to another.
"""

import argparse
import copy
import json
import math
import os
import random
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

# One thread: the order in which the trainer counts pairs is then always the same.
os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")

import tokenizers
import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from check_goldens import CONTINUATION, check, check_tensors, file_table
from golden_texts import PROMPT_TEXT, SENTENCES
from golden_tokenizers import (SEED, TOKENIZERS, make_tokenizer, seed_of, tokenizer_goldens)

PROMPTS = [("random", 48), ("text", 52), ("random", 56)]
CANDIDATES = 256  # random prompts tried, see choose_prompt
CLEAR_MARGIN = 0.01

# Standard deviation of each matrix, times sqrt(columns), by the end of its name; weights are drawn
# evenly from an interval. The embedding is most of the residual stream, so that 4-bit rounding
# leaves the logits recognisable; what attention and feed-forward add is still a thousand times the
# error that the tests allow.
GAINS = {
    "q_proj.weight": 1.0,
    "k_proj.weight": 1.0,
    "v_proj.weight": 1.0,
    "qkv_proj.weight": 1.0,
    "gate_up_proj.weight": 1.0,
    "o_proj.weight": 0.5,
    "gate_proj.weight": 1.0,
    "up_proj.weight": 1.0,
    "down_proj.weight": 0.5,
    "lm_head.weight": 4.0,
    # A router of experts: the first choice weighs most, so that another second one, which a
    # rounding may bring, changes little.
    "mlp.gate.weight": 6.0,
    "router.weight": 6.0,
    "experts.gate_up_proj": 1.0,
    "experts.down_proj": 0.5,
    "mixer.gate.weight": 6.0,
    "feed_forward.gate.weight": 6.0,
    "experts.up_proj": 1.0,
    "shared_expert_gate.weight": 1.0,
    "input_linear.weight": 1.0,
    "output_linear.weight": 0.5,
    "w1.weight": 1.0,
    "w3.weight": 1.0,
    "w2.weight": 0.5,
    # Layers with a state.
    "in_proj_qkv.weight": 1.0,
    "in_proj_z.weight": 1.0,
    "in_proj_qkvz.weight": 1.0,
    "in_proj_b.weight": 1.0,
    "in_proj_a.weight": 1.0,
    "in_proj_ba.weight": 1.0,
    "in_proj.weight": 1.0,
    "out_proj.weight": 0.5,
    "conv1d.weight": 1.0,
    "conv.conv.weight": 1.0,
}
EMBEDDING_STD = 0.6
BIAS_STD = 0.3
SINK_STD = 1.0
NORM_STD = 0.1
# Standard deviation and mean of what says how fast a state fades: after some ten tokens.
FADING = {"dt_bias": (0.5, -2.0), "A_log": (0.5, 0.0), ".D": (0.5, 1.0)}
FINAL_NORMS = ("model.norm.weight", "model.norm_f.weight", "model.embedding_norm.weight")


def llama(**fields):
    return {"class": "LlamaForCausalLM", "config": "LlamaConfig", "rms_norm_eps": 1e-5, **fields}


def rope(theta, kind="default", **fields):
    return {"rope_type": kind, "rope_theta": float(theta), **fields}


# emb, hidden, layers, heads, kv_heads, head_dim, tied: the shape; the rest goes to the HF config.
FIXTURES = {
    "llama3": llama(
        shape=(256, 256, 2, 4, 2, 64, True), tokenizer="llama3", dtype="bfloat16",
        rope_parameters=rope(500000, "llama3", factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=32)),
    "llama-linear": llama(
        shape=(64, 128, 2, 2, 2, 32, False), tokenizer="llama3", dtype="bfloat16",
        rope_parameters=rope(10000, "linear", factor=2.0)),
    "llama2": llama(
        shape=(64, 192, 2, 4, 2, 16, False), tokenizer="llama2", dtype="float16",
        rope_parameters=rope(10000)),
    "smollm2": llama(
        shape=(64, 64, 2, 4, 4, 16, True), tokenizer="smollm2", dtype="float32",
        rope_parameters=rope(130000)),
    "mistral": {
        "class": "MistralForCausalLM", "config": "MistralConfig", "rms_norm_eps": 1e-5,
        "shape": (256, 256, 1, 8, 2, 32, False), "tokenizer": "mistral", "dtype": "bfloat16",
        "rope_parameters": rope(1000000), "sliding_window": None},
    "qwen2": {
        "class": "Qwen2ForCausalLM", "config": "Qwen2Config", "rms_norm_eps": 1e-6,
        "shape": (64, 128, 2, 4, 2, 16, True), "tokenizer": "qwen2", "dtype": "bfloat16",
        "rope_parameters": rope(1000000)},
    "qwen3": {
        "class": "Qwen3ForCausalLM", "config": "Qwen3Config", "rms_norm_eps": 1e-6,
        "shape": (64, 128, 2, 6, 2, 32, False), "tokenizer": "qwen2", "dtype": "bfloat16",
        "rope_parameters": rope(1000000), "jinja_file": True},
    # Heads of 128, which an NPU's attention takes head by head.
    "llama3-wide": llama(
        shape=(128, 192, 2, 2, 1, 128, False), tokenizer="llama3", dtype="bfloat16",
        rope_parameters=rope(500000, "llama3", factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=32)),
    "qwen2-wide": {
        "class": "Qwen2ForCausalLM", "config": "Qwen2Config", "rms_norm_eps": 1e-6,
        "shape": (256, 192, 2, 2, 1, 128, True), "tokenizer": "qwen2", "dtype": "bfloat16",
        "rope_parameters": rope(1000000)},
    "qwen3-wide": {
        "class": "Qwen3ForCausalLM", "config": "Qwen3Config", "rms_norm_eps": 1e-6,
        "shape": (128, 192, 2, 4, 2, 128, True), "tokenizer": "qwen2", "dtype": "bfloat16",
        "rope_parameters": rope(1000000)},
    "granite": {
        "class": "GraniteForCausalLM", "config": "GraniteConfig", "rms_norm_eps": 1e-5,
        "shape": (64, 128, 2, 4, 2, 16, True), "tokenizer": "smollm2", "dtype": "bfloat16",
        "rope_parameters": rope(10000), "embedding_multiplier": 4.0, "residual_multiplier": 0.5,
        "attention_multiplier": 0.125, "logits_scaling": 2.0},
    "olmo2": {
        "class": "Olmo2ForCausalLM", "config": "Olmo2Config", "rms_norm_eps": 1e-6,
        "shape": (64, 128, 2, 4, 2, 16, False), "tokenizer": "qwen2", "dtype": "bfloat16",
        "rope_parameters": rope(500000)},
    "smollm3": {
        "class": "SmolLM3ForCausalLM", "config": "SmolLM3Config", "rms_norm_eps": 1e-6,
        "shape": (64, 128, 4, 4, 2, 16, True), "tokenizer": "llama3", "dtype": "bfloat16",
        "rope_parameters": rope(5000000), "no_rope_layer_interval": 4, "pad_token_id": 0},
    # Prompts of 48 to 56 tokens: all beyond the original context, so with the long factors.
    "phi3": {
        "class": "Phi3ForCausalLM", "config": "Phi3Config", "rms_norm_eps": 1e-5,
        "shape": (64, 128, 2, 4, 2, 16, False), "tokenizer": "llama2", "dtype": "bfloat16",
        "original_max_position_embeddings": 32, "partial_rotary_factor": 0.75,
        "sliding_window": None, "pad_token_id": 0,
        "rope_parameters": rope(10000, "longrope", short_factor=[1.0, 1.0, 1.1, 1.2, 1.3, 1.5],
                                long_factor=[1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
                                original_max_position_embeddings=32,
                                partial_rotary_factor=0.75)},
}
FIXTURES.update({
    "mistral-window": {
        "class": "MistralForCausalLM", "config": "MistralConfig", "rms_norm_eps": 1e-5,
        "shape": (64, 128, 2, 4, 2, 16, False), "tokenizer": "mistral", "dtype": "bfloat16",
        "rope_parameters": rope(10000), "sliding_window": 16},
    "gemma2": {
        "class": "Gemma2ForCausalLM", "config": "Gemma2Config", "rms_norm_eps": 1e-6,
        "shape": (128, 128, 2, 4, 2, 32, True), "tokenizer": "llama2", "dtype": "bfloat16",
        "rope_parameters": rope(10000), "sliding_window": 16, "query_pre_attn_scalar": 48,
        "attn_logit_softcapping": 5.0, "final_logit_softcapping": 50.0,
        "hidden_activation": "gelu_pytorch_tanh"},
    "gemma3": {
        "class": "Gemma3ForCausalLM", "config": "Gemma3TextConfig", "rms_norm_eps": 1e-6,
        "shape": (128, 128, 4, 4, 1, 32, True), "tokenizer": "llama2", "dtype": "bfloat16",
        "sliding_window": 16, "query_pre_attn_scalar": 48,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_parameters": {"sliding_attention": rope(10000),
                            "full_attention": rope(1000000, "linear", factor=8.0)},
        "hidden_activation": "gelu_pytorch_tanh"},
    "mixtral": {
        "class": "MixtralForCausalLM", "config": "MixtralConfig", "rms_norm_eps": 1e-5,
        "shape": (64, 96, 2, 4, 2, 16, False), "tokenizer": "mistral", "dtype": "bfloat16",
        "rope_parameters": rope(1000000), "sliding_window": None, "num_local_experts": 4,
        "num_experts_per_tok": 2},
    "qwen3-moe": {
        "class": "Qwen3MoeForCausalLM", "config": "Qwen3MoeConfig", "rms_norm_eps": 1e-6,
        "shape": (64, 128, 2, 4, 2, 32, False), "tokenizer": "qwen2", "dtype": "bfloat16",
        "rope_parameters": rope(1000000), "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 64, "norm_topk_prob": True, "decoder_sparse_step": 1,
        "mlp_only_layers": []},
    "gpt-oss": {
        "class": "GptOssForCausalLM", "config": "GptOssConfig", "rms_norm_eps": 1e-5,
        "shape": (64, 64, 2, 4, 2, 32, False), "tokenizer": "smollm2", "dtype": "bfloat16",
        "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": rope(150000, "yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                truncate=False, original_max_position_embeddings=32)},
    "cohere": {
        "class": "CohereForCausalLM", "config": "CohereConfig", "layer_norm_eps": 1e-5,
        "shape": (64, 128, 2, 4, 2, 16, True), "tokenizer": "smollm2", "dtype": "bfloat16",
        "rope_parameters": rope(10000), "logit_scale": 0.5, "pad_token_id": 0},
    "llama-yarn": llama(
        shape=(64, 128, 2, 2, 2, 32, False), tokenizer="llama3", dtype="bfloat16",
        rope_parameters=rope(10000, "yarn", factor=4.0, original_max_position_embeddings=32)),
})
# Layers with a state, of two kinds at least. The key heads are fewer than the value heads.
FIXTURES.update({
    "qwen3.5": {
        "class": "Qwen3_5ForCausalLM", "config": "Qwen3_5TextConfig", "rms_norm_eps": 1e-6,
        "shape": (64, 96, 4, 4, 2, 32, False), "tokenizer": "qwen2", "dtype": "bfloat16",
        "rope_parameters": rope(10000000, partial_rotary_factor=0.25, mrope_section=[2, 1, 1],
                                mrope_interleaved=True),
        "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4},
    "qwen3.5-moe": {
        "class": "Qwen3_5MoeForCausalLM", "config": "Qwen3_5MoeTextConfig", "rms_norm_eps": 1e-6,
        "shape": (64, 64, 4, 4, 2, 32, False), "tokenizer": "qwen2", "dtype": "bfloat16",
        "rope_parameters": rope(10000000, partial_rotary_factor=0.25, mrope_section=[2, 1, 1],
                                mrope_interleaved=True),
        "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 64, "shared_expert_intermediate_size": 32},
    "qwen3-next": {
        "class": "Qwen3NextForCausalLM", "config": "Qwen3NextConfig", "rms_norm_eps": 1e-6,
        "shape": (64, 96, 4, 4, 2, 32, False), "tokenizer": "qwen2", "dtype": "bfloat16",
        "rope_parameters": rope(10000000, partial_rotary_factor=0.25),
        "linear_key_head_dim": 16, "linear_value_head_dim": 32, "linear_num_key_heads": 2,
        "linear_num_value_heads": 6, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64,
        "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []},
    "granite-hybrid": {
        "class": "GraniteMoeHybridForCausalLM", "config": "GraniteMoeHybridConfig",
        "rms_norm_eps": 1e-5, "shape": (64, 64, 3, 4, 2, 16, True), "tokenizer": "smollm2",
        "dtype": "bfloat16", "rope_parameters": rope(10000), "position_embedding_type": "nope",
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "embedding_multiplier": 4.0, "residual_multiplier": 0.5, "attention_multiplier": 0.125,
        "logits_scaling": 2.0, "num_local_experts": 4, "num_experts_per_tok": 2,
        "shared_intermediate_size": 96, "mamba_n_heads": 4, "mamba_d_head": 32,
        "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
        "mamba_chunk_size": 16, "pad_token_id": 0},
    "nemotron-h": {
        "class": "NemotronHForCausalLM", "config": "NemotronHConfig", "layer_norm_epsilon": 1e-5,
        "shape": (64, 96, 5, 4, 2, 16, False), "tokenizer": "llama3", "dtype": "bfloat16",
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp",
                              "linear_attention"],
        "ssm_state_size": 16, "mamba_num_heads": 4, "mamba_head_dim": 32, "n_groups": 2,
        "conv_kernel": 4, "expand": 2, "chunk_size": 16, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 64, "routed_scaling_factor": 2.5, "n_group": 1,
        "topk_group": 1, "norm_topk_prob": True, "pad_token_id": 0},
    "lfm2": {
        "class": "Lfm2ForCausalLM", "config": "Lfm2Config", "norm_eps": 1e-5,
        "shape": (64, 96, 3, 4, 2, 16, True), "tokenizer": "smollm2", "dtype": "bfloat16",
        "rope_parameters": rope(1000000), "layer_types": ["conv", "full_attention", "conv"],
        "block_auto_adjust_ff_dim": False, "pad_token_id": 0},
    "lfm2-moe": {
        "class": "Lfm2MoeForCausalLM", "config": "Lfm2MoeConfig", "norm_eps": 1e-5,
        "shape": (64, 96, 3, 4, 2, 16, True), "tokenizer": "smollm2", "dtype": "bfloat16",
        "rope_parameters": rope(1000000), "layer_types": ["conv", "full_attention", "conv"],
        "num_dense_layers": 1, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "use_expert_bias": True, "norm_topk_prob": True,
        "routed_scaling_factor": 1.0, "pad_token_id": 0},
})
# A second copy of a checkpoint: split into shards, and with config.json in its older spelling.
SHARDED = ("qwen2-sharded", "qwen2", 64 * 1024)


def write_json(path, value):
    """One line per field, and one per entry of a list of objects: readable diffs, small files."""
    def field(v):
        if isinstance(v, list) and v and isinstance(v[0], dict):
            return "[\n" + ",\n".join("  " + json.dumps(e) for e in v) + "\n ]"
        return json.dumps(v)

    lines = [f" {json.dumps(k)}: {field(v)}" for k, v in value.items()]
    Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def is_transposed(name, fixture):
    """gpt-oss keeps its experts' matrices with their inputs as rows."""
    return fixture["class"] == "GptOssForCausalLM" and "experts." in name


def is_convolution(name):
    return name.endswith(("conv1d.weight", "conv.conv.weight"))


def adds_one(name, fixture):
    """Norms that hold what is added to one."""
    return (name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight") and
            fixture["class"].startswith(("Gemma", "Qwen3_5", "Qwen3Next")))


def weight_std(name, tensor, fixture):
    for suffix, (std, _) in FADING.items():
        if name.endswith(suffix):
            return std
    if name.endswith("bias"):
        return BIAS_STD
    if name.endswith("sinks"):
        return SINK_STD
    if name.endswith(("norm.weight", "norm_f.weight")):
        return NORM_STD
    if name.endswith(("embed_tokens.weight", "embeddings.weight")):
        return EMBEDDING_STD
    gain = next(g for suffix, g in GAINS.items() if name.endswith(suffix))
    return gain / math.sqrt(tensor.shape[-2 if is_transposed(name, fixture) else -1])


def make_model(name, tokenizer):
    """The f32 model; its weights are exact in the type the checkpoint is stored in."""
    fixture = FIXTURES[name]
    spec = TOKENIZERS[fixture["tokenizer"]]
    emb, hidden, layers, heads, kv_heads, head_dim, tied = fixture["shape"]
    known = ("class", "config", "shape", "tokenizer", "dtype", "jinja_file")
    fields = {k: copy.deepcopy(v) for k, v in fixture.items() if k not in known}
    if fixture["config"] not in ("Qwen2Config", "CohereConfig", "GraniteMoeHybridConfig",
                                 "Lfm2Config", "Lfm2MoeConfig"):
        # There it is always emb / heads.
        fields["head_dim"] = head_dim
    if fixture["config"] != "Qwen3_5MoeTextConfig":  # all of its layers have experts
        fields["intermediate_size"] = hidden
    stop = [tokenizer.convert_tokens_to_ids(t) for t in spec["stop"]]
    config = getattr(transformers, fixture["config"])(
        vocab_size=spec.get("model_vocab", spec["vocab"]), hidden_size=emb,
        num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, max_position_embeddings=128, tie_word_embeddings=tied,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=stop if len(stop) > 1 else stop[0],
        **fields)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = getattr(transformers, fixture["class"])(config).float().eval()
    with torch.no_grad():
        # A router's bias is a buffer.
        biases = [(n, b) for n, b in model.named_buffers() if n.endswith("bias")]
        for weight_name, weight in [*model.named_parameters(), *biases]:
            generator = torch.Generator().manual_seed(seed_of(name, weight_name))
            values = (torch.rand(weight.shape, generator=generator) * 2 - 1) * math.sqrt(3)
            values *= weight_std(weight_name, weight, fixture)
            if weight_name.endswith(("norm.weight", "norm_f.weight")):
                values += 1.0
            values += next((mean for end, (_, mean) in FADING.items() if weight_name.endswith(end)),
                           0.0)
            if tied and weight_name in FINAL_NORMS:
                # Without the signs a tied head would give every token back as its own successor.
                values *= torch.randint(2, values.shape, generator=generator) * 2 - 1
            if adds_one(weight_name, fixture):
                values -= 1.0
            values = values.to(torch.bfloat16).to(getattr(torch, fixture["dtype"])).float()
            assert torch.equal(values, values.to(torch.bfloat16).float())
            weight.copy_(values)
    assert tied == (model.lm_head.weight is model.get_input_embeddings().weight)
    return model


def logits_of(model, prompts):
    """[prompt, position, vocab]; the prompts are of one length."""
    with torch.no_grad():
        return model(torch.tensor(prompts), use_cache=False).logits


def margins(logits):
    top = logits.topk(2, dim=-1).values
    span = logits.max(dim=-1).values - logits.min(dim=-1).values
    return (top[..., 0] - top[..., 1]) / span


def greedy(model, prompts):
    """Continuations by argmax that never stop: (ids, margins) of each prompt, all of one length."""
    rows, steps = [], []
    tokens, past = torch.tensor(prompts), None
    for _ in range(CONTINUATION):
        with torch.no_grad():
            out = model(tokens, past_key_values=past, use_cache=True, logits_to_keep=1)
        past, last = out.past_key_values, out.logits[:, -1]
        tokens = last.argmax(-1, keepdim=True)
        rows.append(tokens[:, 0])
        steps.append(margins(last))
    return list(zip(torch.stack(rows, 1).tolist(), torch.stack(steps, 1).tolist()))


def clear_steps(values):
    return next((i for i, m in enumerate(values) if m < CLEAR_MARGIN), len(values))


def candidate_prompts(tokenizer, name, index):
    """(text or None, ids) of each; a text is longer than the prompt, whose ids are its first."""
    kind, length = PROMPTS[index]
    backend = tokenizer.backend_tokenizer
    if kind == "text":
        texts = [" ".join([a, b, PROMPT_TEXT]) for a in SENTENCES for b in SENTENCES]
        return [(t, backend.encode(t).ids[:length]) for t in texts]
    rng = random.Random(seed_of(name, "prompt", index))
    start = backend.encode("").ids
    size = backend.get_vocab_size()
    return [(None, start + [rng.randrange(size) for _ in range(length - len(start))])
            for _ in range(CANDIDATES)]


def choose_prompt(model, tokenizer, name, index):
    """The candidate that says most before a step comes that another engine may decide otherwise."""
    def worth(continuation):
        ids, steps = continuation
        clear = clear_steps(steps)
        return len(set(ids[:clear])), clear

    tries = candidate_prompts(tokenizer, name, index)
    worths = [worth(c) for c in greedy(model, [ids for _, ids in tries])]
    return tries[worths.index(max(worths))]


def cosine(a, b):
    return torch.nn.functional.cosine_similarity(a.double(), b.double(), dim=-1)


def check_rope_matters(name, model, ids, expected):
    """A reader that forgets the scaling of the rope must be far outside the tests' tolerance."""
    scaled = FIXTURES[name].get("rope_parameters")
    if scaled is None or scaled.get("rope_type") == "default":
        return
    config = copy.deepcopy(model.config)
    if "rope_type" in scaled:
        config.rope_parameters = rope(config.rope_parameters["rope_theta"])
    else:  # by kind of layer
        config.rope_parameters = {kind: rope(one["rope_theta"]) for kind, one in scaled.items()}
    plain = type(model)(config).float().eval()
    plain.load_state_dict(model.state_dict())
    difference = (logits_of(plain, [ids])[0] - expected).abs().max()
    assert difference > 0.02 * expected.abs().max(), (name, difference)


def rounded_to_4_bits(model, fixture):
    """Every matrix through blocks of 32 with one f16 scale: how far logits may move."""
    small = copy.deepcopy(model)
    with torch.no_grad():
        for name, weight in small.named_parameters():
            if weight.dim() < 2 or name.endswith("bias") or is_convolution(name):
                continue
            turned = is_transposed(name, FIXTURES[fixture])
            rows = weight.transpose(-1, -2).contiguous() if turned else weight
            blocks = rows.reshape(-1, 32)
            largest = blocks.gather(1, blocks.abs().argmax(1, keepdim=True))
            scale = largest / -8
            stored = scale.half().float()
            codes = (blocks / scale + 8.5).floor().clamp(0, 15) - 8
            rounded = (codes * stored).reshape(rows.shape)
            weight.copy_(rounded.transpose(-1, -2) if turned else rounded)
    return small


def check_cached_decode(model, ids, expected):
    """Prefill 40, prefill the rest but 4, then one by one: the cache must not change the logits."""
    # 40 positions are more than any fixture's original context: a longrope turns all alike.
    past, rows, cuts = None, [], [0, 40, len(ids) - 4, *range(len(ids) - 3, len(ids) + 1)]
    with torch.no_grad():
        for a, b in zip(cuts, cuts[1:]):
            out = model(torch.tensor([ids[a:b]]), past_key_values=past, use_cache=True)
            past = out.past_key_values
            rows.append(out.logits[0])
    assert (torch.cat(rows) - expected).abs().max() < 1e-4 * expected.abs().max()


def expected_values(name, model, tokenizer, model_dir, out):
    in_f64 = copy.deepcopy(model).double()
    in_bf16 = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16,
                                                   attn_implementation="eager")
    in_4_bits = rounded_to_4_bits(model, name)
    prompts = []
    for index, (kind, _) in enumerate(PROMPTS):
        text, ids = choose_prompt(model, tokenizer, name, index)
        logits = logits_of(model, [ids])[0]
        bf16 = logits_of(in_bf16, [ids])[0].float()
        check_cached_decode(model, ids, logits)
        check_rope_matters(name, model, ids, logits)
        (tokens, steps), = greedy(model, [ids])
        whole = logits_of(model, [ids + tokens])[0, len(ids) - 1:-1]
        assert whole.argmax(-1).tolist() == tokens
        file = f"logits-{index}.f32"
        (out / file).write_bytes(logits.contiguous().numpy().astype("<f4").tobytes())
        four_bits = logits_of(in_4_bits, [ids])[0]
        prompts.append({
            "kind": kind, "text": text, "ids": ids,
            "logits": file, "shape": list(logits.shape), "max_abs": logits.abs().max().item(),
            "argmax": logits.argmax(-1).tolist(),
            "margin": [round(m, 7) for m in margins(logits).tolist()],
            "greedy": tokens, "greedy_margin": [round(m, 7) for m in steps],
            "greedy_clear": clear_steps(steps),
            "argmax_bf16": bf16.argmax(-1).tolist(),
            "f64_difference": (logits_of(in_f64, [ids])[0] - logits).abs().max().item(),
            "bf16_cosine_min": cosine(bf16, logits).min().item(),
            "q4_cosine_min": cosine(four_bits, logits).min().item(),
            "q4_cosine": cosine(four_bits.flatten(), logits.flatten()).item()})
    return prompts


OLDER_LAYERS = {"linear_attention": "mamba", "full_attention": "attention"}
LETTERS = {"linear_attention": "M", "moe": "E", "full_attention": "*", "mlp": "-"}


def older_layers(config, old):
    """Which kind each layer is, as older files have it."""
    kind = config["model_type"]
    if kind.startswith("qwen3_") and "linear_num_key_heads" in config:
        old["full_attention_interval"] = 1 + config["layer_types"].index("full_attention")
    elif kind == "granitemoehybrid":
        old["layer_types"] = [OLDER_LAYERS[each] for each in config["layer_types"]]
    elif kind == "nemotron_h":
        old["hybrid_override_pattern"] = "".join(LETTERS[e] for e in old.pop("layers_block_type"))
    elif kind == "lfm2":
        old["full_attn_idxs"] = [i for i, each in enumerate(config["layer_types"])
                                 if each == "full_attention"]
    elif kind == "lfm2_moe":
        old["layer_types"] = config["layer_types"]


def legacy_config(config):
    """config.json as written before transformers 5: rope_theta and rope_scaling, torch_dtype."""
    old = {k: v for k, v in config.items() if k not in ("rope_parameters", "dtype", "layer_types")}
    old["torch_dtype"] = config["dtype"]
    older_layers(config, old)
    if "rope_parameters" not in config:
        return dict(sorted(old.items()))
    parameters = dict(config["rope_parameters"])
    if config["model_type"].startswith("qwen3_"):
        old["partial_rotary_factor"] = parameters.get("partial_rotary_factor")
    if "full_attention" in parameters:  # Gemma 3
        del old["_sliding_window_pattern"]
        old["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
        old["sliding_window_pattern"] = 1 + config["layer_types"].index("full_attention")
        parameters = dict(parameters["full_attention"])
    old["rope_theta"] = parameters.pop("rope_theta")
    kind = parameters.pop("rope_type")
    key = "type" if kind == "linear" and "rope_local_base_freq" not in old else "rope_type"
    old["rope_scaling"] = None if kind == "default" else {key: kind, **parameters}
    is_implied = config.get("head_dim") == config["hidden_size"] // config["num_attention_heads"]
    if is_implied and not config["model_type"].startswith("gemma"):
        del old["head_dim"]
    return dict(sorted(old.items()))


def check_reload(model, model_dir, legacy):
    """What was saved, read back with either spelling of the config, computes the same logits."""
    prompt = [list(range(100, 180))]
    expected = logits_of(model, prompt)
    with tempfile.TemporaryDirectory() as other:
        shutil.copytree(model_dir, other, dirs_exist_ok=True)
        (Path(other) / "config.json").write_text(json.dumps(legacy))
        for folder in (model_dir, other):
            again = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                         attn_implementation="eager")
            kept = again.state_dict()
            assert all(torch.equal(kept[k], v) for k, v in model.state_dict().items()), folder
            difference = (logits_of(again, prompt) - expected).abs().max()
            assert difference < 1e-5 * expected.abs().max(), folder


def save(name, model, tokenizer, model_dir, **options):
    fixture = FIXTURES[name]
    stored = copy.deepcopy(model).to(getattr(torch, fixture["dtype"]))
    stored.save_pretrained(model_dir, **options)
    tokenizer.save_pretrained(model_dir, save_jinja_files=fixture.get("jinja_file", False))
    return legacy_config(json.loads((model_dir / "config.json").read_text()))


EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps")


def make_fixture(name, tokenizer, out):
    fixture = FIXTURES[name]
    folder = out / name
    model_dir = folder / "model"
    model_dir.mkdir(parents=True)
    model = make_model(name, tokenizer)
    legacy = save(name, model, tokenizer, model_dir)
    (folder / "config.legacy.json").write_text(json.dumps(legacy, indent=2) + "\n")
    check_reload(model, model_dir, legacy)
    prompts = expected_values(name, model, tokenizer, model_dir, folder)
    write_json(folder / "expected.json", {"fixture": name, "prompts": prompts})
    for p in prompts:
        print(f"{name:13} {p['kind']:6} max {p['max_abs']:6.2f} clear {p['greedy_clear']:2} "
              f"distinct {len(set(p['greedy'])):2} "
              f"f64 {p['f64_difference'] / p['max_abs']:.1e} bf16 {p['bf16_cosine_min']:.5f} "
              f"q4 {p['q4_cosine']:.4f} (min {p['q4_cosine_min']:.4f})", flush=True)
    keys = ("emb", "hidden", "layers", "heads", "kv_heads", "head_dim", "tied")
    entries = [{
        "name": name, "model": f"{name}/model", "expected": f"{name}/expected.json",
        "legacy_config": f"{name}/config.legacy.json", "architecture": fixture["class"],
        "tokenizer": f"tokenizers/{fixture['tokenizer']}.json", "dtype": fixture["dtype"],
        "vocab": model.config.vocab_size, **dict(zip(keys, fixture["shape"])),
        "rope": fixture.get("rope_parameters"),
        "eps": next(fixture[key] for key in EPSILONS if key in fixture),
        "tensors": check_tensors(model_dir), "sharded": False}]
    copy_name, original, shard_bytes = SHARDED
    if name == original:
        shard_dir = out / copy_name / "model"
        legacy = save(name, model, tokenizer, shard_dir, max_shard_size=shard_bytes)
        (shard_dir / "config.json").write_text(json.dumps(legacy, indent=2) + "\n")
        check_reload(model, shard_dir, legacy)
        entries.append({**entries[0], "name": copy_name, "model": f"{copy_name}/model",
                        "legacy_config": f"{copy_name}/model/config.json", "sharded": True})
    return entries


# Frequencies of scaled ropes by themselves: [scaling, head width, context, length of the sequence].
ROPE_CASES = [
    (rope(10000, "yarn", factor=4.0, original_max_position_embeddings=32), 32, 128, 128),
    (rope(1000000, "yarn", factor=4.0, original_max_position_embeddings=32768), 128, 131072, 40000),
    (rope(150000, "yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
          original_max_position_embeddings=4096), 64, 131072, 131072),
    (rope(10000, "yarn", factor=8.0, attention_factor=1.25,
          original_max_position_embeddings=4096), 64, 32768, 32768),
    (rope(10000, "yarn", factor=40.0, mscale=0.707, mscale_all_dim=0.5,
          original_max_position_embeddings=4096), 64, 163840, 163840),
    (rope(10000, "dynamic", factor=2.0), 64, 2048, 1024),
    (rope(10000, "dynamic", factor=2.0), 64, 2048, 4096),
    (rope(500000, "dynamic", factor=4.0), 128, 4096, 16384),
]


def rope_cases():
    cases = []
    for parameters, head_dim, context, length in ROPE_CASES:
        config = transformers.LlamaConfig(
            hidden_size=4 * head_dim, num_attention_heads=4, head_dim=head_dim,
            max_position_embeddings=context, rope_parameters=copy.deepcopy(parameters))
        compute = ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
        frequencies, factor = compute(config, "cpu", seq_len=length)
        cases.append({"rope": parameters, "head_dim": head_dim, "context": context,
                      "length": length, "frequencies": frequencies.tolist(),
                      "attention_factor": float(factor)})
    return cases


def set_up():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("highest")
    transformers.utils.logging.disable_progress_bar()


def make_one(name, out):
    set_up()
    return make_fixture(name, make_tokenizer(FIXTURES[name]["tokenizer"]), out)


def make(out, names, jobs):
    set_up()
    if out.exists() and any(out.iterdir()):
        sys.exit(f"{out} is not empty")
    (out / "tokenizers").mkdir(parents=True)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        entries = [e for made in pool.map(make_one, names, [out] * len(names)) for e in made]
    write_json(out / "rope.json", {"cases": rope_cases()})
    for kind in TOKENIZERS:
        tokenizer = make_tokenizer(kind)
        users = [e["name"] for e in entries if e["tokenizer"] == f"tokenizers/{kind}.json"]
        write_json(out / "tokenizers" / f"{kind}.json", tokenizer_goldens(kind, tokenizer, users))
    versions = {m.__name__: m.__version__ for m in (torch, transformers, tokenizers)}
    versions["python"] = sys.version.split()[0]
    write_json(out / "index.json", {
        "made_by": "tools/make_goldens.py", "seed": SEED, "versions": versions,
        "computed": "float32 on the CPU, eager attention, one thread",
        "fixtures": entries, "files": file_table(out)})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="a new or empty folder")
    parser.add_argument("--only", nargs="+", choices=FIXTURES, default=list(FIXTURES),
                        metavar="NAME", help="these fixtures; the index then lists no others")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    args = parser.parse_args()
    make(args.out, args.only, args.jobs)
    check(args.out)


if __name__ == "__main__":
    main()
