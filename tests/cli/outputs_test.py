#!/usr/bin/env python3
"""Files that commands write: nothing is lost, whatever was named and whenever it ends."""
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from harness import OWLET, TYTO, CliTest, main, tyto

RUN = ["run", "--raw", "-p", "x", "-n", "2", "--temp", "0"]
# Every flag that names a file to write, with the rest of its command.
REPORTS = [
    (RUN, "--receipt"),
    (["verify", "-n", "2"], "--json"),
    (["verify", "-n", "2"], "--write"),
    (["diagnose", "-p", "x", "-n", "1"], "--json"),
    (["diagnose", "-p", "x", "-n", "1"], "--html"),
    (["profile", *RUN[1:]], "--json"),
    (["profile", *RUN[1:]], "--html"),
    (["profile", *RUN[1:]], "--perfetto"),
    (["profile", *RUN[1:]], "--receipt"),
]
MODELS = [
    (["eval", "--ids", "1,2"], "--logits"),
    (["quantize", "--type", "q8_0"], "-o"),
]


class Outputs(CliTest):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp(dir=self.work))
        self.gguf = self.root / "model.gguf"
        shutil.copy(self.model, self.gguf)

    def make_checkpoint(self):
        folder = self.root / "checkpoint"
        self.assertEqual(tyto("synth", "--shape", "tiny", "-o", folder).returncode, 0)
        return folder

    def left(self):
        return sorted(path.name for path in self.root.iterdir())

    def test_what_is_read_is_never_replaced(self):
        checkpoint = self.make_checkpoint()
        (self.root / "soft.gguf").symlink_to("model.gguf")
        os.link(self.gguf, self.root / "hard.gguf")
        before = {path: path.read_bytes() for path in [self.gguf, *checkpoint.iterdir()]}
        for command, flag in REPORTS + MODELS:
            for target in ("model.gguf", "soft.gguf", "hard.gguf"):
                self.check_error(tyto(*command, "-m", self.gguf, flag, self.root / target, "--force"), 2, target[-5:],
                                 "is in use")
            for target in ("model.safetensors", "generation_config.json"):
                self.check_error(tyto(*command, "-m", checkpoint, flag, checkpoint / target, "--force"), 2, target,
                                 "is in use")
        for path, content in before.items():
            self.assertEqual(path.read_bytes(), content, path)
        self.assertTrue((self.root / "soft.gguf").is_symlink())
        self.assertEqual(self.left(), ["checkpoint", "hard.gguf", "model.gguf", "soft.gguf"])

    def test_a_prompt_is_an_input_and_stdout_is_in_use(self):
        prompt = self.root / "prompt.txt"
        prompt.write_text("once upon a time")
        flags = ["run", "-m", self.gguf, "--raw", "-n", "1", "--receipt", prompt, "--force"]
        self.check_error(tyto(*flags, "-f", prompt), 2, "prompt.txt", "is in use")
        with prompt.open() as stdin:
            result = subprocess.run([TYTO, *map(str, flags), "-p", "-"], stdin=stdin, capture_output=True, timeout=60)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(prompt.read_text(), "once upon a time")
        out = self.root / "out.txt"
        with out.open("w") as stdout:
            result = subprocess.run([TYTO, *map(str, flags[:-2]), out, "--force", "-p", "x"], stdout=stdout,
                                    stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(result.returncode, 2, result.stderr)

    def test_a_report_replaces_its_own_kind_alone(self):
        saved = self.work / "saved-profile.json"  # a profile measures the machine first, so it is made once
        self.assertEqual(tyto("profile", *RUN[1:], "-m", self.gguf, "--json", saved).returncode, 0)
        for command, flag in REPORTS:
            with self.subTest(command=command[0], flag=flag):
                out = self.root / "report"
                out.unlink(missing_ok=True)
                write = [*command, "-m", self.gguf, flag, out]
                if command[0] == "profile":
                    write = ["profile", "--from", saved, flag, out]
                self.assertEqual(tyto(*write).returncode, 0)
                first = out.read_bytes()
                self.assertEqual(tyto(*write).returncode, 0)
                out.write_text("a page of a thesis")
                self.check_error(tyto(*write), 2, "is there already, and is not", "--force")
                self.assertEqual(out.read_text(), "a page of a thesis")
                self.assertEqual(tyto(*write, "--force").returncode, 0)
                self.assertEqual(out.read_bytes()[:30], first[:30])
        self.assertEqual(self.left(), ["model.gguf", "report"])

    def test_models_and_logits_are_replaced_only_by_force(self):
        for command, flag in MODELS:
            out = self.root / "out"
            out.unlink(missing_ok=True)
            write = [*command, "-m", self.gguf, flag, out]
            self.assertEqual(tyto(*write).returncode, 0)
            first = out.read_bytes()
            self.check_error(tyto(*write), 2, "is there already", "--force")
            out.write_text("x")
            self.assertEqual(tyto(*write, "--force").returncode, 0)
            self.assertEqual(out.read_bytes(), first)
        self.check_error(tyto("synth", "--shape", "tiny", "-o", self.gguf), 2, "is there already")
        self.assertEqual(tyto("synth", "--shape", "tiny", "-o", self.gguf, "--force").returncode, 0)

    def test_a_checkpoint_folder_is_replaced_only_by_force_and_whole(self):
        folder = self.make_checkpoint()
        synth = ["synth", "--shape", "tiny", "--seed", "2", "-o", folder]
        before = (folder / "model.safetensors").read_bytes()
        self.check_error(tyto(*synth), 2, "is there already", "--force")
        (folder / "thesis.tex").write_text("years of work")
        self.check_error(tyto(*synth, "--force"), 2, "thesis.tex", "would be lost")
        self.assertEqual((folder / "model.safetensors").read_bytes(), before)
        (folder / "thesis.tex").unlink()
        self.assertEqual(tyto(*synth, "--force").returncode, 0)
        self.assertNotEqual((folder / "model.safetensors").read_bytes(), before)
        self.assertEqual(self.left(), ["checkpoint", "model.gguf"])

    def test_compiled_images(self):
        folder = self.root / "images"
        compile = ["compile", "-m", OWLET, "--prompt-rows", "64"]
        for _ in range(2):  # the folder in the cache is Tyto's own
            self.assertEqual(tyto(*compile).returncode, 0)
        self.assertEqual(tyto(*compile, "-o", folder).returncode, 0)
        self.check_error(tyto(*compile, "-o", folder), 2, "is there already", "--force")
        self.assertEqual(tyto(*compile, "-o", folder, "--force").returncode, 0)
        (folder / "notes").write_text("mine")
        self.check_error(tyto(*compile, "-o", folder, "--force"), 2, "notes", "would be lost")
        self.check_error(tyto(*compile, "--force"), 2, "--force", "--output")

    def test_one_file_is_not_two_outputs(self):
        out = self.root / "x"
        self.check_error(tyto("profile", *RUN[1:], "-m", self.gguf, "--json", out, "--html", out), 2,
                         "is being written already")
        self.assertEqual(self.left(), ["model.gguf"])

    def test_force_without_an_output_is_an_error(self):
        self.check_error(tyto(*RUN, "-m", self.gguf, "--force"), 2, "--force", "no effect without --receipt")
        self.check_error(tyto("verify", "-m", self.gguf, "--force"), 2, "--json or --write")

    def start(self, *args):
        return subprocess.Popen([TYTO, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def test_a_signal_leaves_nothing_half_written(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # It waits for its prompt, and by then the receipt's file is open.
            process = self.start(*RUN[:2], "-m", self.gguf, "-p", "-", "--receipt", self.root / "receipt")
            try:
                while not list(self.root.glob("receipt.partial-*")):
                    self.assertIsNone(process.poll())
                    time.sleep(0.01)
                process.send_signal(number)
                _, err = process.communicate(timeout=60)
            finally:
                process.kill()
            self.assertEqual(process.returncode, -number, err)
            self.assertEqual(self.left(), ["model.gguf"])

    def test_a_killed_run_is_cleaned_up_by_the_next(self):
        receipt = self.root / "receipt"
        process = self.start(*RUN[:2], "-m", self.gguf, "-p", "-", "--receipt", receipt)
        try:
            while not list(self.root.glob("receipt.partial-*")):
                self.assertIsNone(process.poll())
                time.sleep(0.01)
        finally:
            process.kill()
            process.communicate()
        self.assertEqual(len(self.left()), 2)
        self.assertEqual(tyto(*RUN, "-m", self.gguf, "--receipt", receipt).returncode, 0)
        self.assertEqual(self.left(), ["model.gguf", "receipt"])

    def test_a_model_that_becomes_shorter_is_one_line(self):
        folder = self.root / "owlet"
        shutil.copytree(OWLET, folder)
        process = self.start("chat", "-m", folder, "-n", "2")
        try:
            process.stdin.write(b"Hello\n")
            process.stdin.flush()
            while b" cpu\n" not in process.stderr.readline():
                self.assertIsNone(process.poll())
            os.truncate(folder / "model.safetensors", 4096)
            out, err = process.communicate(b"A fox and a lamp\n", timeout=60)
        finally:
            process.kill()
        last = err.decode().strip().splitlines()[-1]
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("model.safetensors: became shorter", last)


if __name__ == "__main__":
    main()
