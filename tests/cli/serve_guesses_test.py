#!/usr/bin/env python3
"""`tyto serve` with --speculate and --draft: the same answers, whatever else runs, and counters of the guesses."""
import http.client
import json
import threading
from urllib.parse import urlparse

from harness import OWLET, CliTest, main, tyto
from serving import Serving

# What repeats itself is guessed by looking it up.
AGAIN = "One day, an owl named Pip sat on the old barn. Pip looked at the moon. " * 3 + "One day, an owl"
PROMPTS = [AGAIN, "Once upon a time", "A bear named Bruno lived in the forest. " * 2, "One, two, three, one, two, three, one,"]


def ask(server, path, body):
    place = urlparse(server.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=120)
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def complete(server, prompt, **fields):
    body = {"prompt": prompt, "max_tokens": 40, "temperature": 0, "seed": 5, "receipt": True, **fields}
    return json.loads(ask(server, "/v1/completions", body))


def streamed(server, prompt, **fields):
    body = {"prompt": prompt, "max_tokens": 40, "temperature": 0, "stream": True, **fields}
    lines = [line[6:] for line in ask(server, "/v1/completions", body).splitlines() if line.startswith("data: ")]
    return "".join(choice["text"] for line in lines if line != "[DONE]" for choice in json.loads(line)["choices"])


def said(answer):
    choice = answer["choices"][0]
    return choice["text"], choice["finish_reason"], answer["usage"]["completion_tokens"]


class Guesses(CliTest):
    def start(self, *flags):
        server = Serving("-t", "1", *flags)
        self.addCleanup(server.stop)
        return server

    def counters(self, server):
        lines = [line for line in ask(server, "/metrics", None).splitlines() if line.startswith(("tyto_drafted", "tyto_decode_calls"))]
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    def test_answers_are_the_same_with_guesses_of_either_kind(self):
        plain, lookup, draft = self.start(), self.start("--speculate", "lookup"), self.start("--draft", str(OWLET))
        # The model as a draft of itself says what it will say. A server's first request tries that, however long it takes.
        own = complete(draft, AGAIN, max_tokens=64)["receipt"]["speculation"]
        self.assertGreater(own["accepted"], 0)
        self.assertEqual(own["source"], str(OWLET))
        ways = [{}, {"temperature": 0.9}, {"stop": [" the"]}, {"max_tokens": 1}, {"logprobs": 2}]
        for prompt in PROMPTS:
            for fields in ways:
                expected = complete(plain, prompt, **fields)
                self.assertNotIn("speculation", expected["receipt"])
                for server in (lookup, draft):
                    answer = complete(server, prompt, **fields)
                    self.assertEqual(said(answer), said(expected), (prompt, fields))
                    self.assertEqual(answer["choices"][0].get("logprobs"), expected["choices"][0].get("logprobs"))
                    counted, tokens = answer["receipt"]["speculation"], answer["receipt"]["decoded_tokens"]
                    self.assertEqual(counted["calls"] + counted["accepted"], tokens)
                    self.assertLessEqual(counted["accepted"], counted["drafted"])
            self.assertEqual(streamed(lookup, prompt), streamed(plain, prompt))

    def test_requests_that_run_together_get_what_they_get_alone(self):
        plain, lookup = self.start(), self.start("--speculate", "lookup")
        expected = [said(complete(plain, prompt)) for prompt in PROMPTS]
        for _ in range(2):
            answers = [None] * len(PROMPTS)

            def one(i):
                answers[i] = said(complete(lookup, PROMPTS[i]))
            threads = [threading.Thread(target=one, args=(i,)) for i in range(len(PROMPTS))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
            self.assertEqual(answers, expected)

    def test_metrics_count_what_receipts_count(self):
        server = self.start("--speculate", "lookup")
        receipts = [complete(server, prompt, max_tokens=64)["receipt"]["speculation"] for prompt in PROMPTS]
        counted = self.counters(server)
        accepted, drafted = (sum(each[field] for each in receipts) for field in ("accepted", "drafted"))
        self.assertEqual(counted['tyto_drafted_tokens_total{accepted="true",model="owlet"}'], accepted)
        self.assertEqual(counted['tyto_drafted_tokens_total{accepted="false",model="owlet"}'], drafted - accepted)
        self.assertEqual(counted['tyto_decode_calls_total{model="owlet"}'], sum(each["calls"] for each in receipts))
        self.assertEqual(self.counters(self.start()), {})

    def test_a_device_that_takes_one_row_at_a_time_says_so(self):
        server = self.start("--speculate", "lookup", "--device", "vnpu", "--prompt-rows", "64")
        receipt = complete(server, "Once upon a time", max_tokens=4)["receipt"]
        self.assertEqual((receipt["speculation"]["drafted"], receipt["speculation"]["accepted"]), (0, 0))
        self.assertTrue(any("checks drafted tokens one by one" in line for line in receipt["fallbacks"]), receipt["fallbacks"])

    def test_what_cannot_guess_is_refused(self):
        serve = ("serve", "--config", "none", "--port", "0")
        self.check_error(tyto(*serve, "--speculate", "oracle"), 2, "--speculate")
        self.check_error(tyto(*serve, "--draft", self.model, "--speculate", "lookup"), 2, "--draft", "--speculate")
        self.check_error(tyto(*serve, "--draft-max", "4"), 2, "--draft-max")
        result = tyto(*serve, "-m", OWLET, "--draft", self.model)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("cannot draft for this model", result.stderr)


if __name__ == "__main__":
    main()
