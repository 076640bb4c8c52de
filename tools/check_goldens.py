#!/usr/bin/env python3
"""Checks the golden fixtures in a folder; needs Python alone.

  python3 tools/check_goldens.py tests/golden/data

Every file is the one index.json lists, tensors lie inside their files, logits are finite, and the
recorded argmax and margins are those of the recorded logits.
"""

import array
import hashlib
import json
import math
import struct
import sys
from pathlib import Path

CONTINUATION = 32


def file_table(out):
    paths = sorted(p for p in out.rglob("*") if p.is_file() and p.name != "index.json")
    return [{"path": p.relative_to(out).as_posix(), "bytes": p.stat().st_size,
             "sha256": hashlib.sha256(p.read_bytes()).hexdigest()} for p in paths]


def check_tensors(folder):
    """Reads every safetensors header; returns the number of tensors."""
    count = 0
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        length, = struct.unpack_from("<Q", data)
        for name, entry in json.loads(data[8:8 + length]).items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            width = {"F32": 4, "F16": 2, "BF16": 2}[entry["dtype"]]
            assert end - begin == width * math.prod(entry["shape"]), name
            assert 8 + length + end <= len(data), name
            count += 1
    return count


def check_prompt(folder, prompt, vocab):
    values = array.array("f")
    values.frombytes((folder / prompt["logits"]).read_bytes())
    if sys.byteorder == "big":
        values.byteswap()
    positions = len(prompt["ids"])
    assert positions >= 48 and prompt["shape"] == [positions, vocab]
    assert len(values) == positions * vocab and all(map(math.isfinite, values))
    assert len(prompt["greedy"]) == len(prompt["greedy_margin"]) == CONTINUATION
    for i in range(positions):
        row = values[i * vocab:(i + 1) * vocab]
        second, first = sorted(row)[-2:]
        assert row[prompt["argmax"][i]] == first
        assert abs((first - second) / (first - min(row)) - prompt["margin"][i]) < 1e-5
    assert prompt["greedy"][0] == prompt["argmax"][-1]
    assert all(0 <= t < vocab for t in prompt["ids"] + prompt["greedy"] + prompt["argmax_bf16"])


def check(out):
    index = json.loads((out / "index.json").read_text())
    assert file_table(out) == index["files"], "files and index.json differ"
    for entry in index["fixtures"]:
        expected = out / entry["expected"]
        prompts = json.loads(expected.read_text())["prompts"]
        for prompt in prompts:
            check_prompt(expected.parent, prompt, entry["vocab"])
        assert check_tensors(out / entry["model"]) == entry["tensors"] > 0, entry["name"]
        golden = json.loads((out / entry["tokenizer"]).read_text())
        assert entry["name"] in golden["fixtures"] and golden["size"] <= entry["vocab"]
        assert json.loads((out / entry["model"] / "tokenizer.json").read_text())
    total = sum(f["bytes"] for f in index["files"])
    print(f"{len(index['fixtures'])} fixtures, {len(index['files'])} files, {total} bytes: good")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: check_goldens.py FOLDER")
    check(Path(sys.argv[1]))
