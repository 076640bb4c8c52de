#!/usr/bin/env python3
"""--prompt-cache of run and chat."""
import json
import os
import subprocess

from harness import TYTO, CliTest, main, tyto

STORY = ("A fox finds a lamp in the snow and carries it home to her den, where three cubs are waiting. " * 8).strip()


class PromptCache(CliTest):
    def setUp(self):
        self.cache = self.work / f"{self.id().split('.')[-1]}.cache"
        self.receipt = self.work / "receipt.json"

    def ask(self, *args, prompt=STORY, model=None, code=0):
        """The text, how many tokens of the prompt were not run, and what was said beside it."""
        result = tyto("run", "-m", model or self.model, "-p", prompt, "-n", "8", "--temp", "0", "--ignore-eos", "--raw", "-v", "--receipt", self.receipt, *args)
        self.assertEqual(result.returncode, code, result.stderr)
        receipt = json.loads(self.receipt.read_text())
        self.prompt_tokens = receipt["prompt_tokens"] + receipt["cached_tokens"]
        return result.stdout, receipt["cached_tokens"], result.stderr

    def test_a_second_start_runs_only_what_is_new(self):
        text, _, _ = self.ask()
        longer, _, _ = self.ask(prompt=STORY + " And then")
        flags = ("--prompt-cache", self.cache)
        self.assertEqual(self.ask(*flags)[:2], (text, 0))
        self.assertEqual(os.stat(self.cache).st_mode & 0o777, 0o600)
        written = self.cache.read_bytes()
        self.assertGreater(self.prompt_tokens, 256)
        again, cached, said = self.ask(*flags)
        known = self.prompt_tokens
        self.assertEqual((again, cached), (text, known - 1))
        self.assertRegex(said, f"prompt cache .*: {self.prompt_tokens} tokens, read in")
        self.assertIn(f"prompt {known} tokens ({cached} from the cache)", said)
        # What holds the prompt already stays as it is, also for a shorter one.
        self.assertEqual(self.ask(*flags, prompt=STORY[:len(STORY) // 2])[1], self.prompt_tokens - 1)
        self.assertEqual(self.cache.read_bytes(), written)
        text, cached, said = self.ask(*flags, prompt=STORY + " And then")
        self.assertEqual(text, longer)
        self.assertGreaterEqual(cached, known)
        self.assertRegex(said, f"{self.prompt_tokens} tokens written")
        self.assertEqual([file.name for file in self.work.glob(self.cache.name + "*")], [self.cache.name])

    def test_it_works_for_q8_0_caches_and_on_the_virtual_npu(self):
        kinds = [["--kv-type", "q8_0"], ["--device", "vnpu", "--prompt-rows", "64"],
                 ["--device", "vnpu", "--prompt-rows", "64", "--fusion", "token"]]
        for number, kind in enumerate(kinds):
            flags = (*kind, "--prompt-cache", f"{self.cache}{number}")
            prompt = STORY[:150]
            text, _, _ = self.ask(*kind, prompt=prompt)
            self.assertEqual(self.ask(*flags, prompt=prompt)[:2], (text, 0))
            again, cached, _ = self.ask(*flags, prompt=prompt)
            self.assertEqual(again, text, kind)
            self.assertEqual(cached, self.prompt_tokens - 1)

    def test_what_does_not_fit_is_said_and_run_anew(self):
        other = self.work / "other.gguf"
        self.assertEqual(tyto("synth", "--shape", "tiny", "--seed", "5", "-o", other).returncode, 0)
        flags = ("--prompt-cache", self.cache)
        self.ask(*flags)
        text, _, _ = self.ask(model=other)
        for change, why in ((lambda: None, "another model"), (lambda: self.cache.write_bytes(self.cache.read_bytes()[:-40]), "cut short"),
                            (lambda: self.cache.write_bytes(self.cache.read_bytes()[:-1] + b"!"), "hash is wrong")):
            change()
            again, cached, said = self.ask(*flags, model=other)
            self.assertEqual((again, cached), (text, 0))
            self.assertIn("not used, it", said)
            self.assertIn(why, said)
            self.assertIn("tokens written", said)
        self.assertGreater(self.ask(*flags, model=other)[1], 0)
        self.assertIn("another --kv-type", self.ask(*flags, "--kv-type", "q8_0", model=other)[2])

    def test_another_instruction_set_is_another_origin(self):
        flags = ("--prompt-cache", self.cache)
        self.ask(*flags, "--isa", "generic")
        text, _, _ = self.ask()
        again, cached, said = self.ask(*flags)
        self.assertEqual(again, text)
        if cached == 0:
            self.assertIn("another build, device or setting", said)

    def test_threads_fusion_and_context_make_no_difference(self):
        text, _, _ = self.ask("--prompt-cache", self.cache, "-t", "1", "-c", "505")
        again, cached, _ = self.ask("--prompt-cache", self.cache, "-t", "2", "--fusion", "op")
        self.assertEqual((again, cached), (text, self.prompt_tokens - 1))

    def test_no_file_of_another_kind_is_lost(self):
        notes = self.work / "notes.txt"
        for content in ("my notes", "tyto-prompt"):
            notes.write_text(content)
            for more in ([], ["--prompt-cache-read-only"]):
                self.check_error(tyto("run", "-m", self.model, "-p", "x", "--raw", "--prompt-cache", notes, *more), 2, "not a prompt cache")
            self.assertEqual(notes.read_text(), content)
        model = self.model.read_bytes()
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--raw", "--prompt-cache", self.model), 2, "not a prompt cache")
        self.assertEqual(self.model.read_bytes(), model)
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--raw", "--prompt-cache", self.work), 1, "not a regular file")
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--raw", "--prompt-cache", self.cache, "--receipt", self.cache), 2, "being written")
        self.ask("--prompt-cache", self.cache)
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--raw", "--prompt-cache", self.cache, "--receipt", self.cache, "--force"), 2, "in use")
        out = self.work / "out.txt"
        with open(out, "w") as stdout:
            result = subprocess.run([TYTO, "run", "-m", self.model, "-p", "x", "--raw", "--prompt-cache", out], stdout=stdout,
                                    stderr=subprocess.PIPE, timeout=60)
        self.assertEqual((result.returncode, out.read_text()), (2, ""), result.stderr)

    def test_read_only_writes_nothing(self):
        flags = ("--prompt-cache", self.cache, "--prompt-cache-read-only")
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--raw", *flags), 1, "No such file")
        self.ask("--prompt-cache", self.cache)
        written = self.cache.read_bytes()
        self.assertGreater(self.ask(*flags, prompt=STORY + " And")[1], 0)
        self.assertEqual(self.cache.read_bytes(), written)
        self.check_error(tyto("run", "-m", self.model, "-p", "x", "--prompt-cache-read-only"), 2, "--prompt-cache")

    def test_chat_keeps_the_conversation(self):
        def chat(*lines):
            result = tyto("chat", "-m", self.model, "--chat-template", "chatml", "-n", "4", "--temp", "0", "--ignore-eos", "--verbose",
                          "--prompt-cache", self.cache,
                          text="".join(line + "\n" for line in lines))
            self.assertEqual(result.returncode, 0, result.stderr)
            return result
        first = chat("Hello", "Again")
        self.assertIn("tokens written", first.stderr)
        second = chat("Hello", "Again")
        self.assertEqual(second.stdout, first.stdout)
        self.assertEqual(second.stderr.count(" from the cache)"), 2)
        self.assertNotIn("tokens written", second.stderr)


if __name__ == "__main__":
    main()
