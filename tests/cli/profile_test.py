#!/usr/bin/env python3
"""tyto profile."""
import json

from harness import OWLET, CliTest, main, tyto


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


if __name__ == "__main__":
    main()
