"""Which multiplications go to the NPU: GGML_TYTO_MIN_N, MAX_N, MIN_MACS, FUSION, as the receipt counts them."""
from harness import GgmlTest, complete, mul_mat_count, owlet

PROMPT = "Once upon a time, there was a fox who found a lamp"  # a prefill of more than one token
TOKENS = 8


def receipt_with(**settings):
    return complete(owlet("q8_0"), TOKENS, prompt=PROMPT, settings=settings).receipt


class Routing(GgmlTest):
    @classmethod
    def setUpClass(cls):
        cls.all = receipt_with(MIN_N=1)

    def declined(self, receipt):
        return {entry["reason"]: entry["count"] for entry in receipt["declined"]}

    def test_min_n_keeps_decode_away_and_max_n_prefill(self):
        prefill, decode = receipt_with(MIN_N=2), receipt_with(MIN_N=1, MAX_N=1)
        self.assertGreater(mul_mat_count(prefill), 0)
        self.assertGreater(mul_mat_count(decode), 0)
        self.assertEqual(mul_mat_count(prefill) + mul_mat_count(decode), mul_mat_count(self.all))
        # One prefill, and as many steps as tokens less the one that the prefill gave.
        self.assertGreater(mul_mat_count(decode), (TOKENS - 2) * mul_mat_count(prefill))

    def test_what_is_kept_away_is_declined_by_the_name_of_the_rule(self):
        for variable, value in (("MIN_N", 2), ("MAX_N", 1), ("MIN_MACS", 10**9)):
            with self.subTest(variable=variable):
                reasons = " ".join(self.declined(receipt_with(**{"MIN_N": 1, variable: value})))
                self.assertIn(f"GGML_TYTO_{variable}", reasons)
                self.assertNotIn(f"GGML_TYTO_{variable}", " ".join(self.declined(self.all)))

    def test_min_macs(self):
        """Owlet's largest multiplication of a token has fewer than 10^8 multiply-accumulates, its smallest more than 1."""
        self.assertEqual(mul_mat_count(receipt_with(MIN_N=1, MAX_N=1, MIN_MACS=1)),
                         mul_mat_count(receipt_with(MIN_N=1, MAX_N=1)))
        none = receipt_with(MIN_N=1, MIN_MACS=10**12)
        self.assertEqual(mul_mat_count(none), 0)
        self.assertEqual(none["dispatches"], 0)
        self.assertEqual(none["share_of_macs"], 0)

    def test_a_minimum_between_removes_some(self):
        some = receipt_with(MIN_N=1, MIN_MACS=300_000)
        self.assertGreater(mul_mat_count(some), 0)
        self.assertLess(mul_mat_count(some), mul_mat_count(self.all))


class Fusion(GgmlTest):
    def test_blocks_take_fewer_dispatches_for_the_same_products(self):
        by_op, by_block = receipt_with(FUSION="op"), receipt_with(FUSION="block")
        self.assertEqual((by_op["fusion"], by_block["fusion"]), ("op", "block"))
        self.assertEqual(mul_mat_count(by_op), mul_mat_count(by_block))
        self.assertEqual(by_op["macs"], by_block["macs"])
        self.assertLess(3 * by_block["dispatches"], by_op["dispatches"])
