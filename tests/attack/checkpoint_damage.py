"""Ways to damage a Hugging Face checkpoint folder. Each takes (trial, number), damages a copy of a whole one, and
returns the folder and what must come of it."""
import json
import struct

import hostile
from gguf_damage import ANY, REFUSE, SAME
from stock import copy

CONFIG_FIELDS = ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                 "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling",
                 "rope_parameters", "tie_word_embeddings", "model_type", "architectures", "torch_dtype", "dtype",
                 "hidden_act", "attention_bias", "mlp_bias", "bos_token_id", "eos_token_id", "sliding_window",
                 "use_sliding_window", "quantization_config"]


def checkpoint(trial, name="llama2"):
    return copy(trial.stock.checkpoints[name], trial.folder, "model")


def change(folder, name, text):
    if isinstance(text, str):
        text = text.encode(errors="surrogateescape")
    (folder / name).write_bytes(text)


def config(trial, number):
    """A field of config.json with a hostile value."""
    folder = checkpoint(trial)
    document = json.loads((folder / "config.json").read_text())
    name = CONFIG_FIELDS[number % len(CONFIG_FIELDS)]
    value = trial.random.choice(hostile.VALUES)
    change(folder, "config.json", hostile.with_value({**document, name: 0}, (name,), value))
    return folder, ANY


def config_not_json(trial, number):
    """What Python's json module writes and reads, and others may not: NaN, Infinity; and plain mistakes."""
    folder = checkpoint(trial)
    document = json.loads((folder / "config.json").read_text())
    name = CONFIG_FIELDS[trial.random.randrange(len(CONFIG_FIELDS))]
    change(folder, "config.json",
           hostile.with_value({**document, name: 0}, (name,), hostile.NOT_JSON[number % len(hostile.NOT_JSON)]))
    return folder, REFUSE


# Each contradicts the weights or arithmetic itself.
WRONG_CONFIGS = [{"hidden_size": 0}, {"hidden_size": -64}, {"num_hidden_layers": 0}, {"num_hidden_layers": 3},
                 {"num_attention_heads": 0}, {"num_attention_heads": 3}, {"num_key_value_heads": 3},
                 {"vocab_size": 2**40}, {"intermediate_size": 1}, {"rope_theta": 5e-324}, {"rope_theta": 0},
                 {"rope_theta": -10000.0}, {"rope_theta": 1e300}, {"rms_norm_eps": -1.0}, {"rms_norm_eps": 1e30},
                 {"rope_scaling": 5}, {"rope_scaling": {"rope_type": "yarn-from-mars", "factor": 2.0}},
                 {"rope_scaling": {"rope_type": "linear", "factor": 0}}, {"model_type": "rwkv"}, {"model_type": 7},
                 {"max_position_embeddings": 0}, {"max_position_embeddings": -5}, {"hidden_act": "sine"},
                 {"vocab_size": "448"}, {"head_dim": 17}]


def config_wrong(trial, number):
    folder = checkpoint(trial)
    document = json.loads((folder / "config.json").read_text())
    wrong = WRONG_CONFIGS[number % len(WRONG_CONFIGS)]
    if "rope_theta" in wrong or "rope_scaling" in wrong:
        document.pop("rope_parameters", None)
    change(folder, "config.json", json.dumps({**document, **wrong}))
    return folder, REFUSE


def safetensors_parts(folder, name="model.safetensors"):
    content = (folder / name).read_bytes()
    length, = struct.unpack_from("<Q", content)
    return json.loads(content[8:8 + length]), content[8 + length:]


def put_safetensors(folder, header, data, name="model.safetensors", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / name).write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


def weights_layout(trial, number):
    """Offsets, shapes and types that do not fit each other or the file."""
    folder = checkpoint(trial)
    header, data = safetensors_parts(folder)
    names = [name for name in header if name != "__metadata__"]
    one, other = (header[name] for name in trial.random.sample(names, 2))
    ways = [lambda: one.update(data_offsets=list(other["data_offsets"])),
            lambda: one.update(data_offsets=[one["data_offsets"][0], one["data_offsets"][1] - 2]),
            lambda: one.update(data_offsets=one["data_offsets"][::-1]),
            lambda: one.update(data_offsets=[0, 2**63]), lambda: one.update(data_offsets=[-2, 2]),
            lambda: one.update(data_offsets=[len(data), len(data) + 8]), lambda: one.update(data_offsets=[]),
            lambda: one.update(shape=[2**32, 2**32]), lambda: one.update(shape=[-1]), lambda: one.update(shape=[]),
            lambda: one.update(shape=one["shape"] + [2]), lambda: one.update(dtype="F8_X"),
            lambda: one.update(dtype=7), lambda: header.pop(names[0]), lambda: header.update({"extra": 5})]
    ways[number % len(ways)]()
    put_safetensors(folder, header, data)
    return folder, REFUSE


def weights_bytes(trial, number):
    """Bytes too many or too few, before, between and behind the parts."""
    folder = checkpoint(trial)
    header, data = safetensors_parts(folder)
    text = json.dumps(header).encode()
    extra = trial.random.randbytes(trial.random.choice([1, 8, 4096]))
    ways = [lambda: put_safetensors(folder, header, data + extra),
            lambda: put_safetensors(folder, header, extra + data),
            lambda: put_safetensors(folder, header, data[:-len(extra)]),
            lambda: put_safetensors(folder, text, data, length=len(text) + trial.random.choice([-1, 1, 8])),
            lambda: put_safetensors(folder, text, data, length=trial.random.choice([0, 1, 2**40, 2**63, 2**64 - 1])),
            lambda: put_safetensors(folder, text[:trial.random.randrange(len(text))], data),
            lambda: put_safetensors(folder, b"\xff" + text[1:], data), lambda: change(folder, "model.safetensors", b"")]
    ways[number % len(ways)]()
    return folder, REFUSE


def weights_header(trial, number):
    folder = checkpoint(trial)
    header, data = safetensors_parts(folder)
    put_safetensors(folder, hostile.damaged_json(header, trial.random).encode(errors="surrogateescape"), data)
    return folder, ANY


def weights_flips(trial, number):
    folder = checkpoint(trial)
    path = folder / "model.safetensors"
    change(folder, path.name, hostile.flipped(path.read_bytes(), trial.random, trial.random.choice([1, 4]), last=2500))
    return folder, ANY


def json_file(name, source="llama2"):
    def damage(trial, number):
        folder = checkpoint(trial, source)
        change(folder, name, hostile.damaged_json(json.loads((folder / name).read_text()), trial.random))
        return folder, ANY
    return damage


def tokenizer_ids(trial, number):
    """Two texts with one id, an id out of range, merges of texts that are no tokens."""
    folder = checkpoint(trial, ("llama3", "llama2")[number % 2])
    document = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = document["model"]["vocab"]
    one, other = trial.random.sample(sorted(vocabulary), 2)
    vocabulary[one] = trial.random.choice([vocabulary[other], 2**31, 2**40, -1])
    change(folder, "tokenizer.json", json.dumps(document))
    return folder, REFUSE


def shards(trial, number):
    folder = checkpoint(trial, "qwen2-sharded")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    name = trial.random.choice(sorted(index["weight_map"]))
    ways = ["../model/" + index["weight_map"][name], "/etc/passwd", "absent.safetensors", "", 5, None, "config.json",
            "\x1b[2J.safetensors", "model-00001-of-00004.safetensors/x"]
    index["weight_map"][name] = ways[number % len(ways)]
    change(folder, "model.safetensors.index.json", json.dumps(index))
    return folder, ANY if number % len(ways) == 0 else REFUSE


def files(trial, number):
    """A file of the folder is absent, empty, or a folder itself."""
    folder = checkpoint(trial)
    name = ("config.json", "model.safetensors", "tokenizer.json")[number % 3]
    (folder / name).unlink()
    if number // 3 % 3 == 1:
        change(folder, name, b"")
    elif number // 3 % 3 == 2:
        (folder / name).mkdir()
    return folder, REFUSE


def unchanged(trial, number):
    """The header padded with spaces, as other writers do; an unknown field."""
    folder = checkpoint(trial)
    header, data = safetensors_parts(folder)
    put_safetensors(folder, json.dumps(header).encode() + b" " * (number * 8), data)
    document = json.loads((folder / "config.json").read_text())
    change(folder, "config.json", json.dumps({**document, "attack_note": [1, {"x": None}]}, indent=3))
    return folder, SAME


KINDS = {
    "config": (5, 450, config),
    "config-not-json": (2, 52, config_not_json),
    "config-wrong": (4, 75, config_wrong),
    "weights-layout": (4, 150, weights_layout),
    "weights-bytes": (3, 80, weights_bytes),
    "weights-header": (3, 200, weights_header),
    "weights-flips": (2, 100, weights_flips),
    "tokenizer-json": (4, 300, json_file("tokenizer.json")),
    "tokenizer-ids": (1, 40, tokenizer_ids),
    "tokenizer-config": (1, 80, json_file("tokenizer_config.json")),
    "generation-config": (1, 60, json_file("generation_config.json")),
    "shards": (2, 45, shards),
    "unchanged-checkpoint": (1, 10, unchanged),
}
