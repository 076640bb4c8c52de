#!/usr/bin/env python3
"""tyto plan."""
import json
import subprocess
import sys

from harness import ROOT, TYTO, CliTest, main, tyto

sys.path.insert(0, str(ROOT / "tools"))
from cost_parameters_cpp import cpp_text  # noqa: E402


class Plan(CliTest):
    FIELDS = ["machine", "shape", "kernels", "fusion", "prompt_tokens", "context_tokens", "ttft_ms", "prefill_tok_s",
              "tpot_ms", "decode_tok_s", "dispatches_per_token", "pinned_bytes", "images", "heap_bytes", "bottleneck", "rel_error_p90",
              "ttft_error_p90", "tpot_error_p90", "prompt_rows", "published_ttft_ms", "kind", "ttft_kind", "recommended", "runs", "needs",
              "flags", "file_type", "weights", "memory_bytes", "note", "has_run_on_hardware"]

    def test_json_has_a_row_per_kernel_set_and_says_it_is_modelled(self):
        result = tyto("plan", "--shape", "llama-3.2-1b", "--machine", "strix", "--no-measure", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)
        self.assertEqual([(row["kernels"], row["fusion"], row["runs"], row["recommended"]) for row in rows],
                         [("air-bf16", "op", "no", False), ("air-bf16", "block", "with images", False),
                          ("air-q4nx", "token", "with images", False), ("flm-q4", "token", "no", False)])
        for row in rows:
            self.assertEqual(set(row), set(self.FIELDS))
            self.assertEqual((row["kind"], row["ttft_kind"], row["file_type"]), ("modelled", "modelled", None))
            self.assertEqual((row["memory_bytes"], row["has_run_on_hardware"]), (row["pinned_bytes"], False))
            self.assertEqual((row["machine"], row["shape"], row["prompt_tokens"]), ("strix", "llama-3.2-1b", 2048))
        self.assertEqual([row["dispatches_per_token"] for row in rows[:3]], [179, 33, 1])
        # A run of each image, however many layers the model has.
        self.assertEqual([row["images"] for row in rows], [0, 6, 5, 0])
        for row in rows:
            self.assertEqual(row["heap_bytes"] > 0, row["images"] > 0)
            self.assertLess(row["heap_bytes"], 64 << 20)

    def test_table_says_modelled_and_takes_a_model_file(self):
        result = tyto("plan", "-m", self.model, "--machine", "krackan", "--kernels", "air-q4nx", "--prompt-tokens", "64")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Modelled rows are estimates fitted to published measurements, with ", result.stdout)
        self.assertIn("no public images", result.stdout)
        self.assertNotIn("flm-q4", result.stdout)
        self.assertIn("heap: estimated use of the NPU's 67 MB heap", result.stdout)
        self.assertNotIn("* recommended", result.stdout)  # there are no images of this model

    def test_nothing_that_only_ran_on_a_simulator_is_recommended(self):
        result = tyto("plan", "--shape", "llama-3.2-1b", "--machine", "strix", "--no-measure")
        self.assertNotIn("*", result.stdout)
        self.assertEqual(result.stdout.count("Tyto's NPU code has only run on a simulator so far, never on an NPU."), 1)

    def test_shapes_are_taken_in_any_case_and_called_as_they_are_listed(self):
        rows = json.loads(tyto("plan", "--shape", "LLAMA-3.2-1B", "--no-measure", "--json").stdout)
        self.assertEqual({row["shape"] for row in rows}, {"llama-3.2-1b"})
        made = self.work / "any-case.gguf"
        self.assertEqual(tyto("synth", "--shape", "TINY", "-o", made).returncode, 0)
        self.assertTrue(made.exists())

    def test_the_cpu_is_announced_without_a_bar_that_never_moves(self):
        for subject in ("--shape tiny", f"-m {self.model} --prompt-tokens 4"):
            command = f"stty cols 80; {TYTO} plan {subject} --kernels cpu"
            shown = subprocess.run(["script", "-qec", command, "/dev/null"], capture_output=True, text=True, timeout=60).stdout
            self.assertIn("measuring the cpu …", shown)
            self.assertNotIn("[....", shown[shown.index("measuring the cpu"):], subject)  # a bar before it is of loading

    def test_the_table_says_what_its_numbers_assume_and_the_help_what_the_star_means(self):
        table = tyto("plan", "--shape", "tiny", "--machine", "strix", "--no-measure").stdout
        self.assertIn("`--overhead native --prompt-rows 256,512,2048` assumes Tyto's own host", table)
        native = tyto("plan", "--shape", "tiny", "--machine", "strix", "--no-measure", "--overhead", "native").stdout
        self.assertNotIn("--overhead native --prompt-rows", native)
        self.assertIn("* marks the recommended row.", tyto("plan", "--help").stdout)

    def test_the_cpu_is_measured_and_comes_first_where_there_is_no_npu(self):
        rows = json.loads(tyto("plan", "-m", self.model, "--prompt-tokens", "4", "--json").stdout)
        cpu = next(row for row in rows if row["kernels"] == "cpu")
        self.assertEqual((cpu["kind"], cpu["ttft_kind"], cpu["runs"], cpu["machine"]), ("measured", "measured", "yes", "this machine"))
        self.assertEqual((cpu["file_type"], cpu["weights"], cpu["fusion"], cpu["pinned_bytes"]), ("bf16", "bf16", "", 0))
        self.assertGreater(cpu["decode_tok_s"], 0)
        self.assertEqual({row["kind"] for row in rows if row is not cpu}, {"modelled"})
        if "No NPU was found" in (table := tyto("plan", "-m", self.model, "--prompt-tokens", "4").stdout):
            self.assertIs(rows[0], cpu)
            self.assertTrue(cpu["recommended"])
            self.assertIn(f"* recommended, the fastest to decode that is known to work: tyto run -m {self.model}", table)
            self.assertIn("The NPU rows are for strix", table)
        self.assertIn("The file's weights are bf16", table)
        # More than was run is reckoned, and says so.
        self.assertIn("measured just now with ", table)
        self.assertEqual(json.loads(tyto("plan", "-m", self.model, "--kernels", "cpu", "--prompt", "4", "--json").stdout)[0]["prompt_tokens"],
                         4)  # the flag's former name
        longer = json.loads(tyto("plan", "-m", self.model, "--kernels", "cpu", "--prompt-tokens", "1000000", "--json").stdout)
        self.assertEqual([(row["kind"], row["ttft_kind"]) for row in longer], [("measured", "estimated")])

    def test_a_shape_has_no_weights_to_measure(self):
        rows = json.loads(tyto("plan", "--shape", "llama-3.2-1b", "--kernels", "cpu", "--json").stdout)
        self.assertEqual([(row["kind"], row["weights"]) for row in rows], [("estimated", "q4_0"), ("estimated", "bf16")])
        for row in rows:
            self.assertRegex(row["note"], "estimated from this machine's measured [0-9.]+ GB/s")

    def test_the_cpu_of_this_machine_is_not_recommended_for_another(self):
        rows = json.loads(tyto("plan", "-m", self.model, "--machine", "strix-halo", "--prompt-tokens", "4", "--json").stdout)
        if not any("PCI" in line for line in tyto("doctor").stdout.splitlines() if "Strix Halo" in line):
            self.assertFalse(any(row["recommended"] for row in rows))

    def test_columns_have_names_of_their_own_and_the_table_fits_80_columns(self):
        command = f"stty cols 80; NO_COLOR=1 {TYTO} plan --shape llama-3.1-8b --machine strix --no-measure"
        lines = subprocess.run(["script", "-qec", command, "/dev/null"], capture_output=True, text=True, timeout=60).stdout.splitlines()
        table = lines[2:lines.index("")]
        self.assertGreater(len(table), 4)
        self.assertLessEqual(max(map(len, table)), 80)
        for kept in ("option", "numbers", "runs today", "1st token ms", "tok/s", "memory"):
            self.assertIn(kept, table[0])
        wide = tyto("plan", "--shape", "llama-3.1-8b", "--machine", "strix", "--no-measure").stdout.splitlines()[2]
        names = [name.strip() for name in wide.split("  ") if name.strip()]
        self.assertEqual(len(names), len(set(names)), names)
        self.assertIn("(`| less -S` shows them)", " ".join(lines))

    def test_short_prompts_run_in_the_smallest_images(self):
        asked = ("plan", "--shape", "llama-3.2-1b", "--machine", "strix", "--kernels", "air-bf16", "--fusion", "block", "--prompt-tokens", "13")
        fixed = json.loads(tyto(*asked, "--json").stdout)[0]
        short = json.loads(tyto(*asked, "--prompt-rows", "256,512,2048", "--json").stdout)[0]
        self.assertEqual((fixed["prompt_rows"], short["prompt_rows"]), (2048, 256))
        self.assertLess(short["ttft_ms"], fixed["ttft_ms"])
        self.assertEqual(short["published_ttft_ms"], fixed["ttft_ms"])
        table = tyto(*asked, "--prompt-rows", "512,2048").stdout
        self.assertIn("by MLIR-AIR's host and images of 2048 rows", table)
        self.assertIn("public prefill images have 2048 rows", table)
        self.check_error(tyto(*asked, "--prompt-rows", "100"), 2, "prompt rows", "multiple of 64")
        self.check_error(tyto("plan", "--shape", "tiny", "--machine", "strix", "--kernels", "flm-q4", "--prompt-rows", "256"), 2,
                         "--prompt-rows", "no use")

    def test_each_model_of_mlir_air_has_a_shape_and_an_error_for_each_phase(self):
        bf16 = ["llama-3.2-1b", "llama-3.2-3b", "smollm2-1.7b", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen2.5-0.5b", "qwen2.5-1.5b",
                "qwen2.5-3b"]
        q4nx = ["llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "qwen3-4b", "qwen3-8b", "qwen2.5-7b"]
        for kernels, shapes in (("air-bf16", bf16), ("air-q4nx", q4nx)):
            for shape in shapes:
                for row in json.loads(tyto("plan", "--shape", shape, "--machine", "krackan", "--kernels", kernels, "--json").stdout):
                    self.assertGreater(row["ttft_error_p90"], 0.05)
                    self.assertGreater(row["tpot_error_p90"], 0.05)
                    if row["fusion"] != "op":
                        self.assertNotIn("no public images", row["needs"], (shape, kernels))

    def test_stated_errors_cover_nine_of_ten_unseen_rows_and_the_page_has_them(self):
        result = subprocess.run([sys.executable, ROOT / "tools" / "compare_cost_model.py", TYTO, "--check"], capture_output=True,
                                text=True, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_the_compiled_parameters_are_those_of_the_fit(self):
        fitted = json.loads((ROOT / "data" / "npu-machines.json").read_text())
        self.assertEqual((ROOT / "src" / "cost" / "machine_parameters.cc").read_text(), cpp_text(fitted["parameters"]))

    def test_unseen_rows_are_not_fitted(self):
        fitted = json.loads((ROOT / "data" / "npu-machines.json").read_text())["provenance"].values()
        unseen = [row["id"] for row in json.loads((ROOT / "data" / "npu-unseen.json").read_text())["rows"]]
        self.assertEqual(len(unseen), len(set(unseen)))
        self.assertFalse(set(unseen) & {label for labels in fitted for label in labels})

    DRAFT = ("plan", "--shape", "llama-3.1-8b", "--machine", "krackan", "--draft-shape", "llama-3.2-1b", "--draft-ms", "20")

    def test_a_draft_model_is_modelled_for_each_number_of_guesses(self):
        rows = json.loads(tyto(*self.DRAFT, "--acceptance", "0.8", "--json").stdout)
        self.assertEqual([(row["checked_by"], row["guesses"]) for row in rows],
                         [(way, guesses) for way in ("token by token", "prompt images") for guesses in range(1, 9)])
        for row in rows:
            self.assertEqual((row["kind"], row["draft_kind"], row["acceptance"], row["kernels"]), ("modelled", "given", 0.8, "air-q4nx"))
            self.assertAlmostEqual(row["round_ms"], row["draft_ms"] + row["check_ms"])
            self.assertAlmostEqual(row["ratio"], row["decode_tok_s"] / row["plain_tok_s"])
            self.assertEqual(row["draft_ms"], 20 * row["guesses"])
        for row in rows[:8]:
            self.assertLess(row["ratio"], 1)  # a call of the decode takes one row
        plain = json.loads(tyto("plan", "--shape", "llama-3.1-8b", "--machine", "krackan", "--kernels", "air-q4nx", "--json").stdout)[0]
        self.assertEqual(rows[0]["plain_tok_s"], plain["decode_tok_s"])

    def test_without_an_acceptance_there_is_a_table_of_several(self):
        table = tyto(*self.DRAFT).stdout
        for acceptance in ("0.50", "0.60", "0.70", "0.80", "0.90"):
            self.assertIn(f"{acceptance}  token by token", table)
        self.assertIn("modelled, not measured", table)
        self.assertIn("--acceptance takes it", table)
        rows = json.loads(tyto(*self.DRAFT, "--json").stdout)
        self.assertEqual(len(rows), 80)
        self.assertFalse(any(row["acceptance_given"] for row in rows))

    def test_a_draft_model_is_measured_on_the_cpu(self):
        rows = json.loads(tyto("plan", "-m", self.model, "--machine", "strix", "--draft", self.model, "--acceptance", "1", "--prompt-tokens", "4",
                               "--json").stdout)
        self.assertEqual({row["draft_kind"] for row in rows}, {"measured"})
        self.assertGreater(rows[0]["draft_tpot_ms"], 0)
        self.assertEqual([row["tokens_per_round"] for row in rows[:8]], list(range(2, 10)))

    def test_a_draft_that_does_not_fit_is_refused(self):
        self.check_error(tyto("plan", "--shape", "llama-3.1-8b", "--draft-shape", "qwen3-0.6b", "--draft-ms", "1"), 2, "vocabulary of 151936",
                         "128256")
        self.check_error(tyto("plan", "--shape", "llama-3.1-8b", "--draft-shape", "llama-3.2-1b", "--no-measure"), 2, "--draft-ms")
        self.check_error(tyto("plan", "--shape", "llama-3.1-8b", "--acceptance", "0.5"), 2, "--acceptance", "--draft")
        self.check_error(tyto(*self.DRAFT, "--acceptance", "1.1"), 2, "--acceptance")
        self.check_error(tyto(*self.DRAFT, "--acceptance", "nan"), 2, "--acceptance")
        self.check_error(tyto(*self.DRAFT, "--draft-ms", "0"), 2, "--draft-ms")
        self.check_error(tyto(*self.DRAFT, "--kernels", "flm-q4"), 2, "flm-q4", "draft")
        self.check_error(tyto(*self.DRAFT, "--kernels", "cpu"), 2, "--kernels cpu", "draft")
        self.check_error(tyto(*self.DRAFT, "--kernels", "air-bf16", "--fusion", "op"), 2, "draft")

    def test_bad_names_are_one_line_errors(self):
        self.check_error(tyto("plan", "--shape", "tiny", "--machine", "phoenix"), 2, "machine phoenix", "strix-halo")
        self.check_error(tyto("plan", "--shape", "huge", "--machine", "strix"), 2, "shape huge")
        self.check_error(tyto("plan", "--shape", "tiny", "--machine", "strix", "--kernels", "x"), 2, "kernels x", "flm-q4")
        self.check_error(tyto("plan", "--shape", "tiny", "--machine", "strix", "--kernels", "air-q4nx", "--fusion", "op"), 2,
                         "--fusion op")
        self.check_error(tyto("plan", "--shape", "tiny", "--machine", "strix", "--prompt-tokens", "0"), 2, "prompt length")
        self.check_error(tyto("plan", "--shape", "tiny", "-m", self.model), 2, "--shape", "--model")
        self.check_error(tyto("plan", "--shape", "tiny", "--kernels", "cpu", "--no-measure"), 2, "--no-measure", "no use")
        self.check_error(tyto("plan", "--shape", "tiny", "--kernels", "cpu", "--fusion", "op"), 2, "--fusion", "no use")
        self.check_error(tyto("plan", "-m", self.model, "--prompt-tokens", "0"), 2, "prompt length")
        self.check_error(tyto("plan", "-m", self.model, "--prompt-tokens", "0", "--kernels", "cpu"), 2, "prompt length")
        self.assertIn("qwen2.5-0.5b", tyto("plan", "--help-all").stdout)


if __name__ == "__main__":
    main()
