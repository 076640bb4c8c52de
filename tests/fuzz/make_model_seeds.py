#!/usr/bin/env python3
"""Writes the seeds of fuzz_gguf, fuzz_safetensors and fuzz_imatrix: small valid files and a few broken ones."""
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"
U8, U32, I32, F32, BOOL, STRING, ARRAY = 0, 4, 5, 6, 7, 8, 9
GGML_F32, GGML_Q4_0, GGML_Q8_0 = 0, 2, 8
BLOCKS = {GGML_F32: (1, 4), GGML_Q4_0: (32, 18), GGML_Q8_0: (32, 34)}


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, content):
    pack = {U8: "<B", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}
    if kind == STRING:
        return text(content)
    return struct.pack(pack[kind], content)


def entry(key, kind, content):
    if isinstance(content, list):
        body = struct.pack("<IIQ", ARRAY, kind, len(content))
        return text(key) + body + b"".join(value(kind, each) for each in content)
    return text(key) + struct.pack("<I", kind) + value(kind, content)


def gguf(metadata, tensors):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata)
    offset, records, data = 0, b"", b""
    for name, extents, kind in tensors:
        records += text(name) + struct.pack("<I", len(extents))
        records += b"".join(struct.pack("<Q", each) for each in extents)
        records += struct.pack("<IQ", kind, offset)
        per_block, block_bytes = BLOCKS[kind]
        size = block_bytes * (extents[0] // per_block)
        for each in extents[1:]:
            size *= each
        size = (size + 31) // 32 * 32
        data += bytes([60]) * size
        offset += size
    head += records
    return head + bytes(-len(head) % 32) + data


def config(arch, emb, hidden, heads, kv_heads, head_dim):
    return [
        entry("general.architecture", STRING, arch),
        entry("general.name", STRING, "seed"),
        entry(f"{arch}.block_count", U32, 1),
        entry(f"{arch}.context_length", U32, 64),
        entry(f"{arch}.embedding_length", U32, emb),
        entry(f"{arch}.feed_forward_length", U32, hidden),
        entry(f"{arch}.attention.head_count", U32, heads),
        entry(f"{arch}.attention.head_count_kv", U32, kv_heads),
        entry(f"{arch}.attention.key_length", U32, head_dim),
        entry(f"{arch}.attention.layer_norm_rms_epsilon", F32, 1e-5),
        entry(f"{arch}.rope.freq_base", F32, 10000.0),
    ]


def weights(kind, emb, hidden, heads, kv_heads, head_dim, vocab, more=()):
    q, kv = heads * head_dim, kv_heads * head_dim
    vectors = [("output_norm.weight", emb), ("blk.0.attn_norm.weight", emb), ("blk.0.ffn_norm.weight", emb)]
    for name in more:
        vectors.append((name, {"q.bias": q, "k.bias": kv, "v.bias": kv}.get(name[-6:], head_dim)))
    matrices = [
        ("token_embd.weight", emb, vocab),
        ("blk.0.attn_q.weight", emb, q),
        ("blk.0.attn_k.weight", emb, kv),
        ("blk.0.attn_v.weight", emb, kv),
        ("blk.0.attn_output.weight", q, emb),
        ("blk.0.ffn_gate.weight", emb, hidden),
        ("blk.0.ffn_up.weight", emb, hidden),
        ("blk.0.ffn_down.weight", hidden, emb),
    ]
    return [(n, [c], GGML_F32) for n, c in vectors] + [(n, [c, r], kind) for n, c, r in matrices]


def byte_level():
    return [
        entry("tokenizer.ggml.model", STRING, "gpt2"),
        entry("tokenizer.ggml.pre", STRING, "llama-bpe"),
        entry("tokenizer.ggml.tokens", STRING, ["a", "b", "ab", "<|eot_id|>", "<x>"]),
        entry("tokenizer.ggml.token_type", I32, [1, 1, 1, 3, 4]),
        entry("tokenizer.ggml.merges", STRING, ["a b"]),
        entry("tokenizer.ggml.bos_token_id", U32, 3),
        entry("tokenizer.ggml.eos_token_id", U32, 3),
        entry("tokenizer.ggml.add_bos_token", BOOL, True),
        entry("tokenizer.chat_template", STRING, "{{ x }}"),
    ]


def sentencepiece():
    return [
        entry("tokenizer.ggml.model", STRING, "llama"),
        entry("tokenizer.ggml.tokens", STRING, ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581"]),
        entry("tokenizer.ggml.scores", F32, [0.0, 0.0, 0.0, 0.0, -1.0]),
        entry("tokenizer.ggml.token_type", I32, [2, 3, 3, 6, 1]),
        entry("tokenizer.ggml.unknown_token_id", U32, 0),
        entry("tokenizer.ggml.add_space_prefix", BOOL, False),
    ]


def charsmap():
    """SentencePiece's table for "A" to "a": the root's children lie behind it, the value behind those."""
    units = [0] * 768
    units[0] = 256 << 10
    units[256 ^ 65] = ((256 ^ 65) ^ 512) << 10 | 1 << 8 | 65
    units[512] = 1 << 31
    table = struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + b"a\0"
    return list(table)


def unigram():
    return [
        entry("tokenizer.ggml.model", STRING, "t5"),
        entry("tokenizer.ggml.tokens", STRING, ["<pad>", "</s>", "<unk>", "\u2581", "a", "\u2581a", "b"]),
        entry("tokenizer.ggml.scores", F32, [0.0, 0.0, 0.0, -2.0, -1.5, -3.0, -2.5]),
        entry("tokenizer.ggml.token_type", I32, [3, 3, 2, 1, 1, 1, 1]),
        entry("tokenizer.ggml.unknown_token_id", U32, 2),
        entry("tokenizer.ggml.eos_token_id", U32, 1),
        entry("tokenizer.ggml.add_space_prefix", BOOL, True),
        entry("tokenizer.ggml.remove_extra_whitespaces", BOOL, True),
        entry("tokenizer.ggml.precompiled_charsmap", U8, charsmap()),
    ]


def word_piece():
    return [
        entry("tokenizer.ggml.model", STRING, "bert"),
        entry("tokenizer.ggml.tokens", STRING, ["[UNK]", "[CLS]", "[SEP]", "\u2581he", "llo", "\u2581'"]),
        entry("tokenizer.ggml.token_type", I32, [3, 3, 3, 1, 1, 1]),
        entry("tokenizer.ggml.normalizer.lowercase", BOOL, True),
    ]


def rwkv():
    letters = [chr(each) for each in range(32, 127) if chr(each) != "\\"]
    return [
        entry("tokenizer.ggml.model", STRING, "rwkv"),
        entry("tokenizer.ggml.tokens", STRING, ["<s>", "\\\\", "\\n", "\\xff", " the"] + letters),
        entry("tokenizer.ggml.unknown_token_id", U32, 0),
    ]


def gguf_seeds():
    llama = (4, 4, 2, 1, 2)
    qwen = (32, 32, 2, 1, 16)
    bias = [f"blk.0.attn_{each}.bias" for each in "qkv"]
    norms = ["blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"]
    rope = [("rope_freqs.weight", [1], GGML_F32)]
    whole = gguf(config("llama", *llama) + byte_level(), weights(GGML_F32, *llama, 5) + rope)
    return {
        "llama_f32": whole,
        "llama_cut": whole[: len(whole) * 2 // 3],
        "qwen2_q8_0": gguf(config("qwen2", *qwen) + byte_level(), weights(GGML_Q8_0, *qwen, 5, bias)),
        "qwen3_q4_0": gguf(config("qwen3", *qwen), weights(GGML_Q4_0, *qwen, 5, norms)),
        "vocabulary_spm": gguf(config("llama", *llama) + sentencepiece(), []),
        "vocabulary_unigram": gguf(config("t5", *llama) + unigram(), []),
        "vocabulary_word_piece": gguf(config("bert", *llama) + word_piece(), []),
        "vocabulary_rwkv": gguf(config("rwkv7", *llama) + rwkv(), []),
        "vocabulary_bpe": gguf(config("gpt-oss", *llama) + byte_level(), []),
        "alignment": gguf([entry("general.alignment", U32, 64)], []),
        "overlap": b"GGUF" + struct.pack("<IQQ", 3, 2, 0)
        + b"".join(text(each) + struct.pack("<IQIQ", 1, 4, 0, 0) for each in "ab") + bytes(64),
        "counts": b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60),
        "extents": b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t")
        + struct.pack("<IQQIQ", 2, 1 << 62, 1 << 62, 0, 1 << 63),
    }


def imatrix_seeds():
    metadata = [entry("general.type", STRING, "imatrix"), entry("imatrix.datasets", STRING, ["a.txt"]),
                entry("imatrix.chunk_count", U32, 3), entry("imatrix.chunk_size", U32, 512)]
    name = "blk.0.ffn_up.weight"
    whole = gguf(metadata, [(f"{name}.in_sum2", [4, 2], GGML_F32), (f"{name}.counts", [1, 2], GGML_F32)])

    def binary(calls, values):
        packed = struct.pack(f"<{len(values)}f", *values)
        return struct.pack("<ii", 1, len(name)) + name.encode() + struct.pack("<ii", calls, len(values)) + packed

    return {
        "gguf": whole,
        "gguf_cut": whole[: len(whole) * 2 // 3],
        "gguf_without_counts": gguf(metadata, [(f"{name}.in_sum2", [4], GGML_F32)]),
        "binary": binary(3, [1.0, 0.5, 0.0]) + struct.pack("<ii", 3, 5) + b"a.txt",
        "binary_overflow": binary(1, [3e38, 1e-45]),
        "binary_nan": binary(0, [float("nan")]),
        "binary_counts": struct.pack("<iii", 0x7FFFFFFF, 0x7FFFFFFF, -1),
    }


def safetensors_file(tensors, metadata=None):
    header, offset = {"__metadata__": {"format": "pt", **(metadata or {})}}, 0
    for name, shape in tensors.items():
        size = 2
        for each in shape:
            size *= each
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + b"\x3c" * offset


def safetensors_seeds():
    layer = "model.layers.0."
    tensors = {
        "model.embed_tokens.weight": [3, 4],
        "model.norm.weight": [4],
        layer + "input_layernorm.weight": [4],
        layer + "post_attention_layernorm.weight": [4],
        layer + "self_attn.q_proj.weight": [4, 4],
        layer + "self_attn.k_proj.weight": [2, 4],
        layer + "self_attn.v_proj.weight": [2, 4],
        layer + "self_attn.o_proj.weight": [4, 4],
        layer + "mlp.gate_proj.weight": [4, 4],
        layer + "mlp.up_proj.weight": [4, 4],
        layer + "mlp.down_proj.weight": [4, 4],
    }
    base = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "hidden_act": "silu",
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "eos_token_id": [1, 2], "temperature": 0.6, "top_k": 20,
    }
    llama3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8192}
    mistral = {"model_type": "mistral", "sliding_window": 64, "rope_parameters": {"rope_type": "linear",
               "factor": 2.0, "rope_theta": 5000.0}}
    whole = safetensors_file(tensors)
    head = {"lm_head.weight": [3, 4], **{name: shape for name, shape in tensors.items() if "embed" not in name}}
    embedding = "model.embed_tokens.weight"
    odd = {embedding: "nowhere", "lm_head.weight": embedding, "x": "x", "y": embedding, "": "", "n": 7}
    index = {"metadata": {"total_size": 1}, "weight_map": {"a": "1.safetensors", "b": "../2"}}
    return {
        "whole": b"s" + whole,
        "cut": b"s" + whole[:-9],
        "head_alone": b"s" + safetensors_file(head),
        "aliases": b"s" + safetensors_file(head, {embedding: "lm_head.weight"}),
        "aliases_odd": b"s" + safetensors_file(head, odd),
        "length": b"s" + struct.pack("<Q", 1 << 60),
        "index": b"i" + json.dumps(index).encode(),
        "config_nan": b"c" + json.dumps({"a": [{"b": float("nan")}]}).encode(),
        "config_llama3": b"c" + json.dumps({**base, "rope_scaling": llama3}).encode(),
        "config_mistral": b"c" + json.dumps({**base, **mistral}).encode(),
        "config_qwen3": b"c" + json.dumps({**base, "model_type": "qwen3", "head_dim": 128}).encode(),
    }


def main():
    for target, seeds in (("gguf", gguf_seeds()), ("safetensors", safetensors_seeds()), ("imatrix", imatrix_seeds())):
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
