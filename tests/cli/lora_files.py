"""LoRA adapters of random values, written as llama.cpp's converter and as PEFT write them.

    lora_files.py TYTO MODEL.gguf OUT.gguf    for every projection of a model, to hold against llama.cpp
"""
import json
import random
import struct
import subprocess
import sys


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def write_gguf(path, tensors, architecture="llama", alpha=16.0, kind="lora"):
    """`tensors`: name -> (rows, cols, values), row by row."""
    string = lambda key, value: text(key) + struct.pack("<I", 8) + text(value)
    keys = [string("general.architecture", architecture), string("general.type", "adapter"),
            string("adapter.type", kind), text("adapter.lora.alpha") + struct.pack("<If", 6, alpha)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys)
    data = b""
    for name, (rows, cols, values) in tensors.items():
        head += text(name) + struct.pack("<IQQIQ", 2, cols, rows, 0, len(data))
        data += floats(values)
        data += b"\0" * (-len(data) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)


def write_peft(folder, tensors, rank, alpha=16.0, **fields):
    """`tensors`: a module's name below the model -> (rows, cols, values) of A and of B."""
    folder.mkdir()
    header, data = {}, b""
    for module, pair in tensors.items():
        for letter, (rows, cols, values) in zip("AB", pair):
            header[f"base_model.model.{module}.lora_{letter}.weight"] = {
                "dtype": "F32", "shape": [rows, cols], "data_offsets": [len(data), len(data) + 4 * rows * cols]}
            data += floats(values)
    named = json.dumps(header).encode()
    named += b" " * (-len(named) % 8)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(named)) + named + data)
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none", **fields}))


def random_pair(rows, cols, rank, generator, size):
    values = lambda count: [generator.uniform(-size, size) for _ in range(count)]
    return (rank, cols, values(rank * cols)), (rows, rank, values(rows * rank))


def pairs_for(tensors, rank, seed=1, size=0.05):
    """For the projections among what `tyto inspect --json --tensors` lists of a GGUF."""
    generator = random.Random(seed)
    return {tensor["name"]: random_pair(tensor["rows"], tensor["cols"], rank, generator, size)
            for tensor in tensors if tensor["name"].startswith("blk.") and tensor["rows"] > 1}


def gguf_tensors(pairs):
    return {f"{name}.lora_{letter}": half for name, pair in pairs.items() for letter, half in zip("ab", pair)}


if __name__ == "__main__":
    from pathlib import Path
    tyto, model, out = sys.argv[1:4]
    shown = json.loads(subprocess.check_output([tyto, "inspect", "-m", model, "--json", "--tensors"]))
    write_gguf(Path(out), gguf_tensors(pairs_for(shown["tensors"], 8, size=0.2)), shown["architecture"])
