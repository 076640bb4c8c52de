#!/usr/bin/env python3
"""`tyto serve` from its flags to its end: who may ask, which model answers, what happens when a device fails."""
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
import types
from datetime import datetime
from pathlib import Path
from urllib.parse import urlparse

from harness import FIXTURES, OWLET, TYTO, CliTest, main, tyto
from nginx import free_port
from serving import Serving


def ask(server, method, path, body=None, headers=None):
    place = urlparse(server.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    connection.request(method, path, json.dumps(body) if body is not None else None, headers or {})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, json.loads(text) if text.startswith(("{", "[")) else text


def read_until(descriptor, end, longest_s=60):
    """What comes out of a pipe that does not block, to these bytes."""
    text, until = b"", time.monotonic() + longest_s
    while end not in text and time.monotonic() < until:
        try:
            text += os.read(descriptor, 10000)
        except BlockingIOError:
            pass
        time.sleep(0.01)
    return text


def fill(pipe):
    """Writes into a pipe until it takes no more; returns how many bytes."""
    other, count = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK), 0
    try:
        while True:
            count += os.write(other, b"x" * 4096)
    except BlockingIOError:
        os.close(other)
    return count


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
        result = self.serve("-m", f"first={OWLET}", "-m", f"second={self.model}", "-c", "100000")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("tyto: first: -c 100000: ", result.stderr)

    def test_a_port_that_is_taken_is_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            self.check_error(tyto("serve", "--config", "none", "--port", port), 1, port)


class Served(CliTest):
    def start(self, *flags, **settings):
        server = Serving(*flags, **settings)
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

    def test_a_configuration_that_is_refused_changes_nothing(self):
        config, key_file = self.work / "config.toml", self.work / "later"
        def reload(text, said):
            config.write_text("[serve]\n" + text)
            times = "".join(server.log).count(said) + 1
            server.process.send_signal(signal.SIGHUP)
            server.wait_for_log(said, times)
        def status(key):
            return ask(server, "GET", "/v1/models", headers={"Authorization": "Bearer " + key})[0]
        config.write_text('[serve]\napi-key = "first-long-key"\n')
        server = self.start(models=(f"tiny={self.model}",), config=config)
        refused = "(the configuration stays as it was)"
        changed = f'api-key = "second-long-key"\nqueue = 3\napi-key-file = "{key_file}"\n'
        reload(changed, refused)
        reload('api-key = "second-long-key"\ntimeout = "soon"\n', refused)
        reload('api-key = "short"\n', refused)
        self.assertEqual((status("first-long-key"), status("second-long-key")), (200, 401))
        reload('api-key = "first-long-key"\n', "changed: nothing")
        reload(changed, refused)
        key_file.write_text("third-long-key\n")
        reload(changed, "changed: --api-key, --api-key-file, --queue")
        self.assertEqual([status(f"{word}-long-key") for word in ("first", "second", "third")], [401, 200, 200])
        reload(changed, "changed: nothing")

    def test_a_log_that_cannot_be_written_ends_nothing(self):
        pipe, config = self.work / "pipe", self.work / "log.toml"
        os.mkfifo(pipe)
        collector = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        log = os.open(pipe, os.O_WRONLY)
        full = os.open("/dev/full", os.O_WRONLY)
        unread_end, unread = os.pipe()
        os.set_blocking(unread_end, False)
        for stderr in (full, None, log, unread):  # None: closed
            port, keys = free_port(), iter(range(100))
            config.write_text("[serve]\n")
            config.chmod(0o600)
            process = subprocess.Popen([TYTO, "serve", "-m", str(self.model), "--port", str(port), "--config", str(config)],
                                       stderr=stderr, preexec_fn=(lambda: os.close(2)) if stderr is None else None)
            self.addCleanup(process.wait, 60)
            self.addCleanup(process.kill)
            server = types.SimpleNamespace(url=f"http://127.0.0.1:{port}", process=process)

            def wait_for(status, path, **headers):
                for _ in range(1200):
                    self.assertIsNone(process.poll())
                    try:
                        if ask(server, "GET", path, headers=headers)[0] == status:
                            return
                    except ConnectionRefusedError:
                        pass
                    time.sleep(0.05)
                self.fail(f"{path} was never answered with {status}")

            def reload():
                key = f"another-long-key-{next(keys)}"
                config.write_text(f'[serve]\napi-key = "{key}"\n')
                process.send_signal(signal.SIGHUP)
                wait_for(401, "/v1/models", Authorization="Bearer no-key-of-this-server")
                wait_for(200, "/v1/models", Authorization="Bearer " + key)
                return {"Authorization": "Bearer " + key}

            wait_for(200, "/health")
            if stderr == log:
                self.assertIn(b"ready in", read_until(collector, b"ready in"))
                os.close(collector)
            if stderr == unread:
                self.assertIn(b"ready in", read_until(unread_end, b"ready in"))
                filled = fill(unread)
            stream = self.begin_stream(server)
            reload()
            headers = reload()  # the line about the first was tried before this one was read
            self.assertTrue(stream.readline())  # which goes on
            stream.close()
            self.assertEqual(ask(server, "POST", "/v1/completions", {"prompt": "Once", "max_tokens": 2}, headers)[0], 200)
            if stderr == unread:
                collector = unread_end
                while filled > 0:
                    filled -= len(os.read(collector, filled))
            if stderr == log:
                collector = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
            if stderr in (log, unread):
                reload()
                self.assertRegex(read_until(collector, b"--api-key\n"), rb"\n\(lines that could not be written: [12]\)\n"
                                 rb"configuration read again; changed: --api-key\n")
            process.terminate()
            self.assertEqual(process.wait(60), 0)
        for descriptor in (collector, log, full, unread):
            os.close(descriptor)

    def test_as_many_files_as_the_machine_allows(self):
        def limited(soft, hard):
            return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        tiny = (f"tiny={self.model}",)
        server = self.start("--connections", "200", models=tiny, limit=limited(100, 400))
        limits = Path(f"/proc/{server.process.pid}/limits").read_text()
        self.assertRegex(limits, r"Max open files +400 +400 ")
        self.assertNotIn("files", "".join(server.log))
        place = urlparse(server.url)
        connections = [socket.create_connection((place.hostname, place.port), timeout=60) for _ in range(150)]
        self.assertEqual(complete(server, max_tokens=1)[0], 200)
        for connection in connections:
            connection.close()
        server = self.start(models=tiny, limit=limited(100, 400))
        said = [line for line in server.log if "--connections 2048" in line]
        self.assertEqual(len(said), 1, server.log)
        self.assertIn("may open 400 files", said[0])

    def test_health_answers_while_the_workers_are_busy(self):
        server = self.start("--workers", "1", "--api-key", "a-long-key")
        key = {"Authorization": "Bearer a-long-key"}
        done = []

        def ask_for_much():
            texts = [{"role": "user", "content": "<|x" * 500_000}] * 8
            done.append(ask(server, "POST", "/v1/chat/completions", {"messages": texts}, key)[0])

        busy = [threading.Thread(target=ask_for_much) for _ in range(2)]
        busy += [threading.Thread(target=lambda: done.append(ask(server, "GET", "/doctor", headers=key)[0])) for _ in range(2)]
        for thread in busy:
            thread.start()
        asked = 0
        while not done and asked < 500:  # none of these waits for one of those
            self.assertEqual(ask(server, "GET", ("/health", "/v1/health")[asked % 2]), (200, {"status": "ok"}))
            asked += 1
        self.assertGreater(asked, 2)
        for thread in busy:
            thread.join(120)
        self.assertEqual(sorted(done), [200, 200, 400, 400])

    def test_ollamas_paths_answer_its_errors(self):
        server = self.start("--api-key", "a-long-key", "--max-body", "1M")
        key = {"Authorization": "Bearer a-long-key"}
        for path in ("/api/tags", "/api/chat", "/api/generate", "/api/embed", "/api/nowhere"):
            for status, headers, body in ((401, {}, {}), (421, {"Host": "evil.example", **key}, {}), (413, key, {"x": "x" * 2_000_000}),
                                          (404, key, {"model": "none"})):
                method = "GET" if path == "/api/tags" else "POST"
                found, answer = ask(server, method, path, body, headers)
                if path == "/api/tags" and status == 404:
                    continue
                self.assertEqual(found, status, path)
                self.assertIsInstance(answer["error"], str, path)

    def test_ollamas_list_says_what_the_file_is(self):
        quantized = self.work / "small.gguf"
        made = tyto("synth", "--shape", "tiny", "--type", "q4_k_m", "-o", quantized)
        self.assertEqual(made.returncode, 0, made.stderr)
        server = self.start("--keep-alive", "1h", models=(f"small={quantized}", f"tagged:1b={self.model}"))
        small, tagged = ask(server, "GET", "/api/tags")[1]["models"]
        self.assertEqual((small["name"], small["model"], tagged["name"]), ("small:latest", "small:latest", "tagged:1b"))
        self.assertEqual((small["details"]["quantization_level"], small["details"]["format"]), ("Q4_K_M", "gguf"))
        self.assertRegex(small["digest"], "^[0-9a-f]{64}$")
        self.assertNotEqual(small["digest"], tagged["digest"])
        modified = datetime.fromisoformat(small["modified_at"].replace("Z", "+00:00")).timestamp()
        self.assertEqual(int(modified), int(quantized.stat().st_mtime))
        left = datetime.fromisoformat(ask(server, "GET", "/api/ps")[1]["models"][0]["expires_at"].replace("Z", "+00:00")).timestamp() - time.time()
        self.assertTrue(0 < left < 3602, left)

    def test_two_models_by_name(self):
        server = self.start("--keep-alive", "1h", models=(f"owlet={OWLET}", f"other={self.model}"))
        self.assertEqual([m["id"] for m in ask(server, "GET", "/v1/models")[1]["data"]], ["owlet", "other"])
        for name, expected in ((None, "owlet"), ("other", "other")):
            status, answer = complete(server, **({"model": name} if name else {}))
            self.assertEqual((status, answer["model"]), (200, expected))
        self.assertEqual(complete(server, model="third")[0], 404)

    def test_a_profile_has_the_events_of_tyto_profile(self):
        def kinds_of(profile):
            return {(profile["event_kinds"][event[0]], profile["names"][event[1]][0]) for event in profile["runs"][0]["events"]}

        server = self.start()
        answer = complete(server, profile=True)[1]
        served = kinds_of(ask(server, "GET", "/v1/receipts/" + answer["id"] + "/profile.json")[1])
        alone = tyto("profile", "-m", self.model, "--raw", "Once upon a time", "-n", 8, "--temp", 0, "--json")
        self.assertLessEqual({("host", "sample"), ("host", "detokenize"), ("host", "output")}, served)
        # A worker of the server makes tokens of the prompt, before the request is recorded.
        self.assertEqual(served, kinds_of(json.loads(alone.stdout)) - {("host", "tokenize")})

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

    def wait_unloaded(self, server):
        for _ in range(600):
            if not any(model["loaded"] for model in ask(server, "GET", "/props")[1]["models"]):
                return
            time.sleep(0.05)
        self.fail("a model was never unloaded")

    def test_an_idle_model_is_unloaded_and_answers_again(self):
        server = self.start("--keep-alive", "10ms")
        self.wait_unloaded(server)
        self.assertEqual(complete(server)[0], 200)

    def test_a_model_that_cannot_be_loaded_again_is_the_servers_fault_and_ends_nothing(self):
        folder = self.work / "changing"
        shutil.copytree(OWLET, folder)
        server = self.start("--keep-alive", "10ms", models=(f"owlet={folder}", f"other={self.model}"))
        vocabulary = folder / "tokenizer.json"
        kept = vocabulary.read_bytes()
        for spoil in (lambda: vocabulary.symlink_to("tokenizer.json"), lambda: None, lambda: vocabulary.write_text("{")):
            self.wait_unloaded(server)
            vocabulary.unlink()
            spoil()
            for path, body in (("/v1/completions", {"prompt": "Once"}), ("/v1/embeddings", {"input": "a fox"})):
                status, answer = ask(server, "POST", path, body)
                self.assertEqual((status, answer["error"]["type"]), (500, "server_error"), answer)
                self.assertIn("owlet: cannot be loaded again: ", answer["error"]["message"])
            self.assertEqual(complete(server, model="other")[0], 200)
            vocabulary.unlink(missing_ok=True)
            vocabulary.write_bytes(kept)
            self.assertEqual(complete(server)[0], 200)

    def begin_stream(self, server, **fields):
        """A stream that goes on for long, at its first event; `rest()` is all that comes after it."""
        place = urlparse(server.url)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
        self.addCleanup(connection.close)
        body = {"prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "stream": True, **fields}
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        self.assertTrue(response.readline().startswith(b"data: "))
        return response

    def test_a_batch_is_taken_as_a_whole_or_not_at_all(self):
        server = self.start("--slots", "2", "--queue", "3")
        for fields in ({"n": 16}, {"prompt": ["a", "b", "c"], "n": 2}, {"prompt": list("abcdef")}):
            status, answer = complete(server, **fields)
            self.assertEqual((status, answer["error"]["type"]), (400, "invalid_request_error"), answer)
            self.assertRegex(answer["error"]["message"], r"asks for (16|6) answers, and 5 may")
        stream = self.begin_stream(server)
        status, answer = complete(server, prompt=list("abcde"), max_tokens=200)
        self.assertEqual((status, answer["error"]["code"]), (429, "too_many_requests"), answer)
        self.assertEqual(complete(server, max_tokens=2)[0], 200)  # which the batch does not shut out
        self.assertEqual(complete(server, prompt=list("abcd"), max_tokens=2)[0], 200)
        stream.close()
        # What was refused has left no receipts.
        tokens = [receipt["generated_tokens"] for receipt in ask(server, "GET", "/v1/receipts")[1]["receipts"]]
        self.assertEqual(sorted(tokens)[:5], [2] * 5)
        self.assertLessEqual(len(tokens), 6)

    def test_an_embedding_has_a_deadline_and_streams_go_on_beside_it(self):
        server = self.start()
        stream = self.begin_stream(server)
        tokens = [7] * 2000
        status, answer = ask(server, "POST", "/v1/embeddings", {"input": [tokens] * 64}, {"x-request-timeout": "0.2"})
        self.assertEqual((status, answer["error"]["code"]), (504, "timeout"), answer)
        self.assertTrue(stream.readline())
        stream.close()

    def test_when_the_drain_is_over_all_clients_are_told(self):
        server = self.start("--slots", "1", "--drain", "200ms")
        stream = self.begin_stream(server)
        waiting = []
        thread = threading.Thread(target=lambda: waiting.append(complete(server, prompt="Twice")))
        thread.start()
        for _ in range(600):
            if len(ask(server, "GET", "/slots")[1]) == 2:
                break
            time.sleep(0.02)
        server.process.send_signal(signal.SIGTERM)
        text = stream.read()
        last = json.loads(text.rstrip().rpartition(b"data: ")[2])
        self.assertEqual(last["error"]["type"], "server_error", last)
        thread.join(60)
        self.assertEqual(waiting[0][0], 503, waiting)
        self.assertEqual(server.process.wait(60), 1)
        self.assertIn("stopped before all requests were finished", "".join(server.log))


# Its prompt ends inside a thought; tools are named, and calls are written as Hermes and Qwen write them.
THINKING_TEMPLATE = """{%- for t in tools or [] -%}{{ t.function.name }}{%- endfor -%}
{%- for m in messages -%}{{ m.content }}
{%- for c in m.tool_calls or [] %}<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>
{%- endfor %}{%- endfor %}{{ prompt_end | default("<think>\\n") }}"""
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"x": {"const": 1}}, "required": ["x"], "additionalProperties": False}}}]
SCHEMA = {"type": "object", "properties": {"x": {"const": 1}}, "required": ["x"], "additionalProperties": False}


class Templates(CliTest):
    def test_a_template_for_tools_that_cannot_be_read_is_missed_by_tools_alone(self):
        folder = self.work / "templates"
        shutil.copytree(OWLET, folder)
        config = json.loads((folder / "tokenizer_config.json").read_text())
        config["chat_template"] = [{"name": "default", "template": config["chat_template"]}, {"name": "tool_use", "template": "{% if %}"}]
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        server = Serving(models=(f"m={folder}",))
        self.addCleanup(server.stop)
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        self.assertEqual(ask(server, "POST", "/v1/chat/completions", body)[0], 200)
        status, answer = ask(server, "POST", "/v1/chat/completions", {**body, "tools": TOOLS})
        self.assertEqual((status, answer["error"]["param"]), (400, "tools"), answer)
        self.assertIn("an expression is missing", answer["error"]["message"])


class Thoughts(CliTest):
    """With a vocabulary that has <think> and </think>, and a bias that writes them as soon as it may."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        template = cls.work / "think.jinja"
        template.write_text(THINKING_TEMPLATE)
        cls.server = Serving("--chat-template", str(template), models=(f"m={FIXTURES / 'qwen3' / 'model'}",))
        added = json.loads((FIXTURES / "qwen3" / "model" / "tokenizer.json").read_text())["added_tokens"]
        cls.open, cls.close = ([str(t["id"]) for t in added if t["content"] == text][0] for text in ("<think>", "</think>"))

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        super().tearDownClass()

    def chat(self, path="/v1/chat/completions", **fields):
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40, "temperature": 0,
                "logit_bias": {self.close: 100}, **fields}
        status, answer = ask(self.server, "POST", path, body)
        self.assertEqual(status, 200, answer)
        return answer

    FORMATS = ({"response_format": {"type": "json_object"}},
               {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
               {"grammar": 'root ::= "{}"'}, {"json_schema": SCHEMA})

    def test_formats_hold_the_answer_and_not_the_thoughts(self):
        for fields in self.FORMATS[1:]:
            for end in ("<think>\n", ""):
                bias = {self.open: 90, self.close: 100}
                answer = self.chat(**fields, n=2, logit_bias=bias, chat_template_kwargs={"prompt_end": end})
                for choice in answer["choices"]:
                    self.assertEqual(choice["finish_reason"], "stop", answer)
                    json.loads(choice["message"]["content"])

    def test_the_model_may_answer_without_a_thought(self):
        for end in ("", "<think>\n\n</think>\n\n"):
            message = self.chat(grammar='root ::= "yes"', logit_bias={}, chat_template_kwargs={"prompt_end": end})["choices"][0]["message"]
            if end:
                self.assertEqual((message["content"], message.get("reasoning_content")), ("yes", None))
            else:
                self.assertIn(message["content"], ("yes", ""))

    def test_a_thought_that_does_not_end_leaves_no_answer(self):
        for fields in self.FORMATS:
            choice = self.chat(**fields, max_tokens=6, logit_bias={self.close: -100})["choices"][0]
            self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("length", ""))
            self.assertTrue(choice["message"]["reasoning_content"])

    def test_forced_calls_come_behind_the_thoughts(self):
        for choice in ("required", {"type": "function", "function": {"name": "f"}}):
            answer = self.chat(tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, max_tokens=100)["choices"][0]
            self.assertEqual(answer["finish_reason"], "tool_calls", answer)
            [call] = answer["message"]["tool_calls"]
            self.assertEqual((call["function"]["name"], json.loads(call["function"]["arguments"])), ("f", {"x": 1}))

    def test_a_call_that_is_cut_off_is_none(self):
        asked = {"tools": TOOLS, "tool_choice": "required", "chat_template_kwargs": {"prompt_end": "</think>"}}
        shown = 0
        for length in range(24, 40):
            answer = self.chat(**asked, max_tokens=length)["choices"][0]
            self.assertEqual(answer["finish_reason"], "length", answer)
            for call in answer["message"].get("tool_calls", []):
                self.assertIsInstance(json.loads(call["function"]["arguments"]), dict)
            _, pieces = ask(self.server, "POST", "/v1/chat/completions", {
                **asked, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": length, "temperature": 0, "stream": True})
            self.assertIn('"finish_reason":"length"', pieces)
            shown += '"arguments":"' in pieces
            ollama = self.chat("/api/chat", **asked, stream=False, options={"temperature": 0, "num_predict": length})
            self.assertEqual(ollama["done_reason"], "length", ollama)
            for call in ollama["message"].get("tool_calls", []):
                self.assertEqual(call["function"]["arguments"], {"x": 1})
        self.assertGreater(shown, 0)  # some of them did begin

    def test_ollamas_format(self):
        options = {"temperature": 0, "num_predict": 40, "logit_bias": {self.close: 100}}
        answer = self.chat("/api/chat", format=SCHEMA, options=options, stream=False)
        self.assertEqual((json.loads(answer["message"]["content"]), answer["done_reason"]), ({"x": 1}, "stop"), answer)
        answer = ask(self.server, "POST", "/api/generate", {"prompt": "Hi", "format": SCHEMA, "options": options, "stream": False})[1]
        self.assertEqual(json.loads(answer["response"]), {"x": 1}, answer)

    def test_run_writes_thoughts_to_stderr_and_the_answer_to_stdout(self):
        template, grammar = self.work / "run.jinja", self.work / "yes.gbnf"
        grammar.write_text('root ::= "yes"')
        template.write_text("{{ messages[0].content }}<think>x</think>")
        run = ["run", "-m", FIXTURES / "qwen3" / "model", "-p", "Hi", "--temp", "0", "-n", "20", "--chat-template", template]
        self.assertEqual(tyto(*run, "--grammar", grammar).stdout, "yes\n")
        template.write_text("{{ messages[0].content }}<think>")
        result = tyto(*run, "--grammar", grammar)
        # The thought takes all tokens, unless it ends by chance; an answer that is cut does not match the grammar.
        self.assertIn((result.returncode, result.stdout), ((1, "\n"), (0, "yes\n")), result.stderr)


class RawCompletions(CliTest):
    """A text goes on with the space that its first token has; SentencePiece alone drops it where a text begins."""

    def test_the_first_space_stays(self):
        folder, file = FIXTURES / "llama2" / "model", self.work / "llama2.gguf"
        made = tyto("quantize", "-m", folder, "-o", file, "--type", "f16")
        self.assertEqual(made.returncode, 0, made.stderr)
        vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
        forced = {"logit_bias": {str(vocabulary["\u2581the"]): 100}, "max_tokens": 2, "temperature": 0}
        for model in (folder, file):
            server = Serving("--chat-template", "zephyr", models=(f"m={model}",))
            self.addCleanup(server.stop)
            post = lambda path, **body: ask(server, "POST", path, {**forced, **body})[1]
            self.assertEqual(post("/v1/completions", prompt="in")["choices"][0]["text"], " the the")
            self.assertEqual(post("/v1/completions", prompt=[vocabulary["\u2581in"]])["choices"][0]["text"], " the the")
            self.assertEqual(post("/v1/completions", prompt="in", echo=True)["choices"][0]["text"], "in the the")
            self.assertEqual(post("/v1/completions", prompt="in", grammar='root ::= " the" " the"')["choices"][0]["text"], " the the")
            pieces = post("/v1/completions", prompt="in", stream=True)
            texts = [json.loads(line[6:])["choices"][0]["text"] for line in pieces.splitlines() if line.startswith("data: {")]
            self.assertEqual("".join(texts), " the the")
            options = {**forced, "num_predict": 2}
            self.assertEqual(post("/api/generate", prompt="in", raw=True, stream=False, options=options)["response"], " the the")
            # The answer to a chat begins a text, and so does one to nothing but BOS.
            self.assertEqual(post("/v1/completions", prompt="")["choices"][0]["text"], "the the")
            chat = post("/v1/chat/completions", messages=[{"role": "user", "content": "in"}])
            self.assertEqual(chat["choices"][0]["message"]["content"], "the the")
            free = ask(server, "POST", "/v1/completions", {"prompt": "in", "max_tokens": 6, "temperature": 0})[1]
            self.assertEqual(tyto("run", "-m", model, "--raw", "-p", "in", "-n", "6", "--temp", "0").stdout,
                             free["choices"][0]["text"] + "\n")


if __name__ == "__main__":
    main()
