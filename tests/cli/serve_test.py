#!/usr/bin/env python3
"""`tyto serve` from its flags to its end: who may ask, which model answers, what happens when a device fails."""
import http.client
import json
import signal
import socket
import threading
import time
from urllib.parse import urlparse

from harness import OWLET, CliTest, main, tyto
from serving import Serving


def ask(server, method, path, body=None, headers=None):
    place = urlparse(server.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    connection.request(method, path, json.dumps(body) if body is not None else None, headers or {})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, json.loads(text) if text.startswith(("{", "[")) else text


def complete(server, **fields):
    body = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "receipt": True, **fields}
    return ask(server, "POST", "/v1/completions", body)


class Flags(CliTest):
    def serve(self, *flags):
        return tyto("serve", "--config", "none", "--port", "0", *flags)

    def test_other_machines_need_a_key_or_the_word_insecure(self):
        self.check_error(self.serve("--host", "0.0.0.0"), 2, "--host 0.0.0.0", "--api-key-file")
        self.check_error(self.serve("--host", "0.0.0.0", "--insecure", "--api-key", "long-enough"), 2, "--insecure")
        self.check_error(self.serve("--insecure"), 2, "--insecure", "no effect")
        self.check_error(self.serve("--api-key", "short"), 2, "--api-key", "guessed")
        empty = self.work / "empty"
        empty.write_text("\n \n")
        self.check_error(self.serve("--api-key-file", empty), 2, "holds no key")

    def test_a_value_that_is_none_is_an_error(self):
        for flag in ("--timeout", "--keep-alive", "--drain"):
            self.check_error(self.serve(flag, "soon"), 2, flag, "30s")
        self.check_error(self.serve("--max-body", "lots"), 2, "--max-body")
        self.check_error(self.serve("-m", self.model, "-m", self.model), 2, "two models")
        self.check_error(self.serve("-m", "=x"), 2, "NAME=MODEL")

    def test_what_cannot_be_served_ends_the_program(self):
        for flags, code, word in ((("-m", self.work / "none.gguf"), 1, "none.gguf"), (("--require", "npu"), 3, "--require"),
                                  (("--device", "vnpu", "--require", "vnpu"), 3, "virtual")):
            result = self.serve(*flags)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn(word, result.stderr)

    def test_a_port_that_is_taken_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            self.check_error(tyto("serve", "--config", "none", "--port", port), 1, port)


class Served(CliTest):
    def start(self, *flags, models=(f"owlet={OWLET}",)):
        server = Serving(*flags, models=models)
        self.addCleanup(server.stop)
        return server

    def test_a_key_is_asked_for_but_not_by_health_and_the_page(self):
        key_file = self.work / "keys"
        key_file.write_text("first-long-key\nsecond-long-key\n")
        server = self.start("--api-key-file", str(key_file))
        self.assertEqual(ask(server, "GET", "/v1/models")[0], 401)
        self.assertEqual(ask(server, "GET", "/v1/models", headers={"Authorization": "Bearer first-long-kez"})[0], 401)
        for key in ("first-long-key", "second-long-key"):
            self.assertEqual(ask(server, "GET", "/v1/models", headers={"Authorization": "Bearer " + key})[0], 200)
        self.assertEqual(ask(server, "GET", "/health")[0], 200)
        self.assertEqual(ask(server, "GET", "/")[0], 200)
        self.assertNotIn("long-key", "".join(server.log))

    def test_two_models_by_name(self):
        server = self.start("--keep-alive", "1h", models=(f"owlet={OWLET}", f"other={self.model}"))
        self.assertEqual([m["id"] for m in ask(server, "GET", "/v1/models")[1]["data"]], ["owlet", "other"])
        for name, expected in ((None, "owlet"), ("other", "other")):
            status, answer = complete(server, **({"model": name} if name else {}))
            self.assertEqual((status, answer["model"]), (200, expected))
        self.assertEqual(complete(server, model="third")[0], 404)

    def test_the_receipt_is_kept_under_the_answers_id(self):
        server = self.start()
        status, answer = complete(server, profile=True)
        self.assertEqual(status, 200)
        self.assertEqual(ask(server, "GET", "/v1/receipts/" + answer["id"])[1], answer["receipt"])
        self.assertEqual(ask(server, "GET", "/v1/receipts/" + answer["id"] + "/profile.json")[1]["schema"][:12], "tyto-profile")
        self.assertIn("<svg", ask(server, "GET", "/v1/receipts/" + answer["id"] + "/dataflow.svg")[1])
        file = self.work / "receipt.json"
        file.write_text(json.dumps(answer["receipt"]))
        checked = tyto("receipt", "check", file)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_a_device_that_fails_is_finished_by_the_policy_and_the_receipts_tell(self):
        expected = complete(self.start("--device", "vnpu", "--slots", "3"))[1]["choices"][0]["text"]
        for policy, status in (("cpu", 200), ("retry", 200), ("fail", 500)):
            server = self.start("--device", "vnpu", "--slots", "3", "--vnpu-fault", "error@40", "--on-npu-error", policy)
            first_status, first = complete(server)
            self.assertEqual(first_status, status, first)
            if status == 200:
                self.assertEqual(first["receipt"]["recoveries"], 1)
                if policy == "retry":
                    self.assertEqual(first["choices"][0]["text"], expected)
            # The server lives, and the next request is its own.
            after_status, after = complete(server)
            self.assertEqual(after_status, 200, after)
            self.assertEqual(after["receipt"]["recoveries"], 0)
            listed = ask(server, "GET", "/v1/receipts")[1]["receipts"]
            self.assertEqual(listed[1]["badge"], "failed" if status == 500 else "fell back")

    def test_what_is_required_and_did_not_happen_is_an_error(self):
        server = self.start("--device", "vnpu", "--require", "cpu")
        status, answer = complete(server)
        self.assertEqual(status, 500)
        self.assertIn("--require cpu", answer["error"]["message"])
        self.assertEqual(ask(server, "POST", "/v1/embeddings", {"input": "a fox"})[0], 500)

    def test_sigterm_lets_an_answer_end_and_takes_no_more(self):
        server = self.start()
        place = urlparse(server.url)
        answered = {}
        begun = threading.Event()

        def stream():
            connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
            body = {"prompt": "Once", "max_tokens": 300, "ignore_eos": True, "stream": True}
            connection.request("POST", "/v1/completions", json.dumps(body))
            response = connection.getresponse()
            text = response.readline()
            begun.set()
            answered["text"] = text + response.read()
            connection.close()

        thread = threading.Thread(target=stream)
        thread.start()
        self.assertTrue(begun.wait(60))
        server.process.send_signal(signal.SIGTERM)
        thread.join(60)
        self.assertTrue(answered["text"].rstrip().endswith(b"[DONE]"))
        self.assertEqual(server.process.wait(60), 0)
        with self.assertRaises(OSError):
            socket.create_connection((place.hostname, place.port), timeout=5)

    def test_an_idle_model_is_unloaded_and_answers_again(self):
        server = self.start("--keep-alive", "10ms")
        for _ in range(600):
            if not ask(server, "GET", "/props")[1]["models"][0]["loaded"]:
                break
            time.sleep(0.05)
        else:
            self.fail("the model was never unloaded")
        self.assertEqual(complete(server)[0], 200)


if __name__ == "__main__":
    main()
