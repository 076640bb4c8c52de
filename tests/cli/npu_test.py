#!/usr/bin/env python3
"""tyto run and compile on the virtual NPU."""
import json
import subprocess

from harness import FIXTURES, OWLET, TYTO, CliTest, main, on_hostile_npu, tyto


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

    def test_images_of_any_form_give_the_cpus_text(self):
        want = tyto("run", *self.PROMPT).stdout
        for like in ("llama-3.2-3b", "smollm2-1.7b", "qwen3-4b", "qwen2.5-0.5b", "qwen2.5-1.5b"):
            result = self.run_vnpu("--images-like", like)
            self.assertEqual((result.returncode, result.stdout), (0, want), (like, result.stderr))
        self.check_error(self.run_vnpu("--images-like", "tinyllama-1.1b"), 2, "tinyllama-1.1b", "qwen3-4b")
        self.check_error(self.run_vnpu("--images-like", "qwen3-4b", "--weights", "int8", "--fusion", "op"), 2, "--images-like")

    def test_faults_are_recovered_from_or_reported(self):
        want = self.run_vnpu().stdout
        for fault in ("timeout@3", "error@9", "context-lost@5", "corrupt@20", "hang"):
            result = self.run_vnpu("--vnpu-fault", fault)
            self.assertEqual((result.returncode, result.stdout), (0, want), result.stderr)
            self.assertIn("retried on new contexts", result.stderr)
        result = self.run_vnpu("--vnpu-fault", "error@9", "--on-device-error", "cpu")
        self.assertEqual(result.stdout, tyto("run", *self.PROMPT).stdout)
        self.assertIn("finished on the cpu", result.stderr)
        for flag in ("--on-device-error", "--on-npu-error"):  # the older name is still taken
            self.check_error(self.run_vnpu("--vnpu-fault", "error@3", flag, "fail"), 1, "vnpu: L00.", "failed")
        self.check_error(self.run_vnpu("--vnpu-fault", "oom"), 1, "vnpu")
        self.check_error(self.run_vnpu("--vnpu-fault", "slowx1e9"), 1, "timed out")
        self.check_error(self.run_vnpu("--vnpu-fault", "melt"), 2, "melt")

    def test_controls_without_effect_are_refused(self):
        for flags in (["--weights", "q4nx"], ["--on-device-error", "fail"], ["--prompt-rows", "64"],
                      ["--vnpu-fault", "hang"], ["--vnpu-machine", "strix"], ["--vnpu-numerics", "bf16"],
                      ["--images-like", "qwen3-4b"]):
            self.check_error(tyto("run", *self.PROMPT, *flags), 2, flags[0], "no effect")
        self.check_error(self.run_vnpu("--weights", "q4nx"), 2, "--fusion token")
        self.check_error(self.run_vnpu("--weights", "int8"), 2, "--fusion op")
        self.check_error(self.run_vnpu("--require", "npu", "--on-device-error", "cpu"), 2, "--on-device-error cpu")
        self.check_error(self.run_vnpu("--weights", "q4nx", "--fusion", "token", "--kv-type", "f16"), 2, "--kv-type")

    def test_prompts_take_the_smallest_kernels_that_hold_them(self):
        receipt = self.work / "receipt.json"
        want = tyto("run", *self.PROMPT).stdout
        for rows, loaded in (("64", {"64"}), ("256,64", {"64", "256"})):
            flags = ["--device", "vnpu", "--prompt-rows", rows, "--receipt", str(receipt), "--force"]
            result = tyto("run", *self.PROMPT, *flags)
            self.assertEqual((result.returncode, result.stdout), (0, want), result.stderr)
            programs = [code["program"] for code in json.loads(receipt.read_text())["hashes"]["images"]]
            self.assertEqual({name.split("@")[1] for name in programs if name.startswith("flash_attn")}, loaded)
        for rows in ("64,", ",64", "64,x", "7", "100", ""):
            self.check_error(tyto("run", *self.PROMPT, "--device", "vnpu", "--prompt-rows", rows), 2, "--prompt-rows")
        self.check_error(tyto("run", *self.PROMPT, "--device", "vnpu", "--fusion", "token", "--weights", "q4nx",
                              "--prompt-rows", "64,128,256"), 2, "contexts", "at most 2")

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

    def test_images_of_models_with_biases_and_norms_are_compiled_too(self):
        environment = {"XDG_CACHE_HOME": str(self.work / "cache")}
        for fixture, names in (("qwen2", ("rms_qkv_bias_rope", "rms_qkv_bias_rope_gemv", "o_ffn", "o_gemv_ffn")),
                               ("qwen3-wide", ("rms_qkv_qknorm_rope", "rms_qkv_qknorm_rope_gemv", "flash_attn"))):
            model = FIXTURES / fixture / "model"
            made = tyto("compile", "-m", model, "--prompt-rows", "64", environment=environment)
            self.assertEqual(made.returncode, 0, made.stderr)
            for name in names:
                self.assertIn(f"model@vnpu@64/{name} ", made.stdout)
            run = ["run", "-m", model, "-p", "one two", "--temp", "0", "-n", "4"]
            stored = tyto(*run, *self.VNPU, environment=environment)
            self.assertEqual((stored.returncode, stored.stdout), (0, tyto(*run, *self.VNPU).stdout), stored.stderr)

    def test_every_process_has_a_virtual_npu_of_its_own(self):
        first = subprocess.Popen([TYTO, "chat", "-m", OWLET, *on_hostile_npu(self.VNPU), "-n", "4", "--temp", "0"], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            first.stdin.write(b"Hello\n")
            first.stdin.flush()
            self.assertTrue(first.stdout.read(1))  # it has the device, and keeps it until /exit
            second = self.run_vnpu()
            self.assertEqual(second.returncode, 0, second.stderr)
            _, notes = first.communicate(b"Hello\n/exit\n", timeout=120)
        finally:
            first.kill()
        self.assertEqual(first.returncode, 0, notes)
        self.assertEqual(second.stdout, tyto("run", *self.PROMPT).stdout)

    def test_compile_for_the_real_npu_says_how(self):
        self.check_error(tyto("compile", "-m", OWLET, "--device", "npu"), 1, "llama-3.2-1b", "--weights int8")
        self.check_error(tyto("compile", "-m", OWLET, "--weights", "int8"), 2, "--device npu")
        text = tyto("compile", "-m", OWLET, "--device", "npu", "--weights", "int8").stdout
        for part in ("whole_array", "dtype_in=i8 dtype_out=i32 b_col_maj=1", "tyto kernels import build"):
            self.assertIn(part, text)


if __name__ == "__main__":
    main()
