"""What the plug-in says at exit: one line, a JSON receipt, a Perfetto trace, and that they agree."""
import collections
import json

from harness import PLACES, GgmlTest, complete, owlet

TOKENS = 12
FIELDS = ["tyto_version", "ggml_version", "device", "is_virtual", "fusion", "dispatches", "tokens", "dispatches_per_token",
          "mul_mat", "macs", "share_of_macs", "host_us_per_dispatch", "modelled_seconds", "weights", "declined",
          "fallbacks"]


class Receipt(GgmlTest):
    @classmethod
    def setUpClass(cls):
        cls.trace_path = PLACES.work / "trace.json"
        cls.completion = complete(owlet("q8_0"), TOKENS, settings={"TRACE": cls.trace_path, "MIN_N": 1})
        cls.receipt = cls.completion.receipt

    def test_one_line_on_stderr(self):
        lines = [line for line in self.completion.result.stderr.splitlines() if line.startswith("tyto receipt: ")]
        self.assertEqual(len(lines), 1, self.completion.result.stderr)
        for fragment in (PLACES.device, "dispatch", "token", "MAC", "%", "modelled", str(self.receipt["dispatches"])):
            self.assertIn(fragment, lines[0])
        self.assertNotRegex(lines[0], r"tok/s|t/s|tokens per second")

    def test_nothing_of_ours_on_stdout(self):
        self.assertNotIn("tyto", self.completion.result.stdout)

    def test_fields(self):
        for name in FIELDS:
            self.assertIn(name, self.receipt)
        self.assertEqual(self.receipt["device"], PLACES.device)
        self.assertIs(self.receipt["is_virtual"], True)
        self.assertEqual(self.receipt["fallbacks"], [])

    def test_tokens_are_those_that_were_computed(self):
        """The prompt's, and each generated one but the last, which no request went on from."""
        prompt_tokens = 5
        self.assertEqual(self.receipt["tokens"], prompt_tokens + TOKENS - 1)

    def test_numbers_agree_with_each_other(self):
        receipt = self.receipt
        self.assertGreater(receipt["dispatches"], 0)
        self.assertAlmostEqual(receipt["dispatches_per_token"], receipt["dispatches"] / receipt["tokens"], places=2)
        self.assertEqual(receipt["submissions"], receipt["dispatches"])  # all that were sent were completed
        macs = receipt["macs"]
        self.assertGreater(macs[PLACES.device], 0)
        self.assertAlmostEqual(receipt["share_of_macs"], macs[PLACES.device] / sum(macs.values()), places=3)
        self.assertLessEqual(receipt["dispatches"], receipt["mul_mat"]["offloaded"])
        self.assertGreater(receipt["modelled_seconds"], 0)
        self.assertGreater(receipt["host_us_per_dispatch"], 0)

    def test_weights_are_quantised_once(self):
        """The same tensors and bytes however many tokens follow."""
        longer = complete(owlet("q8_0"), 4 * TOKENS, settings={"MIN_N": 1}).receipt
        for name in ("tensors", "int8_bytes"):
            self.assertEqual(longer["weights"][name], self.receipt["weights"][name])
            self.assertGreater(longer["weights"][name], 0)

    def test_work_grows_with_tokens_alone(self):
        """Each further token adds the same dispatches and multiply-accumulates."""
        runs = [complete(owlet("q8_0"), tokens, settings={"MIN_N": 1}).receipt for tokens in (4, 8, 12)]
        for key in (lambda r: r["dispatches"], lambda r: r["mul_mat"]["offloaded"], lambda r: r["macs"][PLACES.device]):
            first, second, third = map(key, runs)
            self.assertEqual(second - first, third - second)
            self.assertGreater(second, first)

    def test_the_trace_is_perfetto_json_with_a_slice_per_dispatch(self):
        trace = json.loads(self.trace_path.read_text())
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        kinds = collections.Counter(event["ph"] for event in events)
        self.assertEqual(kinds["B"], kinds["E"])
        slices = [event for event in events if event["ph"] == "X"]
        self.assertTrue(slices)
        for event in slices:
            self.assertGreaterEqual(event["dur"], 0)
            self.assertGreaterEqual(event["ts"], 0)
        tracks = collections.Counter((event.get("pid"), event.get("tid")) for event in slices)
        self.assertIn(self.receipt["dispatches"], tracks.values(), f"slices per track: {dict(tracks)}")
