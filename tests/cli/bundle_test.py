#!/usr/bin/env python3
"""Models whose weights are a FastFlowLM bundle (model.q4nx), as a user runs them."""
import json
import shutil
import struct

from harness import FIXTURES, CliTest, main, tyto


def bf16(value):
    """The nearest bf16, as its 16 bits."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def number(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def read_safetensors(path):
    raw = path.read_bytes()
    length = struct.unpack_from("<Q", raw)[0]
    for name, entry in json.loads(raw[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "F32":
            values = struct.unpack(f"<{(end - begin) // 4}f", raw[begin:end])
        else:
            assert entry["dtype"] == "BF16"
            values = [number(bits) for bits in struct.unpack(f"<{(end - begin) // 2}H", raw[begin:end])]
        yield name, entry["shape"], values


def blocks(rows, cols, values, has_zero_points):
    """32 x 256 weights in 5120 bytes: scales, offsets, codes."""
    out = bytearray(rows * cols // 8192 * 5120)
    for row in range(rows):
        for col in range(0, cols, 32):
            block = (row // 32 * (cols // 256) + col // 256) * 5120
            group = values[row * cols + col:row * cols + col + 32]
            scale, low = bf16(max((max(group) - min(group)) / 15, 1e-4)), bf16(min(group))
            zero = bf16(-number(low) / number(scale))
            place = block + (col % 256 // 32 * 32 + row % 32) * 2
            struct.pack_into("<H", out, place, scale)
            struct.pack_into("<H", out, place + 512, zero if has_zero_points else low)
            for i, value in enumerate(group):
                steps = value / number(scale) + number(zero) if has_zero_points else (value - number(low)) / number(scale)
                code = min(15, max(0, round(steps)))
                at = block + 1024 + row % 32 // 16 * 2048 + (col % 256 + i) * 8 + row % 16 // 2
                out[at] |= code << (row % 2 * 4)
    return bytes(out)


def write_bundle(source, folder, has_zero_points):
    folder.mkdir()
    for path in source.iterdir():
        if path.suffix == ".json":
            shutil.copy(path, folder)
    header, data = {}, bytearray()
    for name, shape, values in read_safetensors(source / "model.safetensors"):
        begin = len(data)
        if name.endswith("_proj.weight") or name == "lm_head.weight":
            data += blocks(*shape, values, has_zero_points)
            kind, shape = ("Q4NX", shape) if has_zero_points else ("I8", [(len(data) - begin) // 5120, 5120])
        else:
            data += struct.pack(f"<{len(values)}H", *map(bf16, values))
            kind = "BF16"
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    (folder / "model.q4nx").write_bytes(struct.pack("<Q", len(text)) + text + data)


class Bundle(CliTest):
    PROMPT = ["-p", "the owl", "--raw", "--temp", "0", "-n", "6"]

    def test_both_encodings_run_on_cpu_and_npu(self):
        for has_zero_points in (False, True):
            folder = self.work / f"bundle-{has_zero_points}"
            write_bundle(FIXTURES / "mistral" / "model", folder, has_zero_points)
            shown = tyto("inspect", "-m", folder, "--json")
            self.assertEqual(shown.returncode, 0, shown.stderr)
            shown = json.loads(shown.stdout)
            self.assertEqual(shown["format"], "q4nx")
            self.assertEqual(shown["types"]["q4_1"]["tensors"], 7 + 1)
            self.assertIn("of them copied", tyto("inspect", "-m", folder).stdout)
            want = tyto("run", "-m", folder, *self.PROMPT)
            self.assertEqual(want.returncode, 0, want.stderr)
            got = tyto("run", "-m", folder, *self.PROMPT, "--device", "vnpu", "--prompt-rows", "64", "--fusion", "token",
                       "--weights", "q4nx")
            self.assertEqual((got.returncode, got.stdout), (0, want.stdout), got.stderr)

    def test_what_is_no_bundle_is_refused(self):
        folder = self.work / "twice"
        write_bundle(FIXTURES / "mistral" / "model", folder, False)
        self.check_error(tyto("run", "-m", folder / "model.q4nx", *self.PROMPT), 1, "give the folder it is in")
        shutil.copy(FIXTURES / "mistral" / "model" / "model.safetensors", folder)
        self.check_error(tyto("run", "-m", folder, *self.PROMPT), 1, "both in model.q4nx and in model.safetensors")


if __name__ == "__main__":
    main()
