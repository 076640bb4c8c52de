#!/usr/bin/env python3
"""What is written down, and what happens when it is changed: receipts, keys, profiles, results."""
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import OWLET, ROOT, CliTest, main, tyto


def sealed(record):
    """As a forger does, who computes the hash again."""
    record = {key: value for key, value in record.items() if key not in ("hash", "signature")}
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    return json.dumps({**record, "hash": hashlib.blake2b(text.encode(), digest_size=32).hexdigest()},
                      separators=(",", ":"), ensure_ascii=False)


class Receipts(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.key = cls.work / "my.key"
        cls.public = tyto("receipt", "keygen", "-o", cls.key).stdout.strip()
        cls.plain, cls.signed = cls.work / "plain.json", cls.work / "signed.json"
        flags = ["run", "-m", cls.model, "-p", "Hé \"x\"", "-n", "4", "--raw", "--ignore-eos"]
        assert tyto(*flags, "--receipt", cls.plain).returncode == 0
        assert tyto(*flags, "--receipt", cls.signed, "--sign", cls.key).returncode == 0

    def check(self, *args):
        return tyto("receipt", "check", *args)

    def test_an_honest_receipt_holds_and_says_what_it_proves(self):
        result = self.check(self.plain)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("only a signature reveals deliberate changes", result.stdout)
        self.assertIn("cannot prove that the run took place", result.stdout)
        self.assertNotIn("FAILS", result.stdout)
        indented = self.work / "indented.json"
        indented.write_text(re.sub(r"\n *", "\n\t\t", self.plain.read_text()))
        self.assertEqual(self.check(indented).returncode, 0)

    def test_a_check_as_json(self):
        row = json.loads(self.check(self.signed, "--trust", self.public, "--json").stdout)
        self.assertEqual((row["holds"], row["signed_by_trusted_key"]), (True, True))
        self.assertEqual(row["id"], json.loads(self.signed.read_text())["id"])
        self.assertNotIn("FAILS", {finding["state"] for finding in row["findings"]})
        forged = self.work / "forged-too.json"
        forged.write_text(self.plain.read_text().replace('"prompt_tokens": ', '"prompt_tokens": 9'))
        result = self.check(forged, "--json")
        self.assertEqual((result.returncode, json.loads(result.stdout)["holds"]), (1, False))
        self.assertIn({"state": "FAILS", "about": "hash"},
                      [{key: each[key] for key in ("state", "about")} for each in json.loads(result.stdout)["findings"]])
        file = self.work / "check.json"
        told = self.check(self.plain, "--json", file)
        self.assertIn("It proves", told.stdout)
        self.assertEqual(json.loads(file.read_text())["holds"], True)

    def test_a_changed_receipt_fails(self):
        forged = self.work / "forged.json"
        text = self.plain.read_text()
        forged.write_text(text.replace('"prompt_tokens": ', '"prompt_tokens": 9'))
        result = self.check(forged)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"FAILS +hash")
        self.assertIn("proves nothing", result.stdout)
        self.assertEqual(len(result.stderr.splitlines()), 1)
        # With its hash computed again the numbers do not agree.
        receipt = json.loads(text)
        receipt["timing"]["decode_tok_s"] = 43.84
        forged.write_text(sealed(receipt))
        result = self.check(forged)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"ok +hash")
        self.assertRegex(result.stdout, r"FAILS +rates +decode_tok_s: says 43.84")
        for bad in ("{}", "[1", '{"schema": "tyto-receipt-9"}', text.replace('"flops": ', '"flops": 1e999')):
            forged.write_text(bad)
            self.check_error(self.check(forged), 1, "forged.json")

    def test_signatures(self):
        for trust in (str(self.key) + ".pub", self.public):
            result = self.check(self.signed, "--trust", trust)
            self.assertEqual(result.returncode, 0, result.stdout)
            self.assertRegex(result.stdout, r"ok +signature")
        self.assertRegex(self.check(self.signed).stdout, r"unknown +signature +by ")
        self.assertRegex(self.check(self.plain, "--trust", self.public).stdout, r"FAILS +signature .*not signed")
        other = tyto("receipt", "keygen", "-o", self.work / "other.key").stdout.strip()
        result = self.check(self.signed, "--trust", other)
        self.assertEqual(result.returncode, 1)
        self.assertIn("not the trusted key", result.stdout)
        # Another's numbers under this signature.
        forged = self.work / "resigned.json"
        receipt = json.loads(self.signed.read_text())
        forged.write_text(sealed({**receipt, "fusion": "x"})[:-1] +
                          ',"signature":' + json.dumps(receipt["signature"], separators=(",", ":")) + "}")
        result = self.check(forged, "--trust", self.public)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"ok +hash")
        self.assertRegex(result.stdout, r"FAILS +signature")

    def test_keys_are_kept(self):
        self.assertEqual(self.key.stat().st_mode & 0o777, 0o600)
        secret = self.key.read_text()
        self.assertTrue(secret.startswith("tyto-ed25519-secret "))
        self.check_error(tyto("receipt", "keygen", "-o", self.key), 1, "never overwritten")
        self.assertEqual(self.key.read_text(), secret)
        open_key = self.work / "open.key"
        open_key.write_text(secret)
        open_key.chmod(0o644)
        receipt = self.work / "none.json"
        flags = ["run", "-m", self.model, "-p", "x", "-n", "1", "--raw", "--receipt", receipt]
        self.check_error(tyto(*flags, "--sign", open_key), 1, "chmod 600")
        self.assertFalse(receipt.exists())
        self.check_error(tyto(*flags[:-2], "--sign", self.key), 2, "--sign", "--receipt")
        self.check_error(tyto("profile", "-m", self.model, "-p", "x", "--sign", self.key), 2, "--json or --receipt")
        self.check_error(tyto("profile", "--from", "x", "--sign", self.key), 2, "no effect")
        self.check_error(self.check(self.plain, "--trust", "nonsense"), 2, "public key")

    def test_the_check_that_the_documentation_gives_away(self):
        code = re.search(r"```python\n(.*?)```", (ROOT / "docs/evidence.md").read_text(), re.S)[1]
        forged = self.work / "doc.json"
        forged.write_text(self.plain.read_text().replace("tyto-receipt-1", "tyto-receipt-2"))
        out = subprocess.run([sys.executable, "-c", code, self.plain, self.signed, forged], capture_output=True, text=True,
                             timeout=60)
        self.assertEqual(out.stderr, "")
        self.assertEqual([line.split(" ", 1)[1] for line in out.stdout.splitlines()],
                         ["is whole", "is whole", "WAS CHANGED"])


class Profiles(CliTest):
    def test_a_forged_profile_is_refused_with_both_numbers(self):
        good, forged = self.work / "p.json", self.work / "forged.json"
        result = tyto("profile", "-m", OWLET, "-p", "Hi", "--temp", "0", "-n", "3", "--ignore-eos", "--device", "vnpu",
                      "--prompt-rows", "64", "--json", good)
        self.assertEqual(result.returncode, 0, result.stderr)
        profile = json.loads(good.read_text())
        kinds, columns = profile["event_kinds"], profile["event_columns"]
        at = {name: columns.index(name) for name in columns}

        def write(change):
            data = json.loads(good.read_text())
            change(data["runs"][0])
            data["runs"][0]["receipt"] = json.loads(sealed(data["runs"][0]["receipt"]))
            forged.write_text(json.dumps(data))
            return tyto("profile", "--from", forged)

        def scale(counter, field, factor):
            counter[field] *= factor

        def fewer_bytes(run):
            for counters in (run["receipt"]["devices"], *run["receipt"]["phases"].values()):
                scale(counters[0], "bytes", 2)

        def more_of_everything(run):  # 4.3 GB a token, in the events too
            grown = {"prefill": 0, "decode": 0}
            for event in run["events"]:
                if kinds[event[at["kind"]]] == "submit" and event[at["device"]] == 0:
                    event[at["bytes"]] += 4_300_000_000
                    grown["prefill" if event[at["token"]] == 0 else "decode"] += 4_300_000_000
            for phase, more in grown.items():
                run["receipt"]["phases"][phase][0]["bytes"] += more
            run["receipt"]["devices"][0]["bytes"] += sum(grown.values())

        self.check_error(write(fewer_bytes), 1, "forged.json", "bytes in the recording", "in the receipt")
        self.check_error(write(more_of_everything), 1, "forged.json", "says plausible, but vnpu", "the memory has 120 GB/s")
        self.assertEqual(write(lambda run: None).returncode, 0)
        self.check_error(tyto("profile", "--diff", good, forged.with_name("absent")), 1)


class Results(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.key = cls.work / "my.key"
        cls.public = tyto("receipt", "keygen", "-o", cls.key).stdout.strip()
        state = cls.work / "written"
        flags = ["bench", "-m", cls.model, "-p", "0", "-n", "2,3,4", "-r", "1", "--no-warmup", "--sign", cls.key]
        assert tyto(*flags, environment={"XDG_STATE_HOME": str(state)}).returncode == 0
        cls.lines = (state / "tyto/results.jsonl").read_text().splitlines()
        cls.head = (state / "tyto/results.head").read_text()

    def setUp(self):
        self.state = Path(tempfile.mkdtemp(dir=self.work))
        (self.state / "tyto").mkdir()
        self.ledger, self.head_file = self.state / "tyto/results.jsonl", self.state / "tyto/results.head"
        self.write(self.lines)

    def write(self, lines):
        self.ledger.write_text("".join(line + "\n" for line in lines))
        self.head_file.write_text(self.head)

    def results(self, *args):
        return tyto("results", *args, environment={"XDG_STATE_HOME": str(self.state)})

    def check_broken(self, lines, said, marked):
        """Which rows of the list are marked, and what `check` says; both end with exit code 1."""
        self.write(lines)
        listed = self.results("list")
        self.assertEqual(listed.returncode, 1)
        self.assertEqual(["BROKEN" in line for line in listed.stdout.splitlines()], marked)
        self.assertEqual(len(listed.stderr.splitlines()), 1, listed.stderr)
        checked = self.results("check")
        self.assertEqual(checked.returncode, 1)
        self.assertIn(said, checked.stdout)
        as_json = self.results("check", "--json")
        self.assertEqual((as_json.returncode, json.loads(as_json.stdout)["is_whole"]), (1, False))

    def test_a_whole_ledger(self):
        ids = [json.loads(line)["id"][:8] for line in self.lines]
        result = self.results("check")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn(f"3 records, the chain is whole from {ids[0]} to {ids[2]}", result.stdout)
        self.assertIn("could rebuild the whole chain", result.stdout)
        self.assertEqual(self.results("check", self.ledger).returncode, 0)
        self.check_error(self.results("check", self.state / "absent.jsonl"), 1, "no such file")
        row = json.loads(self.results("check", "--json").stdout)
        self.assertEqual((row["is_whole"], row["chained"], row["without_hash"], row["problems"]), (True, 3, 0, []))
        self.assertEqual(self.results("list").returncode, 0)
        for command in (["check"], ["list"], ["show", ids[0]]):
            self.assertEqual(self.results(*command, "--trust", str(self.key) + ".pub").returncode, 0)
        other = tyto("receipt", "keygen", "-o", self.state / "other").stdout.strip()
        result = self.results("check", "--trust", other)
        self.assertEqual(result.returncode, 1)
        self.assertIn("line 1 is signed by", result.stdout)

    def test_changed_numbers_invented_devices_missing_and_foreign_lines(self):
        a, b, c = self.lines
        record = json.loads(b)
        changed = b.replace('"executed_on":"cpu"', '"executed_on":"h100"')
        self.assertNotEqual(changed, b)
        self.check_broken([a, changed, c], "line 2 was changed", [False, True, False])
        record["row"]["avg_ts"] *= 2
        self.check_broken([a, sealed(record), c], "line 3 does not follow line 2", [False, True, True])
        self.check_broken([a, c], "line 2 does not follow line 1", [False, True])
        self.check_broken([b, c], "line 1 is not the first record", [True, False])
        self.check_broken([a, b], "records are missing at the end: results.head counts 3", [False, False])
        self.check_broken([a, c, b], "line 2 was moved", [False, True, False])
        foreign = {**json.loads(c), "previous": hashlib.blake2b(a.encode(), digest_size=32).hexdigest()}
        self.check_broken([a, sealed(foreign), b, c], "line 2 was inserted", [False, True, False, True])
        self.check_broken([a, b, c, '{"half'], "line 4 cannot be read", [False, False, False])
        self.write([a, changed, c])
        shown = self.results("show", json.loads(b)["id"])
        self.assertEqual(shown.returncode, 1)
        self.assertIn("BROKEN: was changed", shown.stderr)
        self.assertEqual(json.loads(shown.stdout)["row"]["executed_on"], "h100")
        self.write(self.lines)
        self.head_file.unlink()
        self.assertIn("results.head is missing", self.results("check").stdout)

    def test_older_rows_are_never_taken_for_good(self):
        old = []
        for line in self.lines:
            record = {key: value for key, value in json.loads(line).items() if key not in ("previous", "hash", "signature")}
            old.append(json.dumps({**record, "schema": "tyto-result-1"}))
        self.write(old)
        self.head_file.unlink()
        listed = self.results("list")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertEqual(listed.stdout.count("[not chained]"), 3)
        self.assertIn("3 records without a hash", self.results("check").stdout)
        self.write(old)  # with a head: these were chained once
        self.assertIn("records are missing", self.results("check").stdout)

    def test_names_in_the_ledger_do_not_reach_the_terminal(self):
        record = json.loads(self.lines[0])
        record["row"]["executed_on"] = "cpu\x1b[2J\x1b]0;owned\x07"
        self.write([sealed(record)])
        for command in (["list"], ["check"], ["show", record["id"]]):
            result = self.results(*command)
            self.assertNotIn("\x1b", result.stdout + result.stderr)

    def test_a_superseding_record_is_part_of_the_chain(self):
        first = json.loads(self.lines[0])["id"]
        self.assertEqual(self.results("supersede", first, "--why", "on battery", "--sign", self.key).returncode, 0)
        self.assertIn("4 records", self.results("check", "--trust", self.public).stdout)
        self.ledger.write_text("".join(line + "\n" for line in self.ledger.read_text().splitlines()[:-1]))
        self.assertIn("results.head counts 4", self.results("check").stdout)

    def test_the_chain_by_the_recipe_of_the_documentation(self):
        previous = b""
        for line in self.lines:
            self.assertEqual(json.loads(line)["previous"], hashlib.blake2b(previous, digest_size=32).hexdigest())
            previous = line.encode()
        self.assertEqual(json.loads(self.head), {"schema": "tyto-results-head-1", "rows": 3,
                                                 "last": hashlib.blake2b(previous, digest_size=32).hexdigest()})

    def test_a_useless_signature_is_refused(self):
        self.check_error(tyto("bench", "-m", self.model, "--no-ledger", "--sign", self.key), 2, "--sign", "--no-ledger")


if __name__ == "__main__":
    main()
