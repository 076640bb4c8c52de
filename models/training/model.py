"""Owlet's network for training. Names and arithmetic are those of LlamaForCausalLM, so that the
weights load into transformers as they are."""

import json
import math

import torch
import torch.nn.functional as F
from torch import nn

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "vocab_size": 4096, "hidden_size": 512, "intermediate_size": 768, "num_hidden_layers": 5,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "rope_theta": 10000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                     "high_freq_factor": 4.0, "original_max_position_embeddings": 512},
    "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
    "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True,
    "bos_token_id": 4091, "eos_token_id": [4092, 4095], "torch_dtype": "bfloat16",
}
GENERATION = {"bos_token_id": 4091, "eos_token_id": [4092, 4095], "pad_token_id": 4092,
              "do_sample": True, "temperature": 0.7, "top_p": 0.9}


def rope_frequencies(config):
    """Llama-3 scaling: long waves are stretched by the factor, short ones kept, blended between."""
    scaling, size = config["rope_scaling"], config["head_dim"]
    low = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
    high = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
    frequencies = []
    for i in range(0, size, 2):
        frequency = config["rope_theta"] ** (-i / size)
        wave = 2 * math.pi / frequency
        if wave > low:
            frequency /= scaling["factor"]
        elif wave >= high:
            blend = (low / wave * scaling["low_freq_factor"] - scaling["low_freq_factor"]) / (
                scaling["high_freq_factor"] - scaling["low_freq_factor"])
            frequency = (1 - blend) * frequency / scaling["factor"] + blend * frequency
        frequencies.append(frequency)
    return torch.tensor(frequencies, dtype=torch.float32)


def rope_tables(config, length):
    angles = torch.outer(torch.arange(length, dtype=torch.float32), rope_frequencies(config))
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x * cos + turned * sin).to(x.dtype)


class Norm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config["hidden_size"]))
        self.eps = config["rms_norm_eps"]

    def forward(self, x):
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, size = config["hidden_size"], config["head_dim"]
        self.size = size
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.q_proj = nn.Linear(hidden, self.heads * size, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * size, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * size, bias=False)
        self.o_proj = nn.Linear(self.heads * size, hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        share = self.heads // self.kv_heads
        k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(config), Norm(config)
        self.self_attn, self.mlp = Attention(config), FeedForward(config)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Owlet(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        body = nn.Module()
        body.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        body.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        body.norm = Norm(config)
        self.model = body
        cos, sin = rope_tables(config, config["max_position_embeddings"])
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.start()

    def start(self):
        deep = 0.02 / math.sqrt(2 * self.config["num_hidden_layers"])
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                ends_block = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=deep if ends_block else 0.02)

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        cos, sin = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)


def loss_of(network, rows):
    logits = network(rows[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


def save(network, out):
    """Writes the checkpoint as transformers reads it, weights in bf16."""
    from safetensors.torch import save_file
    weights = {name: weight.detach().to("cpu", torch.bfloat16).contiguous()
               for name, weight in network.named_parameters()}
    save_file(weights, str(out / "model.safetensors"), metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(network.config, indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps(GENERATION, indent=2) + "\n")
