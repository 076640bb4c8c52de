"""Multiplications of every kind: 1000 random shapes, strided rows, NaN and infinity, no tokens at all.

test-backend-ops can read shapes from a file, but then leaves part of the memory that it compares unwritten.
"""
import json

from harness import PLACES, GgmlTest, last_lines, run

LARGEST_ERROR = 5e-4  # what ggml's own test allows a multiplication


class RandomShapes(GgmlTest):
    FUSION, COUNT = "block", 1000

    @classmethod
    def setUpClass(cls):
        result = run("mul_mat_probe", PLACES.device, cls.COUNT, 7, settings={"FUSION": cls.FUSION}, timeout=900)
        if result.returncode != 0:
            raise AssertionError(f"mul_mat_probe ended with {result.returncode}: {last_lines(result.stderr)}")
        cls.found = json.loads(result.stdout)

    def test_most_ran_and_all_were_right(self):
        found = self.found
        print(f"\n  ran {found['ran']}, declined {found['declined']}, largest error {found['worst_error']:.2g} "
              f"({found['worst_shape']}) ", end="")
        self.assertGreater(sum(found["ran"].values()), 0.8 * self.COUNT)
        self.assertEqual(len(found["ran"]), 6)
        self.assertLess(found["worst_error"], LARGEST_ERROR)

    def test_the_same_again_is_the_same(self):
        self.assertGreater(self.found["repeated"], 0)
        self.assertEqual(self.found["repeated_differently"], 0)

    def test_nan_and_infinity_end_as_on_the_cpu_backend(self):
        self.assertGreater(self.found["poisoned"], self.COUNT / 10)
        self.assertEqual(self.found["wrong_poison"], [])

    def test_no_tokens(self):
        self.assertIs(self.found["empty_runs"], True)


class RandomShapesAsGemms(RandomShapes):
    FUSION, COUNT = "op", 400
