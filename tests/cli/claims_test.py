#!/usr/bin/env python3
"""Nothing is claimed that did not happen: who executed, what was required, what failed on the way."""
import json

from harness import OWLET, CliTest, main, tyto


class Claims(CliTest):
    VNPU = ["-m", OWLET, "--device", "vnpu", "--prompt-rows", "64"]
    TO_CPU = ["--vnpu-fault", "error@1", "--on-device-error", "cpu"]

    def eval(self, *flags):
        out = self.work / "logits.f32"
        out.unlink(missing_ok=True)
        result = tyto("eval", "--ids", "1,2,3,4", "--logits", out, *flags)
        return result, out.read_bytes() if out.exists() else b""

    def bench(self, *flags):
        result = tyto("bench", "-p", "8", "-n", "4", "-r", "1", "--no-warmup", "--no-ledger", *flags)
        self.assertIn(result.returncode, (0, 1), result.stderr)
        return result

    def test_a_device_that_completed_nothing_did_not_execute(self):
        on_cpu, cpu_logits = self.eval("-m", OWLET)
        result, logits = self.eval(*self.VNPU, *self.TO_CPU)
        self.assertEqual(logits, cpu_logits)
        self.assertIn("executed on cpu; 1 dispatch failed; run again once;", result.stdout)
        self.assertNotIn("vnpu", result.stdout)
        row = json.loads(self.bench(*self.VNPU, *self.TO_CPU, "-n", "0", "-o", "json").stdout)[0]
        self.assertEqual((row["executed_on"], row["backends"], row["modelled"]), ("cpu", "CPU", False))
        self.assertEqual((row["failed_dispatches"], row["recoveries"]), (1, 1))
        receipt = self.work / "receipt.json"
        flags = ["run", "-p", "Hi", "-n", "3", *self.VNPU, *self.TO_CPU]
        self.assertRegex(tyto(*flags).stderr, r"^3 tokens · [0-9.]+ tok/s · cpu\nvnpu: 1 of 1 dispatch failed\nfallback: ")
        result = tyto(*flags, "-v", "--receipt", receipt)
        self.assertIn("executed on cpu", result.stderr)
        self.assertIn("not on vnpu: it completed none of 1 submission", result.stderr)
        data = json.loads(receipt.read_text())
        self.assertEqual((data["virtual"], data["recoveries"]), (False, 1))

    def test_failures_and_recoveries_are_in_the_table(self):
        for fault in ("error@30", "corrupt@30"):
            table = self.bench(*self.VNPU, "--vnpu-fault", fault).stdout
            self.assertIn("run again once", table, fault)
        self.assertIn("1 dispatch failed", self.bench(*self.VNPU, "--vnpu-fault", "error@30").stdout)

    def test_what_two_devices_did_in_turn_is_no_row(self):
        result = tyto("bench", "-p", "8", "-n", "0", "-r", "2", "--no-warmup", "--no-ledger", *self.VNPU,
                      "--vnpu-fault", "error@20", "--on-device-error", "cpu", "-o", "json")
        self.assertEqual(result.returncode, 1)
        row = json.loads(result.stdout)[0]
        self.assertIn("the cpu took over", row["refused"])
        self.assertIsNone(row["avg_ts"])
        self.assertIsNone(row["modelled_avg_ts"])

    def test_a_sweep_shows_no_speed_of_two_devices(self):
        result = tyto("profile", "--sweep", "8,8", "-n", "3", *self.VNPU, "--vnpu-fault", "error@20",
                      "--on-device-error", "cpu")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("the cpu took over", result.stdout)
        self.assertIn("refused", result.stdout)

    def test_a_dispatch_that_is_retried_anywhere_ends_no_benchmark(self):
        for at in (1, 17, 25, 40, 55):
            result = self.bench(*self.VNPU, "--vnpu-fault", f"error@{at}")
            self.assertEqual(result.returncode, 0, f"error@{at}: {result.stderr}")

    def test_verify_fails_after_a_retry(self):
        for fault in ("error@5", "corrupt@5"):
            result = tyto("verify", *self.VNPU, "--vnpu-fault", fault, "-n", "2")
            self.assertEqual(result.returncode, 1, fault)
            self.assertIn("run again after 1 failure", result.stdout)

    def test_requirements_fail_closed(self):
        self.check_error(tyto("bench", "-m", OWLET, "-p", "8", "-n", "0", "--require", "cpu:decode"), 3, "decode")
        self.check_error(tyto("bench", "-m", OWLET, "-p", "0", "-n", "4", "--require", "cpu:prefill"), 3, "prefill")
        result, logits = self.eval("-m", OWLET, "--reference", "--require", "cpu")
        self.check_error(result, 3, "not a device")
        self.assertEqual(logits, b"")
        if "no XRT" in tyto("devices").stdout:
            self.check_error(tyto("run", "-m", OWLET, "-p", "Hi", "--device", "npu", "--require", "npu"), 3, "no XRT")
        self.check_error(tyto("run", "-p", "Hi", *self.VNPU, "--require", "vnpu"), 3, "virtual")

    def test_chat_goes_on_after_a_failed_turn_and_says_so_in_the_end(self):
        flags = ["chat", *self.VNPU, "--temp", "0", "-n", "4"]
        turns = "Hello there.\nHello there.\n"
        want = tyto(*flags, text=turns).stdout.splitlines()
        result = tyto(*flags, "--vnpu-fault", "error@3", "--on-device-error", "fail", text=turns)
        self.assertEqual(result.returncode, 1)
        self.assertIn("tyto: chat: 1 of 2 turns failed", result.stderr)
        self.assertEqual(result.stdout.strip(), want[0])

    def test_recovered_text_is_the_text_without_the_fault(self):
        turns = "Tell me a story.\nAnd then?\n"
        for form in (["--fusion", "block"], ["--fusion", "token", "--weights", "q4nx"]):
            flags = ["chat", *self.VNPU, "--temp", "0", "-n", "6", *form]
            want = tyto(*flags, text=turns).stdout
            for fault in ("corrupt@3", "corrupt@25", "error@40"):
                result = tyto(*flags, "--vnpu-fault", fault, text=turns)
                self.assertEqual((result.returncode, result.stdout), (0, want), f"{form} {fault} {result.stderr}")

    def test_the_guard_is_counted_and_refused_where_it_sees_nothing(self):
        flags = ["run", "-p", "Hi", "-n", "3", "--temp", "0", "-v", *self.VNPU]
        result = tyto(*flags, "--guard", "on")
        self.assertIn("row sums checked", result.stderr)
        self.assertIn("o is not checked on vnpu: o_gemv_ffn keeps it inside its cores", result.stderr)
        self.check_error(tyto(*flags, "--guard", "on", "--fusion", "token"), 2, "--guard on", "--fusion block")
        result = tyto(*flags, "--fusion", "op", "--weights", "int8", "--guard", "on", "--vnpu-fault", "flip@50")
        self.assertEqual(result.returncode, 0)
        self.assertIn("adds up to", result.stderr)


if __name__ == "__main__":
    main()
