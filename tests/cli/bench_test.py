#!/usr/bin/env python3
"""tyto bench and results."""
import csv
import json
import os
import subprocess
import tempfile
from pathlib import Path

from harness import OWLET, TYTO, CliTest, main, tyto


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
            self.assertIn("before and after", row["peak"])
            for rate in ("gb_per_s", "gflop_per_s"):
                self.assertAlmostEqual(row["share_of_peak_" + rate], row[rate] / row["peak_" + rate])
                self.assertLessEqual(row["share_of_peak_" + rate], 1)
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

    def test_sequences_take_turns_on_caches_of_their_own(self):
        row, = self.rows("-p", "0", "-n", "0", "-pg", "16,4", "--sequences", "3", *self.VNPU, "--fusion", "token",
                         "--weights", "q4nx", model=OWLET)
        self.assertEqual((row["n_sequences"], row["recoveries"]), (3, 0))
        self.check_error(self.bench("-p", "8", "--sequences", "3", *self.VNPU, "--fusion", "token", "--weights", "q4nx",
                                    "--kv-memory", "4096", model=OWLET), 2, "3 sequences")

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

    def test_guesses_are_tests_of_their_own_in_turns_with_plain_ones(self):
        flags = ["-p", "8", "-n", "24", "-d", "4", "--speculate", "oracle:1,oracle:0,lookup", "--draft", self.model]
        rows = self.rows(*flags)
        names = ["oracle:1.00", "oracle:0.00", "lookup", f"draft {Path(self.model).name}"]
        self.assertEqual([row["test"] for row in rows], ["pp8 @ d4", "tg24 @ d4", *(f"tg24 @ d4 spec {name}" for name in names)])
        for row in rows[:2]:
            self.assertIsNone(row["speculation"])
        for row, name in zip(rows[2:], names):
            counted = row["speculation"]
            self.assertEqual((counted["source"], len(row["samples_ts"]), row["n_gen"]), (name, 2, 24))
            self.assertEqual(counted["calls"] + counted["accepted"], 2 * 24)
            self.assertAlmostEqual(counted["calls_per_token"], counted["calls"] / 48)
            self.assertEqual(len(counted["of_plain"]["all"]), 2)
            self.assertTrue(counted["of_plain"]["min"] <= counted["of_plain"]["median"] <= counted["of_plain"]["max"])
        self.assertEqual(rows[2]["speculation"]["accepted"], rows[2]["speculation"]["drafted"])
        self.assertEqual(rows[3]["speculation"]["accepted"], 0)
        lines = self.bench("-p", "0", "-n", "8", "--speculate", "lookup").stderr
        self.assertRegex(lines, "tg8 spec lookup: [0-9.]+ times plain in the median of 2 rounds")

    def test_guesses_that_cannot_be_measured_are_refused(self):
        for text in ("oracle", "oracle:1.5", "oracle:x", "draft", "off"):
            self.check_error(self.bench("-n", "4", "--speculate", text), 2, f"--speculate {text}", "oracle:A")
        self.check_error(self.bench("-n", "4", "--speculate", "lookup,lookup"), 2, "--speculate", "twice")
        self.check_error(self.bench("-p", "8", "-n", "0", "--speculate", "lookup"), 2, "--speculate", "-n")
        self.check_error(self.bench("-n", "4", "--sequences", "2", "--speculate", "lookup"), 2, "--speculate")
        self.check_error(self.bench("-n", "4", "--ab", "cpu,vnpu", "--speculate", "lookup"), 2, "--ab")
        self.check_error(self.bench("-n", "4", "--draft-max", "4"), 2, "--draft-max")
        self.check_error(self.bench("-n", "4", "--speculate", "lookup", "--draft-max", "16"), 2, "--draft-max")
        self.check_error(self.bench("-n", "4", "--speculate", "lookup", *self.VNPU), 2, "--speculate", "one by one")
        self.check_error(self.bench("-n", "4", "--draft", str(OWLET)), 1, "cannot draft for this model")

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

    def test_a_narrow_terminal_keeps_the_generation_speed_and_the_date(self):
        state = str(self.work / "narrow")

        def on_80_columns(command):
            return subprocess.run(["script", "-qec", f"stty cols 80; {TYTO} {command}", "/dev/null"], capture_output=True, text=True,
                                  timeout=120, env={**os.environ, "NO_COLOR": "1", "XDG_STATE_HOME": state}).stdout
        table = on_80_columns(f"bench -m {self.model} -p 0 -n 0 -pg 8,4 --sequences 2 -r 1")
        self.assertIn("S_TG t/s", table.split("hidden columns")[0])
        self.assertIn("(`| less -S` shows them)", table)
        self.assertRegex(on_80_columns("results list"), r"[0-9a-f]{8}  20\d\d-\d\d-\d\dT")

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

    def test_a_damaged_ledger_is_reported_and_kept(self):
        self.rows("-p", "8", "-n", "0")
        ledger = self.state / "tyto/results.jsonl"
        ledger.write_text("garbage\n" + ledger.read_text() + "{\"half")
        listed = self.results("list")
        self.assertEqual((listed.returncode, len(listed.stdout.splitlines())), (1, 1))
        self.assertEqual(len(listed.stderr.splitlines()), 1)
        self.assertIn("line 1 cannot be read", listed.stderr)
        self.rows("-p", "8", "-n", "0")
        self.assertEqual(len(self.results("list").stdout.splitlines()), 2)
        self.assertTrue(ledger.read_text().startswith("garbage\n"))


if __name__ == "__main__":
    main()
