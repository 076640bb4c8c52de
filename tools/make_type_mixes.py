#!/usr/bin/env python3
"""Which type llama-quantize gives each tensor, for models of several depths: tests/data/type_mix/types.txt.

  tools/make_type_mixes.py LLAMA_QUANTIZE ITS_VERSION > tests/data/type_mix/types.txt

The models are GGUF files of two rows per matrix; llama-quantize --dry-run looks at names, widths and depth alone.
"""
import re
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

MIXES = ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k_s", "q4_k_m", "q4_k", "q5_k_s", "q5_k_m", "q5_k", "q6_k"]
# architecture, layers, KV heads of 4, embedding width, feed-forward width
SHAPES = [("llama", layers, 2, 256, 512) for layers in (1, 2, 6, 8, 10, 12, 16, 28)]
SHAPES += [("qwen2", 28, 2, 256, 512), ("qwen3", 28, 2, 256, 512), ("llama", 80, 2, 256, 512), ("llama", 80, 4, 256, 512),
           ("qwen2", 80, 4, 256, 512), ("llama", 16, 2, 288, 352), ("llama", 16, 2, 256, 352)]


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def tensors_of(layers, emb, hidden, tied):
    yield "token_embd.weight", emb
    if not tied:
        yield "output.weight", emb
    for layer in range(layers):
        for name, columns in [("attn_q", emb), ("attn_k", emb), ("attn_v", emb), ("attn_output", emb), ("ffn_gate", emb),
                              ("ffn_up", emb), ("ffn_down", hidden)]:
            yield f"blk.{layer}.{name}.weight", columns


def write_gguf(path, architecture, layers, kv_heads, emb, hidden, tied):
    numbers = {"block_count": layers, "context_length": 128, "embedding_length": emb, "feed_forward_length": hidden,
               "attention.head_count": 4, "attention.head_count_kv": kv_heads, "vocab_size": 2}
    metadata = text("general.architecture") + struct.pack("<I", 8) + text(architecture)
    for key, value in numbers.items():
        metadata += text(f"{architecture}.{key}") + struct.pack("<II", 4, value)
    metadata += text(f"{architecture}.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)
    infos, offset = b"", 0
    tensors = list(tensors_of(layers, emb, hidden, tied))
    for name, columns in tensors:
        infos += text(name) + struct.pack("<IQQIQ", 2, columns, 2, 0, offset)
        offset += 2 * columns * 4
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(numbers) + 2) + metadata + infos
    path.write_bytes(header + bytes(-len(header) % 32 + offset))


def write_imatrix(path, columns):
    name = b"blk.0.attn_q.weight"
    path.write_bytes(struct.pack("<ii", 1, len(name)) + name + struct.pack("<ii", 1, columns) + struct.pack("<f", 1) * columns)


def types_of(program, flags, model, mix):
    result = subprocess.run([program, "--dry-run", *flags, model, mix.upper()], capture_output=True, text=True, timeout=60)
    if result.returncode != 0:
        sys.exit(result.stdout + result.stderr)
    types = dict(re.findall(r"\] +(\S+) +- .*-> .*\((\w+)\)", result.stdout + result.stderr))
    return {name: kind.lower() for name, kind in types.items()}


def row(shape, tied, with_imatrix, mix, types):
    """The type of most matrices, then for every other type the kinds of matrices that have it and in which layers."""
    most = Counter(types.values()).most_common(1)[0][0]
    others = {}
    for name, kind in types.items():
        if kind != most:
            parts = name.removesuffix(".weight").split(".")
            others.setdefault((kind, parts[-1]), []).extend(parts[1:2])
    words = [f"{kind}:{part}" + (":" + ",".join(layers) if layers else "") for (kind, part), layers in others.items()]
    head = [*map(str, shape), "tied" if tied else "untied", "imatrix" if with_imatrix else "plain", mix, most]
    return " ".join(head + sorted(words))


def main():
    program, version = sys.argv[1:]
    print(f"# By llama-quantize of llama.cpp {version}; tools/make_type_mixes.py.")
    print("# architecture layers kv_heads emb hidden head imatrix mix most_matrices type:matrix:layers ...")
    with tempfile.TemporaryDirectory() as folder:
        model, imatrix = Path(folder, "model.gguf"), Path(folder, "imatrix.dat")
        for shape in SHAPES:
            write_imatrix(imatrix, shape[3])
            for tied in (False, True):
                write_gguf(model, *shape, tied)
                for mix in MIXES:
                    print(row(shape, tied, False, mix, types_of(program, [], model, mix)))
                for mix in ("q4_0", "q5_0", "q4_k_m"):
                    print(row(shape, tied, True, mix, types_of(program, ["--imatrix", str(imatrix)], model, mix)))


main()
