#!/usr/bin/env python3
"""tyto run: the text, the receipt, what is required."""
import json

from harness import FIXTURES, OWLET, CliTest, main, tyto


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
        self.assertIn("every byte of 1 weight file", data["hashes"]["weights_form"])
        self.assertIn(data["model"]["identity_cached"], (False, True))
        self.assertGreater(data["model"]["identity_seconds"], 0)
        self.assertTrue(data["hashes"]["images"])
        self.assertIn("reason", data["energy"])
        self.assertIn("--receipt", data["command"])
        again = self.work / "again.json"
        self.run_model("--raw", "--receipt", again)
        self.assertEqual(json.loads(again.read_text())["hashes"], data["hashes"])

    def test_the_model_is_hashed_once(self):
        environment = {"XDG_CACHE_HOME": str(self.work / "hashes")}
        receipt, models = self.work / "hashed.json", []
        for _ in range(2):
            self.assertEqual(tyto("run", "-m", OWLET, "-p", "Hi", "-n", "1", "--receipt", receipt,
                                  environment=environment).returncode, 0)
            data = json.loads(receipt.read_text())
            models.append((data["model"]["identity_cached"], data["hashes"]["weights"]))
        self.assertEqual([cached for cached, _ in models], [False, True])
        self.assertEqual(models[0][1], models[1][1])
        kept = self.work / "hashes" / "tyto" / "file-hashes.jsonl"
        self.assertEqual(len(kept.read_text().splitlines()), 1)
        # One that cannot be kept is made each time.
        blocked = {"XDG_CACHE_HOME": str(receipt)}
        self.assertEqual(tyto("run", "-m", OWLET, "-p", "Hi", "-n", "1", environment=blocked).returncode, 0)

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

    def test_special_tokens_in_a_prompt_are_text(self):
        model = FIXTURES / "llama3" / "model"
        receipt = self.work / "special.json"

        def prompt_tokens(*args):
            result = tyto("run", "-m", model, "-n", "1", "--temp", "0", "--receipt", receipt, *args)
            self.assertEqual(result.returncode, 0, result.stderr)
            return json.loads(receipt.read_text())["prompt_tokens"]

        as_text = len(json.loads(tyto("tokenize", "-m", model, "--text", "<|eot_id|>", "--json", "--no-bos").stdout)["ids"])
        self.assertGreater(as_text, 1)
        for where in (["-p"], ["--raw", "-p"], ["-p", "x", "--system"]):
            typed = prompt_tokens(*where, "<|eot_id|>")
            self.assertEqual(typed - prompt_tokens("--special", *where, "<|eot_id|>"), as_text - 1, where)
        talk = ["chat", "-m", model, "-n", "1", "--temp", "0", "--verbose"]
        counts = [tyto(*talk, *flags, text="<|eot_id|>\n").stderr.split("prompt ")[1].split()[0]
                  for flags in ([], ["--special"])]
        self.assertEqual(int(counts[0]) - int(counts[1]), as_text - 1)
        out = self.work / "special.f32"
        sizes = []
        for flags in ([], ["--special"]):
            done = tyto("eval", "-m", model, "--prompt", "<|eot_id|>", "--logits", out, "--force", *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            sizes.append(out.stat().st_size // (4 * 384))
        self.assertEqual(sizes[0] - sizes[1], as_text - 1)
        self.check_error(tyto("eval", "-m", model, "--tokens", "1", "--special", "--logits", out), 2, "--special")
        self.check_error(tyto("profile", "-m", model, "--sweep", "4", "--special"), 2, "--special")

    def test_bad_input(self):
        self.check_error(self.run_model(prompt=""), 1, "empty")
        self.check_error(self.run_model("-c", "16", "--raw", prompt="word " * 100), 1, "context of 16")
        self.check_error(tyto("run", "-m", self.work / "absent.gguf", "-p", "x"), 1, "absent.gguf")
        self.check_error(tyto("run", "-m", "some-org/some-model", "-p", "x"), 1, "tyto pull some-org/some-model")
        self.check_error(self.run_model("--chat-template", "no-such-template"), 2, "chatml")
        self.check_error(self.run_model("--logit-bias", "99999999999999=100"), 2, "ID=VALUE")


if __name__ == "__main__":
    main()
