#!/usr/bin/env python3
"""tyto run: the text, the receipt, what is required."""
import array
import fcntl
import json
import re
import shlex
import shutil
import signal
import subprocess
import termios
import time
from pathlib import Path

from harness import FIXTURES, OWLET, TYTO, CliTest, main, tyto

CHAT_MODEL = FIXTURES / "llama3" / "model"
SMALLEST_PIPE = 4096


def stands_in_write(pid):
    """Whether a process waits inside write(2), which is system call 1 here; a running one shows as "running"."""
    return Path(f"/proc/{pid}/syscall").read_text().startswith("1 ")


def waiting_bytes(pipe):
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def has_pending_signal(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return any(int(mask, 16) for mask in re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)", status, re.MULTILINE))


class Run(CliTest):
    def run_model(self, *args, prompt="Hello"):
        return tyto("run", "-m", self.model, "-p", prompt, "-n", "8", "--temp", "0", "--ignore-eos", *args)

    def test_stdout_is_the_text_and_stderr_the_receipt(self):
        result = self.run_model("--raw")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout.endswith("\n"))
        self.assertNotIn("tok/s", result.stdout)
        self.assertRegex(result.stderr, r"^8 tokens · [0-9.]+ tok/s · cpu\n")
        for word in ("seed", "executed on", "ready in"):
            self.assertNotIn(word, result.stderr)
        self.assertIn("\ncut off after 8 tokens (-n)\n", result.stderr)
        for flag in ("-v", "--verbose"):
            whole = tyto("run", "Hello", "-n", "8", "--seed", "7", flag).stderr
            for words in ("executed on cpu", "no fallbacks", " · seed 7", "ready in"):
                self.assertIn(words, whole)

    def test_an_answer_ends_by_itself_or_is_cut(self):
        story = tyto("run", "Tell me a story about a fox.", "--seed", "3")
        self.assertEqual(story.returncode, 0, story.stderr)
        self.assertGreater(int(story.stderr.split()[0]), 100)
        self.assertNotIn("cut off", story.stderr)
        self.assertNotIn("verif", story.stderr)
        grammar = self.work / "list.gbnf"
        grammar.write_text('root ::= "a" ("b" "c")+ "d"?')
        flags = ["run", "Hello", "--temp", "0", "--grammar", grammar]
        cut = tyto(*flags, "-n", "2")
        self.assertEqual(cut.returncode, 1, cut.stderr)
        self.assertIn("does not match the grammar or schema (it was cut off after 2 tokens (-n))", cut.stderr)
        whole = tyto(*flags, "-n", "3")  # it may end there
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertIn("cut off after 3 tokens", whole.stderr)

    def test_a_device_that_was_not_checked_is_said_once(self):
        state = {"XDG_STATE_HOME": str(self.work / "unchecked")}
        def said(*flags):
            result = tyto("run", "Hello", "-n", "2", *flags, environment=state)
            self.assertEqual(result.returncode, 0, result.stderr)
            return re.findall("This device has not been checked against the reference yet: (.*)", result.stderr)
        self.assertEqual(said(), [])
        self.assertEqual(said("--isa", "generic"), [])
        self.assertEqual(said("--device", "vnpu"), ["tyto verify --device vnpu"])
        self.assertEqual(said("--device", "vnpu", "--fusion", "token"), [])
        self.assertEqual(said("-m", self.model, "--raw"), [f"tyto verify -m {self.model} --device cpu"])
        self.assertEqual(said("-m", self.model, "--raw"), [])
        self.assertIn("never verified", tyto("run", "Hello", "-n", "2", "-v", environment=state).stderr)

    def test_what_the_host_does_by_design_is_no_fallback(self):
        receipt = self.work / "design.json"
        flags = ["run", "Hello", "-n", "3", "--device", "vnpu", "--receipt", receipt]
        result = tyto(*flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("3 tokens · vnpu (modelled)+cpu\n", result.stderr)
        self.assertEqual(result.stderr.splitlines()[-1], f"wrote {receipt}")
        data = json.loads(receipt.read_text())
        self.assertEqual(data["fallbacks"], [])
        self.assertEqual(data["on_host"], ["embedding", "rotation table", "KV cache and attention of one query (unless --fusion token)",
                                           "final norm"])
        self.assertEqual(tyto("receipt", "check", receipt).returncode, 0)
        whole = tyto(*flags, "-v").stderr
        self.assertIn("no fallbacks · on the host by design: embedding, rotation table, ", whole)
        self.assertIn("says nothing about a real NPU", whole)
        # A dispatch that failed is told, and so is what was done about it.
        failed = tyto("run", "Hello", "-n", "3", "--device", "vnpu", "--vnpu-fault", "error@9", "--on-device-error", "cpu").stderr
        self.assertRegex(failed, r"(?m)^vnpu: 1 of \d+ dispatches failed$")
        self.assertRegex(failed, r"(?m)^fallback: ")

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

    def test_prompt_as_an_argument(self):
        flags = ["-m", CHAT_MODEL, "-n", "8", "--temp", "0", "--ignore-eos"]
        told = tyto("run", *flags, "-p", "Hello")
        self.assertEqual(told.returncode, 0, told.stderr)
        for words in (["Hello", *flags], [*flags, "Hello"], [*flags, "--stop", "zzz", "Hello"], [*flags, "--", "Hello"]):
            self.assertEqual(tyto("run", *words).stdout, told.stdout, words)
        self.assertEqual(tyto("run", *flags, "--", "-x y").stdout, tyto("run", *flags, "--prompt=-x y").stdout)
        self.check_error(tyto("run", *flags, "tell", "me"), 2,
                         "tyto run takes one prompt; put it in quotes: tyto run 'tell me'")
        self.check_error(tyto("run", *flags, "Hello", "-p", "Hello"), 2, "PROMPT and --prompt exclude each other")
        self.check_error(tyto("run", *flags, "Hello", "-f", self.model), 2, "PROMPT and --file exclude each other")
        for empty in ("", "   ", "\n"):
            self.check_error(tyto("run", *flags, empty), 2, "tyto run: the prompt is empty")

    def test_a_prompt_of_the_bos_alone(self):
        flags = ["-m", CHAT_MODEL, "-n", "8", "--temp", "0", "--ignore-eos", "--raw", "-v"]
        empty = tyto("run", *flags, "")
        self.assertEqual(empty.returncode, 0, empty.stderr)
        self.assertIn("prompt 1 token", empty.stderr)
        self.assertEqual(tyto("run", *flags, "--special", "<|begin_of_text|>").stdout, empty.stdout)
        self.check_error(tyto("run", *flags, text=""), 2, "no prompt")

    def test_a_model_without_a_chat_template(self):
        base = self.work / "base"
        shutil.copytree(CHAT_MODEL, base)
        config = json.loads((base / "tokenizer_config.json").read_text())
        del config["chat_template"]
        (base / "tokenizer_config.json").write_text(json.dumps(config))
        flags = ["-m", base, "-n", "8", "--temp", "0", "--ignore-eos"]
        told, raw = tyto("run", *flags, "Hello"), tyto("run", *flags, "--raw", "Hello")
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual(told.stdout, raw.stdout)
        self.assertEqual(told.stderr.count("has no chat template, so it gets the prompt as it is"), 1, told.stderr)
        self.assertNotIn("chat template", raw.stderr)
        self.check_error(tyto("run", *flags, "--system", "Be brief.", "Hello"), 1, "has no chat template", "--chat-template")
        self.check_error(tyto("chat", *flags, text="Hello\n"), 1, "has no chat template", "--chat-template")

    def test_a_model_that_ignores_system_messages_says_so(self):
        remark = "this model does not follow system messages"
        small = self.work / "owlet-q8_0.gguf"
        self.assertEqual(tyto("quantize", "-m", OWLET, "--type", "q8_0", "-o", small).returncode, 0)
        for model in (OWLET, small):
            flags = ["-m", model, "-n", "2", "Hello"]
            told = tyto("run", *flags, "--system", "You are a pirate.")
            self.assertEqual((told.returncode, told.stderr.count(remark)), (0, 1), told.stderr)
            self.assertNotIn(remark, told.stdout + tyto("run", *flags).stderr)
        chat = tyto("chat", "-n", "2", "--system", "Be kind.", text="/system Be terse.\nHello\n")
        self.assertEqual((chat.returncode, chat.stderr.count(remark)), (0, 1), chat.stderr)
        other = tyto("run", "-m", CHAT_MODEL, "-n", "2", "Hello", "--system", "Be kind.")
        self.assertEqual((other.returncode, "system message" in other.stderr), (0, False), other.stderr)

    def test_bytes_that_are_no_text(self):
        def piped(content, *flags):
            return subprocess.run([TYTO, "run", "-m", CHAT_MODEL, "-n", "2", *flags], input=content, capture_output=True,
                                  timeout=60).stderr.decode()
        self.assertIn("prompt: 1 byte is not UTF-8 text and was replaced\n", piped(b"caf\xe9"))
        self.assertIn("prompt: 3 bytes are not UTF-8 text and were replaced\n", piped(b"a\xff\xfe\x00b"))
        self.assertIn("prompt: 1 byte is not UTF-8 text and stays as it is\n", piped(b"caf\xe9", "--raw"))
        self.assertNotIn("UTF-8", piped("café".encode()))
        latin = self.work / "latin.txt"
        latin.write_bytes("Der Fuchs fährt über die Brücke. ".encode("latin-1") * 20)
        result = tyto("perplexity", "-m", CHAT_MODEL, "-f", latin)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("latin.txt: 60 bytes are not UTF-8 text and were replaced\n", result.stderr)

    def test_a_prompt_that_is_too_long(self):
        long = "word " * 100
        self.check_error(tyto("run", "-m", CHAT_MODEL, "-c", "32", long), 1,
                         "leave no room for an answer in a context of 32 (-c makes more room, up to ")
        self.check_error(tyto("run", "-m", CHAT_MODEL, long * 10), 1, "leave no room for an answer",
                         "(shorten it; this model has no longer context)")

    def test_prompt_through_a_pipe(self):
        flags = ["run", "-m", CHAT_MODEL, "-n", "8", "--temp", "0", "--ignore-eos"]
        told = tyto(*flags, "Hello").stdout
        self.assertGreater(len(told), 1)
        for where in ([], ["-"], ["-p", "-"]):
            for text in ("Hello", "Hello\n", "Hello\r\n"):
                self.assertEqual(tyto(*flags, *where, text=text).stdout, told, (where, text))
        raw = [*flags, "--raw"]  # as it is
        self.assertEqual(tyto(*raw, text="Hello").stdout, tyto(*raw, "Hello").stdout)
        self.assertEqual(tyto(*raw, text="Hello\n").stdout, tyto(*raw, "Hello\n").stdout)
        self.assertEqual(tyto(*flags, "Hello", text="something else").stdout, told)
        self.check_error(tyto(*flags, text=""), 2, "no prompt")
        self.check_error(tyto(*flags, text="\n"), 2, "the prompt is empty")

    def test_until_the_context_is_full(self):
        result = tyto("run", "-m", self.model, "Hello", "--raw", "-n", "-1", "-c", "40", "--ignore-eos")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("cut off: the context of 40 tokens is full (-c)", result.stderr)
        self.assertEqual(tyto("run", "-m", self.model, "Hello", "--raw", "-c", "40", "--ignore-eos").stderr.count("is full"), 1)

    def endless(self, *args):
        """A run that says more than is read: it waits, whenever that is, until its pipe is read."""
        folder = self.work / "endless"
        if not folder.exists():
            shutil.copytree(FIXTURES / "llama3" / "model", folder)
            config = json.loads((folder / "config.json").read_text())
            config["max_position_embeddings"] = 1 << 14
            (folder / "config.json").write_text(json.dumps(config))
        vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
        word = vocabulary[max((w for w in vocabulary if w.isalpha() and w.isascii()), key=len)]
        process = subprocess.Popen(
            [TYTO, "run", "-m", folder, "Hello", "-n", "-1", "--temp", "0", "--ignore-eos", "--logit-bias", f"{word}=1000",
             *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell's & has it ignored
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, SMALLEST_PIPE)
        self.addCleanup(process.kill)
        return process

    def test_an_interrupt_ends_the_answer(self):
        receipt = self.work / "interrupted.json"
        process = self.endless("--receipt", receipt)
        begin = process.stdout.read(8)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, errors)
        self.assertTrue((begin + rest).endswith(b"\n"))
        self.assertRegex(errors.decode(), r"(?m)^\d+ tokens · \d+ tok/s · cpu · stopped$")
        self.assertGreater(json.loads(receipt.read_text())["generated_tokens"], 1)
        self.assertEqual(tyto("receipt", "check", receipt).returncode, 0)

    def test_a_second_interrupt_ends_the_program(self):
        receipt = self.work / "never.json"
        process = self.endless("--receipt", receipt)
        deadline = time.monotonic() + 120
        while waiting_bytes(process.stdout) < SMALLEST_PIPE - 64 or not stands_in_write(process.pid):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        while has_pending_signal(process.pid):  # one that comes again before it was delivered is lost
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertFalse(receipt.exists())

    def test_the_hint_verifies_this_very_combination(self):
        model = self.work / "it's mine.gguf"
        shutil.copy(self.model, model)
        state = {"XDG_STATE_HOME": str(self.work / "hint")}
        for flags in (["--isa", "generic", "--kv-type", "q8_0", "-c", "96"],
                      ["--device", "vnpu", "--fusion", "token", "--prompt-rows", "64", "-c", "128"]):
            command = ["run", "-m", model, "Hello", "--raw", "-n", "2", "-v", *flags]
            first = tyto(*command, environment=state)
            self.assertEqual(first.returncode, 0, first.stderr)
            self.assertNotIn("unless --fusion token", first.stderr if "token" in flags else "")
            hint = re.search(r"never verified: tyto (.*)", first.stderr)
            self.assertIsNotNone(hint, first.stderr)
            verified = tyto(*shlex.split(hint[1]), environment=state)
            self.assertEqual(verified.returncode, 0, hint[0] + verified.stderr)
            again = tyto(*command, environment=state)
            self.assertNotIn("never verified", again.stderr)

    def test_require_fails_closed(self):
        self.check_error(self.run_model("--raw", "--require", "npu"), 3,
                         "--require npu: this run would use cpu; add --device npu")
        self.check_error(self.run_model("--raw", "--require", "abacus"), 2, "--require abacus: no such device",
                         "devices in this build: ")
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
            result = tyto("run", *flags, "--fusion", fusion, "-v")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("modelled", result.stderr)
            self.assertIn("on the host by design: embedding, ", result.stderr)
            self.assertNotIn("tok/s", result.stderr)
            texts.add(result.stdout)
        self.assertEqual(texts, {tyto("run", *flags[:-2]).stdout})
        self.check_error(tyto("run", *flags, "--require", "vnpu"), 3, "virtual")

    def test_seed_is_shown_and_repeats_the_text(self):
        flags = ["run", "-m", self.model, "-p", "x", "-n", "12", "--temp", "1", "--ignore-eos", "--raw", "-v"]
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
        self.check_error(tyto("eval", "-m", model, "--ids", "1", "--special", "--logits", out), 2, "--special")
        self.check_error(tyto("profile", "-m", model, "--sweep", "4", "--special"), 2, "--special")

    def test_bad_input(self):
        self.check_error(self.run_model(prompt=""), 2, "empty")
        self.check_error(self.run_model("-c", "16", "--raw", prompt="word " * 100), 1, "context of 16")
        self.check_error(tyto("run", "-m", self.work / "absent.gguf", "-p", "x"), 1, "absent.gguf")
        self.check_error(tyto("run", "-m", "some-org/some-model", "-p", "x"), 1, "tyto pull some-org/some-model")
        self.check_error(self.run_model("--chat-template", "no-such-template"), 2, "chatml")
        self.check_error(self.run_model("--logit-bias", "99999999999999=100"), 2, "ID=VALUE")

    def test_the_judgements_of_owlet_are_those_of_its_card(self):
        rows = [json.loads(line) for line in (OWLET / "prompts.jsonl").read_text().splitlines()]
        self.assertEqual(len({row["prompt"] for row in rows}), 100)
        for row in rows:
            self.assertEqual(list(row), ["prompt", "kind", "answer", "judgement", "why"])
            self.assertTrue(row["why"], row["prompt"])
        table = subprocess.run([OWLET / "judge.py", "--table"], capture_output=True, text=True, timeout=60, check=True).stdout
        self.assertIn(table, (OWLET / "README.md").read_text())
        named = next(row for row in rows if row["prompt"] == "What is your name?")  # far from a tie
        self.assertEqual(tyto("run", "-m", OWLET, "--temp", "0", "-n", "60", "-p", named["prompt"]).stdout, named["answer"] + "\n")


if __name__ == "__main__":
    main()
