#!/usr/bin/env python3
"""The program as a user meets it: exit codes, one-line errors, what goes to stdout and what does not.

Usage: cli_test.py PATH_TO_TYTO FIXTURES_FOLDER
"""
import ast
import csv
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TYTO = None
STATE = tempfile.TemporaryDirectory()  # results go here, not to the user's ledger
FIXTURES = None
OWLET = Path(__file__).resolve().parents[2] / "models" / "owlet"
COMMANDS = ["run", "chat", "tokenize", "detokenize", "template", "inspect", "eval", "perplexity", "bench",
            "results", "profile", "verify", "diagnose", "quantize", "synth", "devices", "plan", "power", "doctor",
            "compile"]


def tyto(*args, text="", environment=None):
    result = subprocess.run([TYTO, *map(str, args)], input=text.encode(), capture_output=True, timeout=120,
                            env={**os.environ, "XDG_STATE_HOME": STATE.name, **(environment or {})})
    result.stdout = result.stdout.decode(errors="replace")
    result.stderr = result.stderr.decode(errors="replace")
    return result


class CliTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.work = Path(cls.folder.name)
        cls.model = cls.work / "tiny.gguf"
        assert tyto("synth", "--shape", "tiny", "-o", cls.model).returncode == 0

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check_error(self, result, code, *fragments):
        """A bad thing gets the exit code and exactly one line on stderr; stdout stays empty."""
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        for fragment in fragments:
            self.assertIn(fragment, result.stderr)


class Help(CliTest):
    def test_every_command_has_help_with_its_flags(self):
        overview = tyto("--help")
        self.assertEqual(overview.returncode, 0)
        for command in COMMANDS:
            self.assertIn(command, overview.stdout)
            result = tyto(command, "--help")
            self.assertEqual(result.returncode, 0, command)
            self.assertIn("Usage: ", result.stdout)

    def test_bad_usage_is_exit_2(self):
        self.check_error(tyto(), 2)
        self.check_error(tyto("fly"), 2, "fly")
        self.check_error(tyto("run", "--bogus"), 2, "--bogus")
        self.check_error(tyto("run", "-m", self.model), 2, "no prompt")
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--device", "abacus"), 2, "abacus", "cpu")
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--fusion", "nuclear"), 2, "nuclear")
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--temp", "-1"), 2)
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--logit-bias", "nonsense"), 2, "ID=VALUE")
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--logit-bias", "999999=1"), 2, "999999")
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "-c", "99999999"), 2, "positions")
        self.check_error(tyto("synth", "--shape", "huge", "-o", self.work / "x"), 2, "huge")

    def test_unknown_environment_controls_are_errors(self):
        self.check_error(tyto("devices", environment={"TYTO_TURBO": "1"}), 2, "TYTO_TURBO")


class Run(CliTest):
    def run_model(self, *args, prompt="Hello"):
        return tyto("run", "-m", self.model, "-p", prompt, "-n", "8", "--temp", "0", "--ignore-eos", *args)

    def test_stdout_is_the_text_and_stderr_the_receipt(self):
        result = self.run_model("--raw")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout.endswith("\n"))
        self.assertNotIn("tok/s", result.stdout)
        self.assertIn("executed on cpu", result.stderr)
        self.assertIn("no fallbacks", result.stderr)

    def test_fusion_and_threads_do_not_change_the_text(self):
        texts = {self.run_model("--raw", "--fusion", fusion, "-t", threads).stdout
                 for fusion in ("op", "block", "token") for threads in (1, 2)}
        self.assertEqual(len(texts), 1)

    def test_prompt_from_stdin_and_file(self):
        inline = self.run_model("--raw").stdout
        piped = tyto("run", "-m", self.model, "-p", "-", "-n", "8", "--temp", "0", "--ignore-eos", "--raw",
                     text="Hello")
        self.assertEqual(piped.stdout, inline)
        prompt = self.work / "prompt.txt"
        prompt.write_text("Hello")
        filed = tyto("run", "-m", self.model, "-f", prompt, "-n", "8", "--temp", "0", "--ignore-eos", "--raw")
        self.assertEqual(filed.stdout, inline)

    def test_require_fails_closed(self):
        self.check_error(self.run_model("--raw", "--require", "npu"), 3, "npu")
        self.assertEqual(self.run_model("--raw", "--require", "cpu").returncode, 0)

    def test_require_a_phase(self):
        self.assertEqual(self.run_model("--raw", "--require", "cpu:decode").returncode, 0)
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "-n", "1", "--raw", "--require", "cpu:decode"), 3,
                         "no decode ran")
        self.check_error(self.run_model("--raw", "--require", "cpu:both"), 2, "prefill and decode")
        flags = ["-m", OWLET, "-p", "Hi", "--temp", "0", "--device", "vnpu", "--prompt-rows", "64", "-n", "4"]
        # The cpu takes the host's steps beside an NPU; that is not the work.
        self.check_error(tyto("run", *flags, "--require", "cpu:decode"), 3, "most of decode", "vnpu")
        receipt = self.work / "refused.json"
        self.check_error(tyto("run", *flags, "--require", "cpu", "--receipt", receipt), 3)
        self.assertFalse(receipt.exists())

    def test_receipt_file(self):
        receipt = self.work / "receipt.json"
        result = self.run_model("--raw", "--receipt", receipt)
        self.assertEqual(result.returncode, 0, result.stderr)
        data = json.loads(receipt.read_text())
        self.assertEqual(data["schema"], "tyto-receipt-1")
        self.assertEqual([device["name"] for device in data["devices"]], ["cpu"])
        self.assertEqual(data["submissions"], data["completions"])
        self.assertGreater(data["dispatches_per_token"], 1)
        self.assertIs(data["virtual"], False)
        self.assertEqual(data["fallbacks"], [])
        self.assertEqual(data["plausibility"]["verdict"], "plausible")
        self.assertEqual(len(data["hashes"]["weights"]), 32)
        self.assertIn("not of every byte", data["hashes"]["weights_form"])
        self.assertTrue(data["hashes"]["images"])
        self.assertIn("reason", data["energy"])
        self.assertIn("--receipt", data["command"])
        again = self.work / "again.json"
        self.run_model("--raw", "--receipt", again)
        self.assertEqual(json.loads(again.read_text())["hashes"], data["hashes"])

    def test_the_virtual_npu_says_what_it_is(self):
        flags = ["-m", OWLET, "-p", "What is 3 plus 4?", "--temp", "0", "--device", "vnpu", "--prompt-rows", "64"]
        texts = set()
        for fusion in ("block", "token"):
            result = tyto("run", *flags, "--fusion", fusion)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("modelled", result.stderr)
            self.assertIn("embed not on vnpu", result.stderr)
            self.assertNotIn("tok/s", result.stderr)
            texts.add(result.stdout)
        self.assertEqual(texts, {tyto("run", *flags[:-2]).stdout})
        self.check_error(tyto("run", *flags, "--require", "vnpu"), 3, "virtual")

    def test_seed_is_shown_and_repeats_the_text(self):
        flags = ["run", "-m", self.model, "-p", "x", "-n", "12", "--temp", "1", "--ignore-eos", "--raw"]
        first = tyto(*flags)
        seed = first.stderr.split("seed ")[1].split()[0]
        self.assertEqual(tyto(*flags, "--seed", seed).stdout, first.stdout)

    def test_bad_input(self):
        self.check_error(self.run_model(prompt=""), 1, "empty")
        self.check_error(self.run_model("-c", "16", "--raw", prompt="word " * 100), 1, "context of 16")
        self.check_error(tyto("run", "-m", self.work / "absent.gguf", "-p", "x"), 1, "absent.gguf")
        self.check_error(tyto("run", "-m", "some-org/some-model", "-p", "x"), 1, "hf download some-org/some-model")
        self.check_error(self.run_model("--chat-template", "no-such-template"), 2, "chatml")
        self.check_error(self.run_model("--logit-bias", "99999999999999=100"), 2, "ID=VALUE")


class Damaged(CliTest):
    """Truncated and corrupted files: a one-line error that names the file, exit 1, never a crash."""

    def test_every_truncation_of_a_gguf(self):
        whole = self.model.read_bytes()
        damaged = self.work / "damaged.gguf"
        for size in [0, 3, 4, 7, 8, 15, 23, 24, 100, 1000, len(whole) // 2, len(whole) - 1]:
            damaged.write_bytes(whole[:size])
            self.check_error(tyto("run", "-m", damaged, "-p", "x"), 1, "damaged.gguf")

    def test_corrupted_counts_in_a_gguf(self):
        damaged = self.work / "damaged.gguf"
        for offset in (8, 16):  # tensor count, metadata count
            for value in (2**63, 2**60, 2**32, 2**64 - 1):
                content = bytearray(self.model.read_bytes())
                content[offset:offset + 8] = struct.pack("<Q", value)
                damaged.write_bytes(content)
                self.check_error(tyto("inspect", "-m", damaged), 1, "damaged.gguf")

    def test_unsupported_architecture_is_named(self):
        damaged = self.work / "other.gguf"
        content = self.model.read_bytes()
        key = b"general.architecture"
        at = content.index(key) + len(key) + 4 + 8
        damaged.write_bytes(content[:at] + b"mamba" + content[at + 5:])
        self.check_error(tyto("inspect", "-m", damaged), 1, "mamba")

    def test_checkpoint_folders(self):
        source = FIXTURES / "llama3" / "model"
        folder = self.work / "checkpoint"
        folder.mkdir(exist_ok=True)
        files = {path.name: path.read_bytes() for path in source.iterdir()}

        def damage(name, content):
            for other, original in files.items():
                (folder / other).write_bytes(original)
            if content is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(content)
            return tyto("run", "-m", folder, "-p", "x", "-n", "1")

        config = json.loads(files["config.json"])
        self.check_error(damage("config.json", None), 1, "config.json")
        self.check_error(damage("config.json", b"{"), 1, "config.json")
        self.check_error(damage("config.json", b"[" * 100000), 1, "config.json")
        self.check_error(damage("config.json", json.dumps({**config, "model_type": "rwkv"}).encode()), 1, "rwkv")
        self.check_error(damage("config.json", json.dumps({**config, "hidden_size": 2**60}).encode()), 1,
                         "hidden_size")
        self.check_error(damage("config.json", json.dumps({**config, "num_hidden_layers": 3}).encode()), 1,
                         "layers.2")
        weights = files["model.safetensors"]
        self.check_error(damage("model.safetensors", None), 1, "safetensors")
        self.check_error(damage("model.safetensors", weights[:-10]), 1, "model.safetensors")
        self.check_error(damage("model.safetensors", struct.pack("<Q", 2**60) + weights[8:]), 1, "model.safetensors")
        self.check_error(damage("model.safetensors", weights.replace(b"BF16", b"F8_X", 1)), 1, "F8_X")
        self.check_error(damage("tokenizer.json", b"{}"), 1, "tokenizer.json")
        self.check_error(damage("tokenizer.json", files["tokenizer.json"][:500]), 1, "tokenizer.json")


class Tokens(CliTest):
    def test_tokenize_prints_ids_and_pieces(self):
        result = json.loads(tyto("tokenize", "-m", self.model, "--text", "Hello", "--json").stdout)
        self.assertEqual("".join(result["pieces"][1:]), "Hello")  # the first piece is the BOS
        self.assertEqual(len(result["ids"]), len(result["pieces"]))
        bare = json.loads(tyto("tokenize", "-m", self.model, "--text", "Hello", "--json", "--no-bos").stdout)
        self.assertEqual(bare["ids"], result["ids"][1:])

    def test_round_trip_of_awkward_text(self):
        for text in ["naïve café", "日本語", "🦉 owl", "a\tb\r\nc", "  spaces  ", "\u0000nul"]:
            ids = json.loads(tyto("tokenize", "-m", self.model, "--stdin", "--json", "--no-bos", text=text).stdout)["ids"]
            back = tyto("detokenize", "-m", self.model, "--ids", ",".join(map(str, ids)))
            self.assertEqual(back.stdout, text + "\n")

    def test_invalid_utf8_is_encoded_not_refused(self):
        raw = subprocess.run([TYTO, "tokenize", "-m", str(self.model), "--stdin", "--json", "--no-bos"],
                             input=b"ok \xff\xfe \xe2\x82", capture_output=True, timeout=60)
        self.assertEqual(raw.returncode, 0, raw.stderr)
        self.assertGreaterEqual(len(json.loads(raw.stdout)["ids"]), 5)

    def test_bad_ids(self):
        self.check_error(tyto("detokenize", "-m", self.model, "--ids", "1,x"), 2, "x")
        self.check_error(tyto("detokenize", "-m", self.model, "--ids", "99999999"), 2, "99999999")
        self.check_error(tyto("tokenize", "-m", self.model), 2, "--text")

    def test_template(self):
        messages = self.work / "messages.json"
        messages.write_text('[{"role": "user", "content": "Hi"}]')
        source = self.work / "t.jinja"
        source.write_text("{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}")
        self.assertEqual(tyto("template", "--file", source, "--messages", messages).stdout, "[user: Hi]")
        source.write_text("\n{{ raise_exception('no thanks') }}")
        self.check_error(tyto("template", "--file", source, "--messages", messages), 1, "no thanks")
        source.write_text("\n\n{{ x | frobnicate }}")
        self.check_error(tyto("template", "--file", source, "--messages", messages), 1, "frobnicate", "line 3")


class Files(CliTest):
    def test_inspect(self):
        result = json.loads(tyto("inspect", "-m", self.model, "--json", "--tensors").stdout)
        self.assertEqual(result["architecture"], "llama")
        self.assertGreater(result["parameters"], 0)
        self.assertEqual(sum(t["bytes"] for t in result["tensors"]), result["weight_bytes"])
        self.assertIn("layers", tyto("inspect", "-m", self.model).stdout)

    def test_eval_writes_every_position_and_the_reference_agrees(self):
        out, plain = self.work / "a.f32", self.work / "b.f32"
        tokens = ["--tokens", "1,2,3,4,5"]
        self.assertEqual(tyto("eval", "-m", self.model, *tokens, "--logits", out).returncode, 0)
        self.assertEqual(tyto("eval", "-m", self.model, *tokens, "--logits", plain, "--reference").returncode, 0)
        vocab = json.loads(tyto("inspect", "-m", self.model, "--json").stdout)["vocab"]
        a, b = (struct.unpack(f"<{5 * vocab}f", path.read_bytes()) for path in (out, plain))
        worst = max(abs(x - y) for x, y in zip(a, b))
        self.assertLess(worst, 0.01 * max(map(abs, b)))

    def test_eval_that_fails_leaves_no_file(self):
        out = self.work / "never.f32"
        self.check_error(tyto("eval", "-m", self.model, "--tokens", "1,99999999", "--logits", out), 1, "99999999")
        self.assertEqual(list(self.work.glob("never.f32*")), [])

    def test_quantize_and_synth(self):
        out = self.work / "q8.gguf"
        self.assertEqual(tyto("quantize", "-m", self.model, "--type", "q8_0", "-o", out).returncode, 0)
        self.assertIn("q8_0", tyto("inspect", "-m", out).stdout)
        self.assertEqual(tyto("run", "-m", out, "-p", "x", "--raw", "-n", "2").returncode, 0)
        self.check_error(tyto("quantize", "-m", self.model, "--type", "q8_0", "-o", self.model), 2, "itself")
        self.check_error(tyto("quantize", "-m", self.model, "--type", "q3_z", "-o", out), 2, "q3_z")
        again = self.work / "again.gguf"
        tyto("synth", "--shape", "tiny", "-o", again)
        self.assertEqual(again.read_bytes(), self.model.read_bytes())

    def test_synth_folder_runs(self):
        folder = self.work / "folder"
        self.assertEqual(tyto("synth", "--shape", "tiny", "-o", folder).returncode, 0)
        self.assertEqual(tyto("run", "-m", folder, "-p", "x", "--raw", "-n", "2").returncode, 0)

    def test_cached_repo_id(self):
        cache = self.work / "hub"
        snapshot = cache / "models--org--name" / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        (cache / "models--org--name" / "refs").mkdir()
        (cache / "models--org--name" / "refs" / "main").write_text("abc")
        for path in (FIXTURES / "llama3" / "model").iterdir():
            (snapshot / path.name).write_bytes(path.read_bytes())
        result = tyto("inspect", "-m", "org/name", environment={"HF_HUB_CACHE": str(cache)})
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_perplexity(self):
        text = self.work / "text.txt"
        text.write_text("the owl sees in the dark. " * 40)
        result = tyto("perplexity", "-m", self.model, "-f", text, "--window", "64", "--stride", "32")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("perplexity ", result.stdout)
        self.check_error(tyto("perplexity", "-m", self.model, "-f", text, "--stride", "0"), 2, "stride")

    def test_instruction_sets_are_chosen_by_name(self):
        bench = ["bench", "-m", self.model, "-p", "4", "-n", "1", "-r", "1"]
        self.assertEqual(tyto(*bench, "--isa", "generic").returncode, 0)
        self.check_error(tyto(*bench, "--isa", "abacus"), 2, "abacus", "generic")
        for command in ["run", "eval", "perplexity"]:
            self.assertIn("--isa", tyto(command, "--help").stdout)

    def test_every_cache_type_runs_or_says_why_not(self):
        for kind in ["f16", "q8_0", "f32"]:
            result = tyto("bench", "-m", OWLET, "-p", "4", "-n", "1", "-r", "1", "--kv-type", kind)
            self.assertEqual(result.returncode, 0, result.stderr)
        self.check_error(tyto("bench", "-m", OWLET, "--kv-type", "q3"), 2, "q3")


class Bench(CliTest):
    VNPU = ["--device", "vnpu", "--prompt-rows", "64"]

    def setUp(self):
        self.state = Path(tempfile.mkdtemp(dir=self.work))

    def bench(self, *args, model=None, state=None):
        return tyto("bench", "-m", model or self.model, "-r", "2", *args,
                    environment={"XDG_STATE_HOME": str(state or self.state)})

    def rows(self, *args, **kwargs):
        result = self.bench(*args, "-o", "json", **kwargs)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def results(self, *args):
        return tyto("results", *args, environment={"XDG_STATE_HOME": str(self.state)})

    def test_rows_name_the_executed_device(self):
        rows = self.rows("-p", "16", "-n", "4")
        self.assertEqual([row["test"] for row in rows], ["pp16", "tg4"])
        self.assertEqual({row["executed_on"] for row in rows}, {"cpu"})
        self.assertEqual({row["modelled"] for row in rows}, {False})
        for row in rows:
            self.assertEqual((len(row["samples_ts"]), len(row["samples_ns"])), (2, 2))
            self.assertAlmostEqual(row["avg_ts"], sum(row["samples_ts"]) / 2)
            self.assertIn(row["plausibility"], ("plausible", "unchecked"))
        flags = ["-p", "16", "-n", "4"]
        for requirement in ("cpu", "cpu:prefill", "cpu:decode"):
            self.assertEqual(self.bench(*flags, "--require", requirement).returncode, 0)
        self.check_error(self.bench(*flags, "--require", "npu:decode"), 3, "npu:decode")

    def test_tests_as_llama_bench_makes_them(self):
        rows = self.rows("-p", "8-32*2", "-n", "0", "-n", "2", "-pg", "8,2", "-d", "0,16", "-b", "16", "-ub", "8")
        one_depth = ["pp8", "pp16", "pp32", "tg2", "pp8+tg2"]
        self.assertEqual([row["test"] for row in rows], one_depth + [name + " @ d16" for name in one_depth])
        self.assertEqual({(row["n_batch"], row["n_ubatch"]) for row in rows}, {(16, 8)})
        self.assertEqual([row["n_depth"] for row in rows], [0] * 5 + [16] * 5)
        def dispatches(*flags):
            return self.rows("-p", "32", "-n", "0", *flags)[0]["dispatches_per_token"]
        coarse = dispatches("-ub", "32")
        self.assertGreater(dispatches("-ub", "8"), 2 * coarse)  # each chunk is dispatched
        self.assertGreater(dispatches("-ub", "32", "-b", "8"), coarse)  # each batch has logits
        self.assertEqual(len(self.rows("-p", "8", "-n", "0", "-t", "1,2", "-m", OWLET, "--no-warmup")), 4)

    def test_shares_of_the_measured_peak(self):
        rows = self.rows("-p", "16", "-n", "4", "--peak")
        for row in rows:
            self.assertIn("measured now", row["peak"])
            for rate in ("gb_per_s", "gflop_per_s"):
                self.assertAlmostEqual(row["share_of_peak_" + rate], row[rate] / row["peak_" + rate])
        self.assertEqual({row["peak"] for row in self.rows("-p", "16", "-n", "0")}, {None})
        table = self.bench("-p", "16", "-n", "0", "--peak")
        self.assertIn(" of peak |", table.stdout)
        self.assertIn("peak: ", table.stderr)
        self.check_error(self.bench("--peak", *self.VNPU, model=OWLET), 2, "--peak")

    def test_what_depth_fills_is_not_counted(self):
        shallow, deep = self.rows("-p", "0", "-n", "4", "-d", "0,64")
        self.assertEqual(shallow["dispatches_per_token"], deep["dispatches_per_token"])
        self.assertGreater(deep["flops_per_token"], shallow["flops_per_token"])

    def test_formats(self):
        flags = ["-p", "8", "-n", "2"]
        table = self.bench(*flags).stdout.splitlines()
        self.assertEqual(len(table), 4)
        for column in ("t/s", "executed on", "dispatches/token", "J/token", "receipt"):
            self.assertIn(f" {column} |", table[0])
        lines = self.bench(*flags, "-o", "jsonl").stdout.splitlines()
        self.assertEqual([json.loads(line)["n_prompt"] for line in lines], [8, 0])
        cells = list(csv.DictReader(self.bench(*flags, "-o", "csv").stdout.splitlines()))
        self.assertEqual([row["n_gen"] for row in cells], ["0", "2"])
        both = self.bench(*flags, "-o", "json", "-oe", "md", "--progress")
        self.assertEqual(len(json.loads(both.stdout)), 2)
        self.assertIn("| tg2 |", both.stderr)
        self.assertIn("bench 2/2: tg2 on cpu", both.stderr)

    def test_flags_that_cannot_be_honoured_are_refused(self):
        for flags in (["-ngl", "99"], ["-fa", "1"], ["--mmap=0"], ["-sm", "row"], ["-o", "sql"], ["-ctk", "q8_0"],
                      ["-ctk", "f32"], ["-ub", "0"], ["-p", "8-4"], ["-pg", "8"], ["-p", "0", "-n", "0"],
                      ["--ab", "cpu"], ["--ab", "cpu,cpu", "--device", "cpu"], ["--device", "cpu,abacus"],
                      ["-p", "99999"]):
            result = self.bench(*flags)
            self.assertEqual(result.returncode, 2, (flags, result.stderr))
            self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        self.check_error(self.bench("-ub", "8", *self.VNPU, model=OWLET), 2, "--prompt-rows")
        self.assertEqual({row["type_k"] for row in self.rows("-p", "8", "-n", "2", "-ctk", "f32", "-ctv", "f32")},
                         {"f32"})

    def test_the_virtual_npus_speed_is_modelled(self):
        rows = self.rows("-p", "16", "-n", "2", "-pg", "16,2", "-d", "8", *self.VNPU, model=OWLET)
        for row in rows:
            self.assertIs(row["modelled"], True)
            self.assertIn("vnpu (modelled)", row["executed_on"])
            for field in ("avg_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts", "gb_per_s"):
                self.assertIsNone(row[field], field)
            self.assertGreater(row["modelled_avg_ts"], 0)
            self.assertEqual(len(row["modelled_samples_ts"]), 2)
            self.assertGreater(row["simulation_s"], 0)
        table = self.bench("-p", "16", "-n", "2", *self.VNPU, model=OWLET).stdout.splitlines()
        speed = table[0].split("|").index(" t/s ")
        for line in table[2:]:
            self.assertTrue(line.split("|")[speed].endswith(" modelled "), line)
        self.check_error(self.bench(*self.VNPU, "--require", "vnpu", model=OWLET), 3, "virtual")

    def test_two_devices_in_turns(self):
        result = self.bench("--ab", "cpu,vnpu", "--prompt-rows", "64", "-p", "16", "-n", "2", "-o", "json", model=OWLET)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)
        self.assertEqual([(row["test"], row["backends"]) for row in rows],
                         [("pp16", "CPU"), ("pp16", "VNPU"), ("tg2", "CPU"), ("tg2", "VNPU")])
        for a, b in (rows[:2], rows[2:]):
            self.assertEqual(a["ab"], b["ab"])
            want = [x / y for x, y in zip(a["samples_ts"], b["modelled_samples_ts"])]
            for ratio, expected in zip(a["ab"]["ratios"], want, strict=True):
                self.assertAlmostEqual(ratio / expected, 1)
            self.assertIs(a["ab"]["b_modelled"], True)
        self.assertIn("tg2: cpu / vnpu (modelled) = ", result.stderr)
        self.assertIn("modelled with a measured", result.stderr)

    def test_every_row_is_kept(self):
        rows = self.rows("-p", "8", "-n", "2")
        lines = (self.state / "tyto/results.jsonl").read_text().splitlines()
        kept = [json.loads(line) for line in lines]
        self.assertEqual([record["row"] for record in kept], rows)
        for record in kept:
            self.assertEqual(record["id"], record["row"]["receipt_id"])
            self.assertEqual(record["receipt"]["schema"], "tyto-receipt-1")
            self.assertEqual(record["hashes"]["weights"], record["row"]["weights_hash"])
            self.assertIn("bench", record["command"])
            self.assertTrue(record["machine"]["kernel"])
        self.bench("-p", "8", "-n", "2", "--no-ledger")
        self.assertEqual(len((self.state / "tyto/results.jsonl").read_text().splitlines()), 2)
        blocked = self.work / "blocked"
        blocked.write_text("a file")
        result = self.bench("-p", "8", "-n", "2", state=blocked)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(result.stdout.splitlines()), 4)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertIn("results are not kept", result.stderr)

    def test_results_are_listed_shown_and_superseded(self):
        self.assertIn("no results", self.results("list").stderr)
        first, second = (row["receipt_id"] for row in self.rows("-p", "8", "-n", "2"))
        listed = self.results("list").stdout.splitlines()
        self.assertEqual([line.split()[0] for line in listed], [first[:8], second[:8]])
        self.check_error(self.results("supersede", first), 2, "--why")
        self.check_error(self.results("supersede", first, "--why", " "), 2, "--why")
        self.check_error(self.results("supersede", "zzzz", "--why", "x"), 1, "zzzz")
        self.check_error(self.results("supersede", first, "--why", "x", "--by", first), 2, "itself")
        before = (self.state / "tyto/results.jsonl").read_text()
        done = self.results("supersede", first[:10], "--why", "on battery", "--by", second)
        self.assertEqual(done.returncode, 0, done.stderr)
        after = (self.state / "tyto/results.jsonl").read_text()
        self.assertTrue(after.startswith(before))
        self.assertEqual(len(self.results("list").stdout.splitlines()), 1)
        everything = self.results("list", "--all").stdout
        self.assertIn(f"[superseded by {second[:8]}: on battery]", everything)
        shown = self.results("show", first[:8])
        self.assertEqual(json.loads(shown.stdout)["superseded"][0]["why"], "on battery")
        self.assertIn("superseded by", shown.stderr)
        self.assertEqual(json.loads(self.results("show", second).stdout)["superseded"], [])
        self.check_error(self.results("supersede", second, "--why", "x", "--by", first), 2, "superseded itself")

    def test_a_damaged_ledger_is_reported_once_and_kept(self):
        self.rows("-p", "8", "-n", "0")
        ledger = self.state / "tyto/results.jsonl"
        ledger.write_text("garbage\n" + ledger.read_text() + "{\"half")
        listed = self.results("list")
        self.assertEqual((listed.returncode, len(listed.stdout.splitlines())), (0, 1))
        self.assertEqual(len(listed.stderr.splitlines()), 1)
        self.assertIn("2 lines cannot be read", listed.stderr)
        self.rows("-p", "8", "-n", "0")
        self.assertEqual(len(self.results("list").stdout.splitlines()), 2)
        self.assertTrue(ledger.read_text().startswith("garbage\n"))


class Profile(CliTest):
    SECTIONS = ["Headline", "Dataflow, prefill", "Dataflow, decode", "Wall-time attribution", "Per layer", "Device calls",
                "Host operations", "Buffer write / run / read", "Dispatches", "Operators", "Per-token trend", "Set-up", "Receipt"]

    def profile(self, *args):
        result = tyto("profile", "-m", OWLET, "-p", "What is 3 plus 4?", "--temp", "0", "-n", "6", "--ignore-eos", *args)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_the_answer_then_the_report(self):
        answer = tyto("run", "-m", OWLET, "-p", "What is 3 plus 4?", "--temp", "0", "-n", "6", "--ignore-eos").stdout
        for device in ("cpu", "vnpu"):
            out = self.profile("--device", device)
            self.assertTrue(out.startswith(answer), out[:200])
            at = 0
            for section in self.SECTIONS:
                self.assertIn("\n" + section, out[at:])
                at = out.index("\n" + section, at)
            self.assertEqual("modelled" in out, device == "vnpu")
            self.assertNotIn("\033", out)  # no colours in a pipe

    def test_every_fusion_adds_up(self):
        for fusion in ("op", "block", "token"):
            file = self.work / "p.json"
            self.profile("--fusion", fusion, "--json", file)
            report = json.loads(file.read_text())["report"]
            for phase in ("prefill", "decode"):
                rows = report[phase]["flow"]["rows"]
                self.assertAlmostEqual(sum(row["total_ms"] for row in rows), report[phase]["flow"]["total_ms"], delta=1e-3)
                self.assertEqual(sum(row["in_layer"] for row in rows) > 0, True)
            self.assertEqual(len(report["layers"]), 5)
            self.assertEqual(len(report["tokens"]), 5)

    def test_files_and_reading_them_again(self):
        files = {kind: self.work / f"profile.{kind}" for kind in ("json", "html", "perfetto", "receipt")}
        flags = [part for kind, path in files.items() for part in (f"--{kind}", path)]
        text = self.profile("--device", "vnpu", *flags)
        for path in files.values():
            self.assertIn("modelled", path.read_text())
        again = {kind: self.work / f"again.{kind}" for kind in files}
        flags = [part for kind, path in again.items() for part in (f"--{kind}", path)]
        result = tyto("profile", "--from", files["json"], *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(text.endswith(result.stdout))
        for kind in files:
            self.assertEqual(again[kind].read_bytes(), files[kind].read_bytes(), kind)
        self.assertEqual(json.loads(files["receipt"].read_text())["schema"], "tyto-receipt-1")
        self.check_trace_events(json.loads(files["perfetto"].read_text()))

    def check_trace_events(self, trace):
        """As the trace-event format has it: known phases, what each needs, and slices that nest on their track."""
        named, tracks = set(), {}
        for event in trace["traceEvents"]:
            self.assertIn(event["ph"], {"M", "X", "C"})
            self.assertIsInstance(event["pid"], int)
            if event["ph"] == "M":
                self.assertIn("name" if event["name"].endswith("_name") else "sort_index", event["args"])
                named.add((event["pid"], event.get("tid")))
            else:
                self.assertGreaterEqual(event["ts"], 0)
            if event["ph"] == "X":
                self.assertGreaterEqual(event["dur"], 0)
                tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], -event["dur"], event["name"]))
            if event["ph"] == "C":
                self.assertTrue(all(isinstance(value, int) for value in event["args"].values()))
        self.assertLessEqual(set(tracks), named)
        for track, slices in tracks.items():
            ends = []
            for start, length, name in sorted(slices):
                while ends and ends[-1] <= start + 1e-3:
                    ends.pop()
                self.assertTrue(not ends or start - length <= ends[-1] + 1e-3, (track, name))
                ends.append(start - length)

    def test_diff_and_repetitions(self):
        before, after = self.work / "before.json", self.work / "after.json"
        self.assertIn("over 3 runs", self.profile("-r", "3", "--json", before))
        self.profile("-r", "3", "--fusion", "op", "--json", after)
        out = tyto("profile", "--diff", before, after)
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertIn("fusion: block -> op", out.stdout)
        self.assertIn("TPOT", out.stdout)

    def test_sweep(self):
        page = self.work / "sweep.html"
        out = tyto("profile", "-m", OWLET, "--sweep", "13,64,2048", "-n", "4", "--device", "vnpu", "--prompt-rows", "256", "--html", page)
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertIn("Scaling with the prompt  [modelled]", out.stdout)
        self.assertIn("2048 and 4 generated do not fit", out.stdout)
        self.assertIn("<svg", page.read_text())

    def test_require_shows_nothing_that_was_not_proven(self):
        self.check_error(tyto("profile", "-m", OWLET, "-p", "x", "-n", "2", "--device", "vnpu", "--prompt-rows", "64", "--require", "vnpu"), 3, "virtual")
        self.check_error(tyto("profile", "-m", OWLET, "-p", "x", "-n", "2", "--device", "vnpu", "--prompt-rows", "64", "--require", "cpu"), 3, "most of")

    def test_bad_usage_and_bad_files(self):
        self.check_error(tyto("profile", "-m", OWLET), 2, "no prompt")
        self.check_error(tyto("profile", "--sweep", "0"), 2)
        self.check_error(tyto("profile", "--diff", "only-one.json"), 2)
        for useless in (["--diff", "a", "b", "--html", "x"], ["--from", "a", "-p", "x"], ["--sweep", "4", "--temp", "0"],
                        ["--sweep", "4", "--perfetto", "x"], ["--diff", "a", "b", "--from", "c"]):
            self.check_error(tyto("profile", *useless), 2, "has no effect")
        self.check_error(tyto("profile", "--from", self.work / "absent.json"), 1, "absent.json")
        bad = self.work / "bad.json"
        bad.write_text('{"schema": "something-else"}')
        self.check_error(tyto("profile", "--from", bad), 1, "bad.json", "something-else")
        bad.write_text("{")
        self.check_error(tyto("profile", "--diff", bad, bad), 1, "bad.json")


class Chat(CliTest):
    def test_turns_clear_and_exit(self):
        result = tyto("chat", "-m", self.model, "--chat-template", "chatml", "-n", "4", "--temp", "0",
                      text="Hello\nAgain\n/clear\n/nonsense\nHello\n/exit\nnever read\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("cleared", result.stderr)
        self.assertIn("unknown command /nonsense", result.stderr)
        self.assertEqual(result.stderr.count("executed on cpu"), 3)

    def test_interrupt_stops_the_answer_and_not_the_program(self):
        process = subprocess.Popen([TYTO, "chat", "-m", str(OWLET), "-n", "1900", "--ignore-eos"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            process.stdin.write(b"Hello\n")
            process.stdin.flush()
            self.assertTrue(process.stdout.read(1))  # the answer has begun
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(b"/exit\n", timeout=60)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 0, err)
        generated = int(err.decode().split("generated ")[1].split()[0])
        self.assertLess(generated, 1900)


class Kernels(CliTest):
    """No real images here: headers are true, bodies are made up."""

    def setUp(self):
        self.root = Path(tempfile.mkdtemp(dir=self.work))
        self.environment = {"XDG_CACHE_HOME": str(self.root / "cache")}
        self.store = self.root / "cache" / "tyto" / "kernels"
        self.build = self.root / "llama32_1b"
        self.cache = self.build / "build_peano" / "prefill_kernel_cache"
        self.cache.mkdir(parents=True)
        entries = {"flash_attn": "main:attention_bf16", "o_ffn": "main:o_ffn"}
        for number, name in enumerate(entries):
            (self.cache / f"{name}.elf").write_bytes(self.elf(number))
        (self.cache / "manifest.json").write_text(json.dumps({
            "_toolchain": {"llvm-aie": "21.0"},
            "entries": {name: {"output_binary": f"cache/{name}.elf", "kernel": entry, "insts": None}
                        for name, entry in entries.items()}}))

    @staticmethod
    def elf(number, os_abi=69):
        header = b"\x7fELF" + bytes([2, 1, 1, os_abi]) + bytes(8)
        header += struct.pack("<HHIQQQIHHHHHH", 1, 69, 1, 0, 0, 64, 0, 64, 0, 0, 64, 1, 0)
        return header + bytes(64) + bytes([number]) * 100

    def kernels(self, *args):
        return tyto("kernels", *args, environment=self.environment)

    def test_help_says_that_nothing_is_shipped_and_how_to_build(self):
        for arguments in (["--help"], ["import", "--help"]):
            text = self.kernels(*arguments).stdout
            self.assertIn("Tyto ships no kernels", text)
            self.assertIn("make compile", text)
            self.assertIn("Example", text)

    def test_bad_usage(self):
        self.check_error(self.kernels(), 2)
        self.check_error(self.kernels("import"), 2)
        self.check_error(self.kernels("import", self.build, "--shape", "huge"), 2, "huge")
        self.check_error(self.kernels("import", self.build, "--shape", "qwen3-0.6b"), 1, "QK norm")
        self.check_error(self.kernels("rm"), 2, "--all")
        self.check_error(self.kernels("rm", "x", "--all"), 2, "--all")
        self.check_error(self.kernels("rm", "x"), 2, "no such kernel")

    def test_an_empty_store(self):
        result = self.kernels("list")
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        self.assertIn("no kernels", result.stderr)
        self.assertEqual(json.loads(self.kernels("list", "--json").stdout), [])
        self.assertEqual(self.kernels("check").returncode, 0)
        self.assertFalse(self.store.exists())

    def test_import_list_check_remove(self):
        result = self.kernels("import", self.build)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("llama-3.2-1b/o_ffn", result.stdout)
        self.assertIn("imported 2 kernels", result.stderr)
        self.assertIn("main:attention_bf16", self.kernels("list").stdout)
        rows = {row["name"]: row for row in json.loads(self.kernels("list", "--json").stdout)}
        row = rows["llama-3.2-1b/o_ffn"]
        self.assertEqual((row["arguments"], row["launches"], row["columns"]), (19, 12, None))
        self.assertEqual(row["dims"]["seq"], 2048)
        self.assertEqual(Path(row["images"][0]["file"]).read_bytes(), self.elf(1))
        self.assertIn("2 unchanged", self.kernels("check").stdout)
        self.assertIn("2 hashed", self.kernels("check", "--full").stdout)
        self.assertEqual(self.kernels("rm", "llama-3.2-1b/o_ffn").returncode, 0)
        self.assertNotIn("o_ffn", self.kernels("list").stdout)
        self.assertIn("deleted 1 image", self.kernels("rm", "--all").stderr)
        self.assertEqual(json.loads(self.kernels("list", "--json").stdout), [])

    def test_a_bad_folder_changes_nothing(self):
        self.check_error(self.kernels("import", self.work), 1, "no kernels")
        (self.cache / "o_ffn.elf").write_bytes(self.elf(1, os_abi=0))
        self.check_error(self.kernels("import", self.build), 1, "o_ffn.elf", "another platform")
        self.assertFalse(self.store.exists())

    def test_check_names_a_damaged_image(self):
        self.assertEqual(self.kernels("import", self.build).returncode, 0)
        image = next(path for path in (self.store / "images").iterdir() if path.read_bytes() == self.elf(1))
        image.write_bytes(self.elf(1)[:-1])
        result = self.kernels("check")
        self.assertEqual(result.returncode, 1)
        self.assertIn("truncated: llama-3.2-1b/o_ffn", result.stdout)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1)
        self.assertEqual(self.kernels("import", self.build).returncode, 0)
        self.assertEqual(self.kernels("check", "--full").returncode, 0)

    def test_a_damaged_manifest(self):
        self.assertEqual(self.kernels("import", self.build).returncode, 0)
        (self.store / "manifest.json").write_text("{")
        self.check_error(self.kernels("list"), 1, "manifest.json", "tyto kernels import")
        self.assertEqual(len(list((self.store / "images").iterdir())), 2)


def write_tree(root, files):
    """A folder that looks like a machine's /."""
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


class Npu(CliTest):
    """The NPU's code on the virtual NPU, as a user drives it."""
    PROMPT = ["-m", OWLET, "-p", "What is 3 plus 4?", "--temp", "0", "-n", "8"]
    VNPU = ["--device", "vnpu", "--prompt-rows", "64"]

    def run_vnpu(self, *flags, environment=None):
        return tyto("run", *self.PROMPT, *self.VNPU, *flags, environment=environment)

    def test_every_fusion_gives_the_cpus_text(self):
        want = tyto("run", *self.PROMPT).stdout
        for fusion in ("op", "block", "token"):
            result = self.run_vnpu("--fusion", fusion)
            self.assertEqual((result.returncode, result.stdout), (0, want), result.stderr)
        for flags in (["--fusion", "token", "--weights", "q4nx"], ["--fusion", "op", "--weights", "int8"],
                      ["--vnpu-numerics", "bfp16"], ["--vnpu-machine", "krackan"]):
            result = self.run_vnpu(*flags)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertTrue(result.stdout.strip())

    def test_faults_are_recovered_from_or_reported(self):
        want = self.run_vnpu().stdout
        for fault in ("timeout@3", "error@9", "context-lost@5", "corrupt@20", "hang"):
            result = self.run_vnpu("--vnpu-fault", fault)
            self.assertEqual((result.returncode, result.stdout), (0, want), result.stderr)
            self.assertIn("retried on new contexts", result.stderr)
        result = self.run_vnpu("--vnpu-fault", "error@9", "--on-npu-error", "cpu")
        self.assertEqual(result.stdout, tyto("run", *self.PROMPT).stdout)
        self.assertIn("finished on the cpu", result.stderr)
        self.check_error(self.run_vnpu("--vnpu-fault", "error@3", "--on-npu-error", "fail"), 1, "vnpu: L00.", "failed")
        self.check_error(self.run_vnpu("--vnpu-fault", "oom"), 1, "vnpu")
        self.check_error(self.run_vnpu("--vnpu-fault", "slowx1e9"), 1, "timed out")
        self.check_error(self.run_vnpu("--vnpu-fault", "melt"), 2, "melt")

    def test_controls_without_effect_are_refused(self):
        for flags in (["--weights", "q4nx"], ["--on-npu-error", "fail"], ["--prompt-rows", "64"],
                      ["--vnpu-fault", "hang"], ["--vnpu-machine", "strix"], ["--vnpu-numerics", "bf16"]):
            self.check_error(tyto("run", *self.PROMPT, *flags), 2, flags[0], "no effect")
        self.check_error(self.run_vnpu("--weights", "q4nx"), 2, "--fusion token")
        self.check_error(self.run_vnpu("--weights", "int8"), 2, "--fusion op")
        self.check_error(self.run_vnpu("--require", "npu", "--on-npu-error", "cpu"), 2, "--on-npu-error cpu")
        self.check_error(self.run_vnpu("--weights", "q4nx", "--fusion", "token", "--kv-type", "f16"), 2, "--kv-type")

    def test_without_xrt_the_npu_says_so(self):
        listed = tyto("devices").stdout
        self.assertIn("npu", listed)
        if "no XRT" in listed:
            self.check_error(tyto("run", *self.PROMPT, "--device", "npu"), 1, "no XRT", "vnpu")
            self.check_error(tyto("run", *self.PROMPT, "--require", "npu"), 3, "npu")

    def test_compiled_images_are_stored_and_used(self):
        environment = {"XDG_CACHE_HOME": str(self.work / "cache")}
        made = tyto("compile", "-m", OWLET, "--prompt-rows", "64", environment=environment)
        self.assertEqual(made.returncode, 0, made.stderr)
        for name in ("rms_gemms_rope", "flash_attn", "o_ffn", "rms_gemv_rope", "o_gemv_ffn", "lm_head_gemv",
                     "decode_L64", "decode_L2048"):
            self.assertIn("owlet@vnpu@64/" + name, made.stdout)
        self.assertEqual(tyto("kernels", "check", environment=environment).returncode, 0)
        self.assertIn("vnpu", tyto("kernels", "list", environment=environment).stdout)
        want = self.run_vnpu().stdout
        for flags in ([], ["--fusion", "token", "--weights", "q4nx"]):
            result = self.run_vnpu(*flags, environment=environment)
            self.assertEqual(result.returncode, 0, result.stderr)
            if not flags:
                self.assertEqual(result.stdout, want)
        # A stored image that is damaged is not run.
        for image in (self.work / "cache/tyto/kernels/images").glob("*.elf"):
            image.write_bytes(image.read_bytes()[:-1])
        self.assertNotEqual(tyto("kernels", "check", environment=environment).returncode, 0)
        self.check_error(self.run_vnpu(environment=environment), 1, "truncated")

    def test_compile_for_the_real_npu_says_how(self):
        self.check_error(tyto("compile", "-m", OWLET, "--device", "npu"), 1, "Llama-3.2-1B")


class Energy(CliTest):
    SOURCES = ["rapl", "amdgpu", "amdxdna", "nvml"]

    def machine(self, name):
        """13 W on the amdgpu rail, and a counter that stands still."""
        return write_tree(self.work / name, {
            "sys/class/hwmon/hwmon2/name": "amdgpu\n",
            "sys/class/hwmon/hwmon2/power1_label": "PPT\n",
            "sys/class/hwmon/hwmon2/power1_average": "13000000\n",
            "sys/class/powercap/intel-rapl:0/name": "package-0\n",
            "sys/class/powercap/intel-rapl:0/energy_uj": "5000000\n"})

    def power(self, root, *args):
        return tyto("power", "--root", root, "--settle", "0.01", "-r", "1", *args)

    def test_run_names_every_rail_or_the_reason(self):
        flags = ["-m", OWLET, "-p", "x", "-n", "4", "--temp", "0"]
        result = tyto("run", *flags, "--energy")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = [line for line in result.stderr.splitlines() if line.startswith("energy · ")]
        self.assertEqual(list(dict.fromkeys(line.split()[2] for line in lines)), self.SOURCES)
        for line in lines:
            self.assertTrue("J/token" in line or "n/a (" in line, line)
        self.assertEqual(result.stdout, tyto("run", *flags).stdout)
        self.assertNotIn("energy", tyto("run", *flags).stderr)

    def test_a_simulations_energy_is_not_a_devices(self):
        result = tyto("run", "-m", OWLET, "-p", "x", "-n", "4", "--device", "vnpu", "--prompt-rows", "64", "--energy")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("energy · ", result.stderr)
        self.assertNotIn("J/token", result.stderr)

    def test_bench_has_energy_in_both_formats(self):
        flags = ["bench", "-m", self.model, "-p", "16", "-n", "4", "-r", "1", "--energy"]
        rows = json.loads(tyto(*flags, "-o", "json").stdout)
        for row in rows:
            self.assertEqual(list(dict.fromkeys(rail["source"] for rail in row["energy"])), self.SOURCES)
            for rail in row["energy"]:
                self.assertEqual(rail["joules"] is None, rail["reason"] is not None)
        self.assertNotIn("no --energy", tyto(*flags).stdout)
        self.assertIn("n/a (no --energy)", tyto(*flags[:-1]).stdout)
        self.check_error(tyto(*flags, "--ab", "cpu,cpu"), 2, "--energy")

    def test_commands_that_measure_nothing_do_not_take_the_flag(self):
        self.check_error(tyto("eval", "-m", self.model, "--tokens", "1", "--logits", self.work / "x", "--energy"), 2,
                         "--energy")

    def test_power_of_a_command(self):
        result = self.power(self.machine("steady"), "--idle", "0.6", "--json", "--", "sh", "-c", "echo loud; sleep 0.6")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)  # what the command prints is not in it
        self.assertEqual(report["schema"], "tyto-power/1")
        load = report["loads"][0]
        self.assertEqual(load["load"], "sh -c echo loud; sleep 0.6")
        self.assertGreaterEqual(load["seconds"][0], 0.6)
        rails = {rail["source"]: rail for rail in load["rails"]}
        self.assertEqual(list(rails), ["rapl", "amdgpu", "amdxdna"])
        self.assertIn("did not move", rails["rapl"]["reason"])
        self.assertIn("no NPU", rails["amdxdna"]["reason"])
        self.assertIsNone(rails["amdgpu"]["reason"])
        self.assertEqual(rails["amdgpu"]["kind"], "sampled power")
        self.assertAlmostEqual(rails["amdgpu"]["idle_watts"]["mean"], 13, places=6)
        self.assertAlmostEqual(rails["amdgpu"]["load_watts"]["mean"], 13, places=6)
        self.assertAlmostEqual(rails["amdgpu"]["net_joules"]["mean"], 0, places=6)
        self.assertIs(rails["amdgpu"]["above_idle"], False)

    def test_power_of_a_model(self):
        result = self.power(self.machine("model"), "--idle", "0.6", "-m", self.model, "-p", "16", "-n", "4",
                            "--load", "0.6")
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ("pp16: ", "tg4: ", "executed on cpu", "amdgpu PPT", "13.00 ± 0.00", "cannot be told from idle",
                     "n/a (no NPU"):
            self.assertIn(part, result.stdout)
        self.check_error(self.power(self.machine("virtual"), "-p", "0", "-n", "0"), 2, "nothing to measure")
        self.check_error(self.power(self.machine("virtual"), "-m", OWLET, "--device", "vnpu"), 2, "simulated")

    def test_power_without_a_rail_says_why_and_runs_nothing(self):
        empty = write_tree(self.work / "bare", {"proc/version": ""})
        marker = self.work / "marker"
        result = tyto("power", "--root", empty, "--", "touch", marker)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no power rail", result.stderr)
        self.assertIn("rapl package: n/a (", result.stdout)
        self.assertFalse(marker.exists())
        rails = json.loads(tyto("power", "--root", empty, "--json", "--", "true").stdout)["rails"]
        self.assertTrue(all(rail["reason"] for rail in rails))

    def test_commands_that_go_wrong(self):
        def fails(*command, flags=()):
            return self.power(self.machine("wrong"), "--idle", "0.01", *flags, "--", *command)
        self.check_error(fails("sh", "-c", "exit 7"), 1, "exit code 7")
        self.check_error(fails("sh", "-c", "kill -9 $$"), 1, "signal 9")
        self.check_error(fails(self.work / "no-such-program"), 1, "cannot be started")
        self.check_error(fails("sleep", "1000", flags=("--timeout", "1")), 1, "killed")


class Doctor(CliTest):
    def doctor(self, root, *args):
        return tyto("doctor", "--root", root, *args, environment={"XDG_CACHE_HOME": str(self.work / "cache")})

    def machine(self, name):
        """A Strix Halo whose driver is not loaded."""
        pci = "sys/bus/pci/devices/0000:c5:00.1/"
        return write_tree(self.work / name, {
            pci + "vendor": "0x1022\n", pci + "device": "0x17f0\n", pci + "class": "0x118000\n",
            pci + "revision": "0x11\n", "proc/sys/kernel/osrelease": "6.14.2\n",
            "lib/modules/6.14.2/kernel/drivers/accel/amdxdna/amdxdna.ko.xz": "",
            "lib/firmware/amdnpu/17f0_11/npu.sbin.xz": ""})

    def check_of(self, result, name):
        return [check for check in json.loads(result.stdout)["checks"] if check["check"] == name][0]

    def test_this_machine(self):
        result = tyto("doctor", "--json", environment={"XDG_CACHE_HOME": str(self.work / "cache")})
        report = json.loads(result.stdout)
        self.assertEqual(result.returncode, 1 if report["verdict"] == "fail" else 0)
        checks = {check["check"]: check for check in report["checks"]}
        for name in ("processor", "memory", "kernel", "NPU", "model", "cpu", "cpu speed", "vnpu", "vnpu speed"):
            self.assertIn(name, checks)
        for name in ("cpu", "vnpu", "model"):
            self.assertEqual(checks[name]["state"], "ok", checks[name])
        self.assertIn("modelled", checks["vnpu speed"]["detail"])
        for check in report["checks"]:
            self.assertEqual(check["fix"] is not None, check["state"] in ("warn", "fail"), check)
        self.assertEqual(json.loads(tyto("validate", "--json").stdout)["schema"], "tyto-doctor/1")

    def test_a_recorded_machine(self):
        result = self.doctor(self.machine("unloaded"))
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        lines = result.stdout.splitlines()
        self.assertTrue(any(line.startswith("✓ NPU ") and "Strix Halo" in line for line in lines), result.stdout)
        self.assertTrue(any(line.startswith("✗ driver ") for line in lines), result.stdout)
        self.assertIn("sudo modprobe amdxdna", lines[-1])
        self.assertNotIn("cpu speed", result.stdout)  # nothing is tried out for another machine
        for line in lines:
            self.assertLessEqual(len(line), 100, line)

    def test_a_damaged_kernel_cache(self):
        manifest = self.work / "cache" / "tyto" / "kernels" / "manifest.json"
        manifest.parent.mkdir(parents=True)
        manifest.write_text("{ damaged")
        result = self.doctor(self.machine("damaged"), "--json")
        manifest.unlink()
        check = self.check_of(result, "kernel images")
        self.assertEqual(check["state"], "fail")
        self.assertIn("manifest.json", check["detail"])

    def test_a_model_that_does_not_open(self):
        result = tyto("doctor", "-m", self.work / "absent.gguf", "--json")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.check_of(result, "model")["state"], "fail")

    def test_bad_usage(self):
        self.check_error(tyto("doctor", "--root", self.work / "nowhere"), 2, "nowhere")


class Verify(CliTest):
    """The gate and the diagnosis, as a user runs them."""
    VNPU = ["--device", "vnpu", "--prompt-rows", "64"]

    def setUp(self):
        self.state = Path(tempfile.mkdtemp(dir=self.work))
        self.remembered = self.state / "tyto" / "verified.jsonl"

    def tyto(self, *args):
        return tyto(*args, environment={"XDG_STATE_HOME": str(self.state)})

    def run_owlet(self, *flags):
        result = self.tyto("run", "-m", OWLET, "-p", "Hi", "-n", "3", "--temp", "0", *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def test_the_cpu_passes_and_the_machine_remembers(self):
        receipt = self.work / "verified.json"
        self.assertIn("never verified: tyto verify --device cpu", self.run_owlet("--receipt", receipt))
        self.assertEqual(json.loads(receipt.read_text())["verified"], {"state": "no", "time": None})
        out = self.work / "verify.json"
        result = self.tyto("verify", "-m", OWLET, "--json", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("PASS: cpu agrees with the f32 reference on 2 prompts", result.stdout)
        self.assertIn("executed on cpu", result.stderr)
        data = json.loads(out.read_text())
        self.assertEqual((data["schema"], data["verdict"], data["remembered"]), ("tyto-verify-1", "pass", True))
        self.assertEqual(len(data["prompts"]), 2)
        for prompt in data["prompts"]:
            self.assertGreater(prompt["worst_logit_cosine"], 0.999)
        self.assertNotIn("verified", self.run_owlet("--receipt", receipt))
        record = json.loads(self.remembered.read_text())
        self.assertEqual(json.loads(receipt.read_text())["verified"], {"state": "yes", "time": record["time"]})
        # Another combination is another matter.
        self.assertIn("never verified", self.run_owlet("--fusion", "op"))
        self.assertIn("never verified", self.run_owlet("--kv-type", "f32"))
        self.assertIn("never verified: tyto verify --device cpu --isa generic", self.run_owlet("--isa", "generic"))
        # A later failure counts, and damaged lines do not.
        failed = {**record, "verdict": "fail", "time": "2030-01-01T00:00:00Z"}
        with self.remembered.open("a") as file:
            file.write(json.dumps(failed) + "\n" + json.dumps(record)[:50])
        stderr = self.run_owlet("--receipt", receipt)
        self.assertIn("FAILED its verification of 2030-01-01T00:00:00Z: tyto diagnose", stderr)
        self.assertIn("1 damaged line was passed over", stderr)
        self.assertEqual(json.loads(receipt.read_text())["verified"]["state"], "failed")
        # What comes behind half a line is whole.
        self.assertEqual(self.tyto("verify", "-m", OWLET).returncode, 0)
        self.assertNotIn("FAILED", self.run_owlet())
        chat = tyto("chat", "-m", OWLET, "-n", "2", "--fusion", "op", text="Hi\nHo\n",
                    environment={"XDG_STATE_HOME": str(self.state)})
        self.assertEqual(chat.stderr.count("never verified"), 1, chat.stderr)

    def test_the_virtual_npu_passes(self):
        result = self.tyto("verify", "-m", OWLET, *self.VNPU)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("executed on", result.stderr)
        self.assertIn("modelled", result.stderr)
        self.assertNotIn("verified", self.run_owlet(*self.VNPU))
        self.assertIn("never verified: tyto verify --device vnpu --fusion token",
                      self.run_owlet(*self.VNPU, "--fusion", "token"))

    def test_a_device_that_did_not_execute_fails(self):
        result = self.tyto("verify", "-m", OWLET, *self.VNPU, "--vnpu-fault", "error@9", "--on-npu-error", "cpu")
        self.assertEqual(result.returncode, 1)
        self.assertIn("FAIL: vnpu completed", result.stdout)
        result = self.tyto("verify", "-m", OWLET, *self.VNPU, "--vnpu-fault", "error@9", "--on-npu-error", "fail")
        self.assertEqual(result.returncode, 1)
        self.assertIn("FAIL: vnpu: L0", result.stdout)
        self.assertIn("not remembered", result.stderr)
        self.assertFalse(self.remembered.exists())

    def transcript(self, *flags):
        path = self.work / "ours.json"
        result = self.tyto("verify", "-m", OWLET, "--write", path, *flags)
        self.assertEqual((result.returncode, result.stdout), (0, ""), result.stderr)
        return path, json.loads(path.read_text())

    def test_transcripts_of_two_machines(self):
        path, data = self.transcript()
        self.assertEqual(data["schema"], "tyto-transcript-1")
        self.assertIn("on cpu", data["engine"])
        result = self.tyto("verify", "-m", OWLET, "--against", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(data["engine"], result.stdout)

        def against(change, *flags):
            changed = json.loads(path.read_text())
            change(changed)
            other = self.work / "theirs.json"
            other.write_text(json.dumps(changed))
            return self.tyto("verify", "-m", OWLET, "--against", other, *flags)

        def other_token(rank):
            def change(changed):
                prompt = changed["prompts"][1]
                best, chosen = prompt["top"][5][0], prompt["top"][5][rank]
                chosen[1] = best[1]
                prompt["top"][5] = [chosen, best] + [c for c in prompt["top"][5] if c not in (best, chosen)]
                prompt["generated"][5] = chosen[0]
            return change
        result = against(other_token(2))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("token 5", result.stdout)
        result = against(other_token(7))
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("FAIL: cpu differs", result.stdout)
        self.assertIn("FAILED its verification", self.run_owlet())

        one_line = lambda result, *parts: self.check_error(result, 1, *parts)
        one_line(against(lambda d: d.update(schema="tyto-transcript-9")), "tyto-transcript-9")
        one_line(against(lambda d: d.update(max_tokens=31, prompts=[
            {**p, "generated": p["generated"][:31], "top": p["top"][:31]} for p in d["prompts"]])), "31 tokens")
        one_line(against(lambda d: d["prompts"][0]["generated"].__setitem__(0, 4096)), "generated")
        one_line(against(lambda d: d["prompts"][0]["prompt"].clear()), "prompt")
        one_line(against(lambda d: None, "-k", "11"), "best 10")
        one_line(against(lambda d: None, "--full"), "--full wants 8")
        garbage = self.work / "garbage.json"
        garbage.write_text("garbage")
        one_line(self.tyto("verify", "-m", OWLET, "--against", garbage), "garbage.json")
        one_line(self.tyto("verify", "-m", OWLET, "--against", self.work / "absent"), "absent")

    def test_several_processes_remember_at_once(self):
        processes = [subprocess.Popen([TYTO, "verify", "-m", self.model, "--fusion", fusion, "-t", "1"],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      env={**os.environ, "XDG_STATE_HOME": str(self.state)})
                     for fusion in ("op", "block", "token") * 2]
        self.assertEqual([process.wait(timeout=120) for process in processes], [0] * len(processes))
        records = [json.loads(line) for line in self.remembered.read_text().splitlines()]
        self.assertEqual(sorted(record["fusion"] for record in records), ["block", "block", "op", "op", "token", "token"])

    def test_a_weaker_gate_is_not_remembered(self):
        result = self.tyto("verify", "-m", OWLET, "-n", "4")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("not remembered", result.stderr)
        self.assertFalse(self.remembered.exists())

    def test_the_other_engines_prompts_are_the_same(self):
        source = (Path(__file__).resolve().parents[2] / "tools" / "hf_reference.py").read_text()
        prompts = next(ast.literal_eval(node.value) for node in ast.parse(source).body
                       if isinstance(node, ast.Assign) and node.targets[0].id == "PROMPTS")
        data = self.transcript("--full", "-n", "1")[1]
        self.assertEqual([prompt["text"] for prompt in data["prompts"]], prompts)

    def test_the_script_for_the_other_engine(self):
        """The script itself, on a stand-in for torch whose forward pass is the reference."""
        ours = self.transcript("-n", "3")[0]
        theirs = self.work / "hf.json"
        root = Path(__file__).resolve().parents[2]
        made = subprocess.run([sys.executable, root / "tools" / "hf_reference.py", OWLET, theirs, "--like", ours, "-n", "3"],
                              capture_output=True, timeout=120,
                              env={**os.environ, "PYTHONPATH": str(root / "tests" / "support" / "fake_hf"),
                                   "PYTHONDONTWRITEBYTECODE": "1", "FAKE_HF_TYTO": str(Path(TYTO).resolve())})
        self.assertEqual(made.returncode, 0, made.stderr)
        result = self.tyto("verify", "-m", OWLET, "-n", "3", "--against", theirs)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("transformers fake", result.stdout)

    def test_against_what_transformers_computed(self):
        """Every prefix of the golden prompts and the token that transformers puts behind it."""
        for name in ("llama3", "qwen2", "mistral"):
            folder = FIXTURES / name
            prompts = []
            for prompt in json.loads((folder / "expected.json").read_text())["prompts"]:
                rows, vocab = prompt["shape"]
                logits = (FIXTURES / name / prompt["logits"]).read_bytes()
                for row in range(0, rows, 9):
                    values = struct.unpack_from(f"<{vocab}f", logits, row * vocab * 4)
                    best = sorted(range(vocab), key=lambda i: -values[i])[:5]
                    prompts.append({"prompt": prompt["ids"][:row + 1], "generated": best[:1],
                                    "top": [[[i, values[i]] for i in best]]})
            theirs = self.work / f"{name}.json"
            theirs.write_text(json.dumps({"schema": "tyto-transcript-1", "engine": "transformers", "model": name,
                                          "max_tokens": 1, "k": 5, "prompts": prompts}))
            result = self.tyto("verify", "-m", folder / "model", "-n", "1", "--full", "--against", theirs)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertIn(f"on {len(prompts)} prompts", result.stdout)

    def test_bad_usage(self):
        self.check_error(self.tyto("verify", "-m", OWLET, "-n", "0"), 2)
        self.check_error(self.tyto("verify", "-m", OWLET, "--write", "x", "--json", "y"), 2, "--against")
        self.check_error(self.tyto("verify", "-m", OWLET, "--device", "abacus"), 2, "abacus")
        self.check_error(self.tyto("verify", "-m", OWLET, "--require", "npu"), 3, "npu")
        self.check_error(self.tyto("diagnose", "-m", OWLET, "--tolerance", "2"), 2)

    def test_diagnose(self):
        out, page = self.work / "diagnosis.json", self.work / "diagnosis.html"
        flags = ["diagnose", "-m", OWLET, "-p", "Hi", "-n", "2", "--json", out, "--html", page]
        for device in (["--device", "cpu"], [*self.VNPU, "--fusion", "op"]):
            result = self.tyto(*flags, *device)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertIn("within tolerance", result.stdout)
            self.assertIn("executed on", result.stderr)
            data = json.loads(out.read_text())
            self.assertEqual((data["schema"], data["verdict"]), ("tyto-diagnosis-1", "pass"))
            for phase in ("prefill", "decode"):
                self.assertEqual(len(data["residual_cosine"][phase]), 5)
                self.assertGreater(min(data["residual_cosine"][phase]), 0.999)
            text = page.read_text()
            self.assertIn("prefers-color-scheme", text)
            self.assertNotIn("http", text.replace("http://www.w3.org", ""))
        result = self.tyto(*flags, "--tolerance", "1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("first step past tolerance: ", result.stdout)
        self.assertIn("past", page.read_text())

    def test_diagnose_finds_a_broken_dispatch(self):
        out = self.work / "broken.json"
        # The third dispatch of the prompt is the first layer's o_ffn; its result is not a number.
        result = self.tyto("diagnose", "-m", OWLET, "-p", "Hi", "-n", "1", *self.VNPU, "--vnpu-fault", "corrupt@3",
                           "--json", out)
        self.assertEqual(result.returncode, 1, result.stdout)
        data = json.loads(out.read_text())
        self.assertEqual(data["verdict"], "fail")
        self.assertEqual(data["first_past_tolerance"]["layer"], 0)
        self.assertEqual(data["first_past_tolerance"]["step"], "ffn_residual")
        self.assertIs(data["first_past_tolerance"]["finite"], False)
        self.assertIn("not finite", data["problem"])


class Plan(CliTest):
    FIELDS = ["machine", "shape", "kernels", "fusion", "prompt_tokens", "context_tokens", "ttft_ms", "prefill_tok_s",
              "tpot_ms", "decode_tok_s", "dispatches_per_token", "pinned_bytes", "bottleneck", "rel_error_p90"]

    def test_json_has_a_row_per_kernel_set_and_says_it_is_modelled(self):
        result = tyto("plan", "--shape", "llama-3.2-1b", "--machine", "strix", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)
        self.assertEqual([(row["kernels"], row["fusion"]) for row in rows],
                         [("air-bf16", "op"), ("air-bf16", "block"), ("air-q4nx", "token"), ("flm-q4", "token")])
        for row in rows:
            self.assertEqual(set(row), set(self.FIELDS) | {"note", "modelled"})
            self.assertIs(row["modelled"], True)
            self.assertEqual((row["machine"], row["shape"], row["prompt_tokens"]), ("strix", "llama-3.2-1b", 2048))
        self.assertEqual([row["dispatches_per_token"] for row in rows[:3]], [179, 33, 1])

    def test_table_says_modelled_and_takes_a_model_file(self):
        result = tyto("plan", "-m", self.model, "--machine", "krackan", "--kernels", "air-q4nx", "--prompt", "64")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Modelled, not measured", result.stdout)
        self.assertIn("no public images", result.stdout)
        self.assertNotIn("flm-q4", result.stdout)

    def test_bad_names_are_one_line_errors(self):
        self.check_error(tyto("plan", "--shape", "tiny", "--machine", "phoenix"), 2, "machine phoenix", "strix-halo")
        self.check_error(tyto("plan", "--shape", "huge", "--machine", "strix"), 2, "shape huge")
        self.check_error(tyto("plan", "--shape", "tiny", "--machine", "strix", "--kernels", "x"), 2, "kernels x", "flm-q4")
        self.check_error(tyto("plan", "--shape", "tiny", "--machine", "strix", "--kernels", "air-q4nx", "--fusion", "op"), 2,
                         "--fusion op")
        self.check_error(tyto("plan", "--shape", "tiny", "--machine", "strix", "--prompt", "0"), 2, "prompt length")
        self.check_error(tyto("plan", "--shape", "tiny"), 2, "--machine")


if __name__ == "__main__":
    FIXTURES = Path(sys.argv.pop())
    TYTO = sys.argv.pop()
    unittest.main(verbosity=1)
