#!/usr/bin/env python3
"""check_compare.py ROOT: what bench/compare runs, in which order, and what it makes of the samples.

A program that stands in for tyto and llama-bench writes down how it is called, and answers with speeds out of a table.
"""
import fcntl
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1)).resolve()
TOOL = ROOT / "bench" / "compare"
# Answers are in calls of the same kind: the first one gets the first speed, and the last speed stays.
STAND_IN = """#!/usr/bin/env -S python3 -S -E
import json, sys
from pathlib import Path
me, args = Path(sys.argv[0]), sys.argv[1:]
log = me.parent / "calls"
def value(flag, missing="0"):
    return args[args.index(flag) + 1] if flag in args else missing
key = " ".join([me.name] + [part for flag in ("--isa", "-fa", "-rtr", "-thp") if flag in args for part in (flag, value(flag))])
calls = log.read_text().splitlines() if log.exists() else []
table = json.loads((me.parent / "speeds").read_text())
sizes = [(int(n), 0) for n in value("-p").split(",") if n != "0"] + [(0, int(n)) for n in value("-n").split(",") if n != "0"]
if "-gp" in args:
    sizes.append(tuple(int(n) for n in value("-gp").split(",")))
rows = []
for prompt, generated in sizes:
    speeds = table.get(f"{key} {'tg' if generated else 'pp'}", table.get(key, [10]))
    seen = sum(json.loads(call)["key"] == key for call in calls)
    rows.append({"n_prompt": prompt, "n_gen": generated, "avg_ts": speeds[min(seen, len(speeds) - 1)],
                 "build_commit": f"of {me.name}"})
with open(log, "a") as file:
    file.write(json.dumps({"key": key, "args": args}) + "\\n")
print(json.dumps(rows))
"""


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in ("tyto", "llama", "ik"):
            self.program(name, STAND_IN)
        self.speeds({})
        for name in ("one.gguf", "two.gguf"):
            (self.root / name).write_bytes(b"1234")

    def program(self, name, text):
        (self.root / name).write_text(text)
        (self.root / name).chmod(0o755)

    def speeds(self, table):
        (self.root / "speeds").write_text(json.dumps(table))

    def compare(self, *flags, peers=("llama", "ik"), rounds=5):
        given = {"llama": ["--llama-bench", str(self.root / "llama")], "ik": ["--ik-bench", str(self.root / "ik")]}
        command = [str(TOOL), "--tyto", str(self.root / "tyto"), "-m", str(self.root / "one.gguf"), "-t", "1", "-o",
                   str(self.root / "out"), "--patience", "0", "--rounds", str(rounds)]
        command += [part for peer in peers for part in given[peer]] + [str(flag) for flag in flags]
        return subprocess.run(command, capture_output=True, text=True, timeout=600)

    def refused(self, words, *flags, **settings):
        result = self.compare(*flags, **settings)
        self.assertNotEqual(result.returncode, 0)
        last = result.stderr.strip().splitlines()[-1]
        self.assertIn(words, last)
        self.assertNotIn("Traceback", result.stderr)

    def calls(self):
        return [json.loads(line) for line in (self.root / "calls").read_text().splitlines()]

    def result(self, name="compare-one-t1.json"):
        return json.loads((self.root / "out" / name).read_text())

    def only_prompts(self, *flags, **settings):
        result = self.compare("-p", "13", "-n", "", "-d", "", *flags, **settings)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def test_ratio_of_medians_and_spread_for_each_peer(self):
        self.speeds({"tyto": [20, 30, 10, 40, 20], "llama -fa 0": [5], "llama -fa 1": [10, 10, 20, 10, 10],
                     "ik -fa 1 -rtr 0": [8], "ik -fa 1 -rtr 1": [16], "ik -fa 1 -rtr 1 -thp 1": [4]})
        shown = self.only_prompts().stdout
        llama, ik = self.result()["summary"]
        self.assertEqual((llama["peer"], llama["tyto_ts"], llama["peer_ts"]), ("llama.cpp -fa 1", 20, 10))
        self.assertEqual((llama["ratio"], llama["ratio_min"], llama["ratio_max"], llama["rounds"]), (2, 0.5, 4, 5))
        self.assertEqual((ik["peer"], ik["ratio"], ik["ratio_min"], ik["ratio_max"]),
                         ("ik_llama.cpp -fa 1 -rtr 1", 1.25, 0.625, 2.5))
        self.assertIn("| pp13 | 20.00 | tyto | 10.00 | llama.cpp -fa 1 | 2.00 | 0.50 to 4.00 |", shown)

    def test_after_the_first_round_only_the_faster_way_runs(self):
        self.speeds({"llama -fa 0": [11, 1], "llama -fa 1": [10], "ik -fa 1 -rtr 0": [1], "ik -fa 1 -rtr 1": [2],
                     "ik -fa 1 -rtr 1 -thp 1": [3]})
        self.only_prompts()
        samples = self.result()["samples_ts"]["pp13"]
        self.assertEqual(samples["llama.cpp -fa 0"], [11, 1, 1, 1, 1])
        self.assertEqual(samples["llama.cpp -fa 1"], [10])
        self.assertEqual([len(samples[f"ik_llama.cpp -fa 1 -rtr {way}"]) for way in ("0", "1", "1 -thp 1")], [1, 1, 5])

    def test_the_faster_way_is_each_tests_own(self):
        self.speeds({"llama -fa 0 pp": [2], "llama -fa 1 pp": [1], "llama -fa 0 tg": [1], "llama -fa 1 tg": [2]})
        for flags in ([], ["--one-process"]):
            result = self.compare("-p", "13", "-n", "4", "-d", "", *flags, peers=["llama"])
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual([row["peer"] for row in self.result()["summary"]], ["llama.cpp -fa 0", "llama.cpp -fa 1"])
            samples = self.result()["samples_ts"]
            self.assertEqual([len(samples["pp13"][f"llama.cpp -fa {n}"]) for n in (0, 1)], [5, 1])

    def test_programs_take_turns_and_change_their_order(self):
        self.only_prompts(peers=["llama"])
        names = [call["key"].split()[0] for call in self.calls()]
        self.assertEqual(names[:3], ["tyto", "llama", "llama"])
        self.assertEqual(names[3:], ["llama", "tyto", "tyto", "llama"] * 2)

    def test_depth_in_each_programs_words(self):
        result = self.compare("-p", "", "-n", "", "-d", "100")
        self.assertEqual(result.returncode, 0, result.stderr)
        ends = {call["key"].split()[0]: call["args"][-6:] for call in self.calls()}
        self.assertEqual(ends["tyto"], ["-p", "0", "-n", "32", "-d", "100"])
        self.assertEqual(ends["llama"], ends["tyto"])
        self.assertEqual(ends["ik"], ["-p", "0", "-n", "0", "-gp", "100,32"])

    def test_one_process_runs_all_but_depths(self):
        self.compare("-p", "13,512", "-n", "4", "-d", "100", "--one-process", peers=["ik"])
        tyto = [" ".join(call["args"][-6:]) for call in self.calls() if call["key"] == "tyto"]
        self.assertEqual(tyto[:2], ["-o json -p 13,512 -n 4", "-p 0 -n 32 -d 100"])
        self.assertEqual(len(tyto), 10)
        self.assertEqual({len(by_way["tyto"]) for by_way in self.result()["samples_ts"].values()}, {5})

    def test_a_short_warmup_is_not_counted(self):
        self.speeds({"tyto pp": [3], "tyto tg": [4]})
        result = self.compare("-p", "13", "-n", "4", "-d", "100", "--one-process", "--short-warmup")
        self.assertEqual(result.returncode, 0, result.stderr)
        first = {}
        for call in self.calls():
            first.setdefault(call["key"].split()[0], " ".join(call["args"]))
        self.assertTrue(first["tyto"].endswith("-o json --no-warmup -p 1,13 -n 4"), first)
        self.assertTrue(first["llama"].endswith("-o json --no-warmup -fa 0 -p 1,13 -n 4"), first)
        self.assertTrue(first["ik"].endswith("-o json -w 0 -fa 1 -rtr 0 -p 1,13 -n 4"), first)
        samples = self.result()["samples_ts"]
        self.assertEqual([samples[test]["tyto"] for test in samples], [[3] * 5, [4] * 5, [4] * 5])
        self.refused("leave it out of -p", "-p", "1,13", "--short-warmup")

    def test_instruction_sets_are_programs_beside_each_other(self):
        self.speeds({"tyto --isa avx2": [5], "tyto": [20]})
        self.only_prompts("--isa", "avx2,default", peers=["llama"])
        self.assertEqual([(row["tyto"], row["ratio"]) for row in self.result()["summary"]],
                         [("tyto --isa avx2", 0.5), ("tyto", 2)])

    def test_peers_with_names(self):
        self.only_prompts("--llama-bench", f"llama.cpp, avx2={self.root / 'llama'}", "--llama-bench",
                          f"llama.cpp, avx512={self.root / 'llama'}", peers=[])
        self.assertEqual([row["peer"].split(" -")[0] for row in self.result()["summary"]],
                         ["llama.cpp, avx2", "llama.cpp, avx512"])

    def test_every_model_and_number_of_threads_has_a_file(self):
        self.only_prompts("-t", "1,3", "-m", self.root / "one.gguf", self.root / "two.gguf", peers=["llama"])
        self.assertEqual(sorted(path.name for path in (self.root / "out").iterdir()),
                         [f"compare-{model}-t{n}.json" for model in ("one", "two") for n in (1, 3)])
        self.assertEqual(self.result("compare-two-t3.json")["commands"]["tyto"], "tyto bench -m two.gguf -t 3 -r 1 -o json")

    def test_who_built_what(self):
        self.only_prompts(peers=["llama"])
        self.assertEqual(self.result()["build_commits"], {"tyto": "of tyto", "llama.cpp": "of llama"})

    def test_flags_that_mean_nothing(self):
        self.refused("nothing to compare with", peers=[])
        self.refused("at least 5", rounds=4)
        self.refused("does not exist", "--ik-bench", self.root / "absent")
        self.refused("does not exist", "-m", self.root)
        self.refused("llama.cpp more than once", "--llama-bench", self.root / "llama")
        self.refused("avx2 more than once", "--isa", "avx2,avx2")
        self.refused("nothing to run", "-p", "", "-n", "", "-d", "")
        self.refused("nothing to run", "--isa", ",")
        for threads in ("0", "-1", "1,1", "x"):
            self.refused("-t/--threads", f"-t={threads}")

    def test_programs_that_fail(self):
        cases = {"echo no model here >&2; exit 3": "ended with 3: no model here", "exit 1": "it said nothing",
                 "echo hello": "no JSON list of rows: hello", "true": "nothing at all", "echo []": "0 rows where 1 were",
                 "echo '[{\"avg_ts\": null}]'": "without a measured avg_ts", "echo '[1]'": "no JSON list of rows"}
        for script, words in cases.items():
            self.program("llama", f"#!/bin/sh\n{script}\n")
            self.refused(words)
        self.program("llama", "#!/absent/interpreter\n")
        self.refused("cannot be run")
        self.program("llama", "#!/bin/sh\nexec sleep 50\n")
        self.refused("took more than 1 s", "--timeout", "1")

    def test_a_row_of_another_test_is_no_answer(self):
        row = '{"n_prompt": 7, "n_gen": 0, "avg_ts": 1}'
        self.program("llama", f"#!/bin/sh\necho '[{row}, {row}]'\n")
        self.refused("no row of pp13, tg4", "-p", "13", "-n", "4", "-d", "", "--one-process")

    def test_a_lock_that_another_holds(self):
        lock = self.root / "lock"
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.refused("was locked for 1 s", "--lock", lock, "--timeout", "1")
        self.assertFalse((self.root / "calls").exists())
        self.only_prompts("--lock", lock)


if __name__ == "__main__":
    unittest.main()
