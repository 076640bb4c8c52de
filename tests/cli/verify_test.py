#!/usr/bin/env python3
"""tyto verify and diagnose."""
import ast
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import FIXTURES, OWLET, ROOT, TYTO, CliTest, main, tyto


class Verify(CliTest):
    """The gate and the diagnosis, as a user runs them."""
    VNPU = ["--device", "vnpu", "--prompt-rows", "64"]

    def setUp(self):
        self.state = Path(tempfile.mkdtemp(dir=self.work))
        self.remembered = self.state / "tyto" / "verified.jsonl"

    def tyto(self, *args):
        return tyto(*args, environment={"XDG_STATE_HOME": str(self.state)})

    def run_owlet(self, *flags):
        result = self.tyto("run", "-m", OWLET, "-p", "Hi", "-n", "3", "--temp", "0", "-v", *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def test_the_cpu_passes_and_the_machine_remembers(self):
        receipt = self.work / "verified.json"
        self.assertIn(f"never verified: tyto verify -m {OWLET} --device cpu", self.run_owlet("--receipt", receipt))
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
        self.assertNotIn("never verified", self.run_owlet("--receipt", receipt))
        record = json.loads(self.remembered.read_text())
        self.assertEqual(json.loads(receipt.read_text())["verified"], {"state": "yes", "time": record["time"]})
        # Another combination is another matter.
        self.assertIn("never verified", self.run_owlet("--fusion", "op"))
        self.assertIn("never verified", self.run_owlet("--kv-type", "f32"))
        self.assertIn(f"never verified: tyto verify -m {OWLET} --device cpu --isa generic", self.run_owlet("--isa", "generic"))
        # A later failure counts, and damaged lines do not.
        failed = {**record, "verdict": "fail", "time": "2030-01-01T00:00:00Z"}
        with self.remembered.open("a") as file:
            file.write(json.dumps(failed) + "\n" + json.dumps(record)[:50])
        stderr = self.run_owlet("--receipt", receipt)
        self.assertIn("FAILED its verification of 2030-01-01T00:00:00Z: tyto diagnose", stderr)
        self.assertIn("1 damaged line was passed over", stderr)
        short = self.tyto("run", "-m", OWLET, "-p", "Hi", "-n", "3").stderr
        self.assertIn("This device FAILED its check against the reference of 2030-01-01T00:00:00Z: tyto diagnose", short)
        self.assertEqual(json.loads(receipt.read_text())["verified"]["state"], "failed")
        # What comes behind half a line is whole.
        self.assertEqual(self.tyto("verify", "-m", OWLET).returncode, 0)
        self.assertNotIn("FAILED", self.run_owlet())
        chat = tyto("chat", "-m", OWLET, "-n", "2", "--fusion", "op", "-v", text="Hi\nHo\n",
                    environment={"XDG_STATE_HOME": str(self.state)})
        self.assertEqual(chat.stderr.count("never verified"), 1, chat.stderr)

    def test_a_prompt_of_ones_own(self):
        result = self.tyto("verify", "-m", OWLET, "-p", "Who are you?", "-n", "4")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        for text in ("Tell me a story", "What is 3 plus 4?", "Who are you?"):
            self.assertIn(text, result.stdout)
        path, _ = self.transcript()
        self.check_error(self.tyto("verify", "-m", OWLET, "--against", path, "-p", "Hi"), 2, "--prompt: has no effect")

    def test_the_virtual_npu_passes(self):
        result = self.tyto("verify", "-m", OWLET, *self.VNPU)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("executed on", result.stderr)
        self.assertIn("modelled", result.stderr)
        self.assertNotIn("verified", self.run_owlet(*self.VNPU))
        self.assertIn(f"never verified: tyto verify -m {OWLET} --device vnpu --fusion token",
                      self.run_owlet(*self.VNPU, "--fusion", "token"))

    def test_a_device_that_did_not_execute_fails(self):
        result = self.tyto("verify", "-m", OWLET, *self.VNPU, "--vnpu-fault", "error@9", "--on-device-error", "cpu")
        self.assertEqual(result.returncode, 1)
        self.assertIn("FAIL: vnpu completed", result.stdout)
        result = self.tyto("verify", "-m", OWLET, *self.VNPU, "--vnpu-fault", "error@9", "--on-device-error", "fail")
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

    def test_another_model_is_not_the_verified_one(self):
        model = Path(tempfile.mkdtemp(dir=self.work)) / "owlet"
        shutil.copytree(OWLET, model)
        self.assertEqual(self.tyto("verify", "-m", model).returncode, 0)
        run = ["run", "-m", model, "-p", "Hi", "-n", "1", "--temp", "0", "-v"]
        self.assertNotIn("verified", self.tyto(*run).stderr)

        def changed(name, change):
            path = model / name
            before = path.read_bytes()
            path.write_bytes(change(before))
            result = self.tyto(*run)
            path.write_bytes(before)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("never verified", result.stderr, name)

        def flip_signs(content):  # signs of some weights far from both ends
            content = bytearray(content)
            for at in range(10_000_001, 10_000_201, 2):
                content[at] ^= 0x80
            return bytes(content)
        changed("model.safetensors", flip_signs)
        changed("config.json", lambda text: json.dumps({**json.loads(text), "rope_theta": 50 * json.loads(text).get(
            "rope_theta", 10000.0)}).encode())
        config = json.loads((model / "tokenizer_config.json").read_text())
        self.assertIn("chat_template", config)
        changed("tokenizer_config.json", lambda _: json.dumps(
            {**config, "chat_template": config["chat_template"] + " "}).encode())
        self.assertNotIn("verified", self.tyto(*run).stderr)

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
        source = (ROOT / "tools" / "hf_reference.py").read_text()
        prompts = next(ast.literal_eval(node.value) for node in ast.parse(source).body
                       if isinstance(node, ast.Assign) and node.targets[0].id == "PROMPTS")
        data = self.transcript("--full", "-n", "1")[1]
        self.assertEqual([prompt["text"] for prompt in data["prompts"]], prompts)

    def test_the_script_for_the_other_engine(self):
        """The script itself, on a stand-in for torch whose forward pass is the reference."""
        ours = self.transcript("-n", "3")[0]
        theirs = self.work / "hf.json"
        made = subprocess.run([sys.executable, ROOT / "tools" / "hf_reference.py", OWLET, theirs, "--like", ours, "-n", "3"],
                              capture_output=True, timeout=120,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "support" / "fake_hf"),
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
        self.check_error(self.tyto("diagnose", "-m", OWLET, "-p", "word " * 20000), 1, "leave no room")

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


if __name__ == "__main__":
    main()
