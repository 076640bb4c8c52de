#!/usr/bin/env python3
"""Secrets come in by many ways: none of them comes out again."""
import http.client
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlparse

from harness import CliTest, main, tyto, write_tree
from hub import Hub
from serving import Serving

# One of each way in; each is looked for in everything that comes out.
IN_FLAG, IN_ONE_WORD, IN_QUOTES = "flag-s3cret-one", "word-s3cret-two", "[quoted 's3cret' three]"
IN_CONFIG, IN_KEY_FILE, IN_ADDRESS = "config-s3cret-four", "keyfile-s3cret-five", "addr3ss-s3cret-six"
IN_VARIABLE, IN_PROXY, IN_TOKEN_FILE = "hf_variables3cretseven1", "pr0xy-s3cret-eight", "tokenfile-s3cret-nine"
IN_BEARER, IN_X_API_KEY, IN_COOKIE = "bearer-s3cret-ten", "xapikey-s3cret-eleven", "cookie-s3cret-twelve"
IN_QUERY, IN_SIGNATURE = "query-s3cret-thirteen", "signature-s3cret-fourteen"
SECRETS = [value for name, value in globals().items() if name.startswith("IN_")]

GETS = ("/health", "/v1/models", "/props", "/slots", "/metrics", "/doctor", "/plan", "/v1/receipts", "/api/version",
        "/api/tags", "/api/ps", f"/nothing?api_key={IN_QUERY}", f"/v1/receipts/none?token={IN_QUERY}",
        f"/v1/models/none?key={IN_QUERY}")
ADDRESS = f"http://name:{IN_ADDRESS}@127.0.0.1:1/a?X-Signature={IN_SIGNATURE}"


class SecretsTest(CliTest):
    def check_hidden(self, text, where):
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        for secret in SECRETS:
            for form in (secret, json.dumps(secret)[1:-1], secret.replace("'", "&#39;"), secret.replace("'", "'\\''")):
                self.assertNotIn(form, text, where)

    def environment(self, hub):
        proxies = {name: f"http://name:{IN_PROXY}@127.0.0.1:1" for name in ("http_proxy", "https_proxy", "all_proxy")}
        return {**proxies, "no_proxy": "127.0.0.1,127.0.0.2", "HF_TOKEN": IN_VARIABLE, "HF_HUB_CACHE": "",
                "HF_TOKEN_PATH": "", "HF_HOME": tempfile.mkdtemp(dir=self.work), "HF_ENDPOINT": hub.url() if hub else ADDRESS}


class Served(SecretsTest):
    def ask(self, server, method, path, body=None, **headers):
        place = urlparse(server.url)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=120)
        connection.request(method, path, None if body is None else json.dumps(body),
                           {"Cookie": IN_COOKIE, "Proxy-Authorization": f"Basic {IN_COOKIE}", **headers})
        answer = connection.getresponse()
        text = answer.read().decode()
        self.check_hidden(f"{answer.getheaders()}\n{text}", f"{method} {path}")
        connection.close()
        return answer.status, text

    def check_server(self, server, key):
        """Asks for everything, in both ways to give a key, and with keys that are wrong."""
        request = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "receipt": True, "profile": True}
        headers = {"Authorization": f"Bearer {key}"}
        ids = []
        for more in ({}, {"stream": True}, {"temperature": -1}, {"model": "none"}):
            status, text = self.ask(server, "POST", "/v1/chat/completions", {**request, **more}, **headers)
            self.assertEqual(status == 200, not more.keys() & {"temperature", "model"}, text)
            ids += [json.loads(text)["id"]] if not more else []
        self.ask(server, "POST", "/api/generate", {"prompt": "Hi", "options": {"num_predict": 2}}, **headers)
        self.ask(server, "POST", "/api/show", {"model": "tiny"}, **headers)
        self.ask(server, "POST", "/v1/chat/completions", "no object", **headers)
        shown = ""
        for path in (*GETS, *(f"/v1/receipts/{ids[0]}{part}" for part in ("", "/profile.json", "/profile.html", "/dataflow.svg"))):
            shown += self.ask(server, "GET", path, **{"x-api-key": key})[1]
            for wrong in ({}, {"Authorization": f"Bearer {IN_BEARER}"}, {"x-api-key": IN_X_API_KEY},
                          {"Authorization": f"Basic {IN_BEARER}"}):
                self.assertIn(self.ask(server, "GET", path, **wrong)[0], (200, 401))
        self.ask(server, "PATCH", "/props", **headers)
        return shown

    def check_process(self, server):
        self.check_hidden(Path(f"/proc/{server.process.pid}/cmdline").read_bytes(), "/proc/PID/cmdline")
        self.check_hidden(subprocess.run(["ps", "-o", "args=", "-p", str(server.process.pid)], capture_output=True).stdout, "ps")

    def start(self, *flags, config="none"):
        os.environ.update(self.environment(None))
        server = Serving("--chat-template", "chatml", *flags, models=(f"tiny={self.model}",), config=config)
        self.addCleanup(server.stop)
        return server

    def setUp(self):
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))

    def test_keys_of_the_command_line_are_in_nothing_that_comes_out(self):
        key_file = self.work / "keys"
        key_file.write_text(f"\n{IN_KEY_FILE}\n")
        server = self.start("--api-key", IN_FLAG, f"--api-key={IN_ONE_WORD}", "--api-key", IN_QUOTES,
                            "--api-key-file", str(key_file), "--allow-origin", ADDRESS)
        for key in (IN_FLAG, IN_ONE_WORD, IN_QUOTES, IN_KEY_FILE):
            self.assertEqual(self.ask(server, "GET", "/v1/models", Authorization=f"Bearer {key}")[0], 200)
        shown = self.check_server(server, IN_QUOTES)
        self.check_process(server)
        self.assertEqual(shown.count(f"--api-key *** --api-key=*** --api-key *** --api-key-file {key_file} --allow-origin "
                                     "'http://***@127.0.0.1:1/a?***'"), 5)  # the receipt, the profile and its page twice
        server.process.send_signal(signal.SIGHUP)  # which reads the arguments again
        server.wait_for_log("configuration read again; changed: nothing")
        self.assertEqual(server.stop(), 0)
        self.check_hidden("".join(server.log), "the log")

    def test_keys_of_the_configuration_are_in_nothing_that_comes_out(self):
        config = self.work / "config.toml"
        config.write_text(f'[serve]\napi-key = ["{IN_CONFIG}"]\n')
        server = self.start(config=config)
        self.check_server(server, IN_CONFIG)
        self.check_process(server)
        for count, bad in enumerate((f"api-key = [{IN_CONFIG}]", f"api-key = t{IN_CONFIG}", f'api-key = "{IN_CONFIG}', f'key = "{IN_CONFIG}"',
                    f'api-key = "{IN_CONFIG}"\nqueue = "many"'), 1):
            config.write_text(f"[serve]\n{bad}\n")
            server.process.send_signal(signal.SIGHUP)
            server.wait_for_log("the configuration stays as it was", count)
        self.assertEqual(server.stop(), 0)
        self.check_hidden("".join(server.log), "the log")


class Written(SecretsTest):
    def check(self, *args, code=0, environment=None):
        result = tyto(*args, environment=environment)
        self.check_hidden(result.stdout + result.stderr, args)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def test_errors_of_the_command_line(self):
        for words in (("--api-key",), ("--api-key=", IN_FLAG),
                      (f"--api-key:{IN_FLAG}",), (f"--api-key {IN_FLAG}",), (f"api-key={IN_FLAG}",), (f"--api-kye={IN_FLAG}",), ("--api-kye", IN_FLAG), (f"-api-key={IN_FLAG}",), ("-api-key", IN_FLAG),
                      ("--api-key", IN_FLAG, "--queue", "many"), ("--token", IN_FLAG), (f"--hf-token={IN_FLAG}",),
                      ("--api-key", IN_FLAG, "--host", "nowhere.invalid", "--insecure")):
            self.check("serve", "--config", "none", *words, code=2)
        for word in (ADDRESS, IN_VARIABLE):  # a word is a model, and there is none of this name
            self.check("serve", "--config", "none", word, code=1)
        self.check("serve", "--config", "none", "-m", ADDRESS, code=1)
        self.check("run", "-m", ADDRESS, "-p", "Hi", code=1)
        for long in (f"http://name:{IN_ADDRESS * 20}@host/x", f"http://host/x?sig={IN_SIGNATURE * 20}"):
            self.check("pull", long, code=2)

    def test_errors_of_the_configuration(self):
        config = self.work / "bad.toml"
        for text in (f"api-key = {IN_CONFIG}", f"api-key = t{IN_CONFIG}", "api-key = 1234567890123456789012345", "api-key = [fs3cret",
                     f'api-key = "{IN_CONFIG}', f'api-key = "{IN_CONFIG}\\q"', f'"api-key" "{IN_CONFIG}"', f'api-key = "{IN_CONFIG}" x'):
            config.write_text(f"[serve]\n{text}\n")
            result = self.check("serve", "--config", config, code=2)
            for piece in ("1234567", "fs3c", "tconf"):
                self.assertNotIn(piece, result.stderr)

    def test_receipts_profiles_and_results(self):
        def written(name):
            return self.work / f"out-{name}"
        model = ("-m", self.model)
        self.check("run", *model, "--raw", "-p", ADDRESS, "-n", "2", "--receipt", written("receipt.json"))
        self.check("run", *model, "--raw", "-p", "Hi", "-n", "2", "--stop", f"Authorization: Bearer {IN_BEARER}",
                   "--receipt", written("stop.json"))
        self.assertIn("--stop 'Authorization: ***'", json.loads(written("stop.json").read_text())["command"])
        self.check("profile", *model, "--raw", "-p", ADDRESS, "-n", "2", "--json", written("profile.json"), "--html",
                   written("profile.html"), "--perfetto", written("perfetto.json"))
        self.check("bench", *model, "-p", "8", "-n", "0", "-r", "1")
        ledger = Path(os.environ["XDG_STATE_HOME"]) / "tyto/results.jsonl"
        first = json.loads(ledger.read_text().splitlines()[0])["id"]
        self.check("results", "supersede", first, "--why", f"see {ADDRESS}")
        for path in (*self.work.glob("out-*"), ledger):
            self.check_hidden(path.read_text(), path)

    def test_what_explains_and_compares(self):
        model = ("-m", self.model)
        self.check("diagnose", *model, "-p", ADDRESS, "-n", "1", "--json", self.work / "diagnosis.json", "--html",
                   self.work / "diagnosis.html")
        self.check("verify", *model, "-p", ADDRESS, "-n", "2", "--json", self.work / "verification.json")
        doctor = tyto("doctor", "-m", ADDRESS, "--report", self.work / "doctor.json", environment=self.environment(None))
        self.check_hidden(doctor.stdout + doctor.stderr, "doctor")
        for name in ("diagnosis.json", "diagnosis.html", "verification.json", "doctor.json"):
            self.check_hidden((self.work / name).read_text(), name)

    def test_what_earlier_versions_wrote(self):
        profile, receipt = self.work / "old-profile.json", self.work / "old-receipt.json"
        self.check("profile", "-m", self.model, "-p", "Hi", "-n", "2", "--json", profile)
        self.check("run", "-m", self.model, "-p", "Hi", "-n", "2", "--receipt", receipt)
        command = f"tyto serve --api-key {IN_FLAG} --api-key={IN_ONE_WORD} --allow-origin '{ADDRESS}'"
        old = json.loads(profile.read_text())
        old["facts"].update(command=command, prompt=f"see {ADDRESS}", model=ADDRESS)
        old["runs"][0]["answer"] = f"Authorization: Bearer {IN_BEARER}"
        profile.write_text(json.dumps(old))
        old = json.loads(receipt.read_text())
        old["command"] = command
        receipt.write_text(json.dumps(old))
        shown = self.check("receipt", "check", receipt, code=1)  # its hash is another's
        self.assertIn("--api-key *** --api-key=*** --allow-origin 'http://***@", " ".join(shown.stdout.split()))
        files = {flag: self.work / f"again{flag}" for flag in ("--json", "--html", "--perfetto")}
        self.check("profile", "--from", profile, *(word for pair in files.items() for word in pair))
        self.check("profile", "--from", profile)
        for path in files.values():
            self.assertIn("--api-key *** --api-key=***", path.read_text())
            self.check_hidden(path.read_text(), path)

    def test_commands_that_power_measures(self):
        machine = write_tree(self.work / "machine", {"sys/class/hwmon/hwmon2/name": "amdgpu\n", "sys/class/hwmon/hwmon2/power1_label": "PPT\n",
                                                     "sys/class/hwmon/hwmon2/power1_average": "13000000\n"})
        result = self.check("power", "--root", machine, "--idle", "0.1", "--settle", "0.01", "-r", "1", "--json", "--", "sh", "-c",
                            "exit 0", "sh", "--token", IN_FLAG, f"HF_TOKEN={IN_VARIABLE}", ADDRESS, f"X-Api-Key: {IN_X_API_KEY}")
        self.assertIn("--token *** HF_TOKEN=***", result.stdout)


class Pulled(SecretsTest):
    def pull(self, hub, code, **environment):
        result = tyto("pull", "org/model", "--retries", "0", "--timeout", "5",
                      environment={**self.environment(hub), **environment})
        self.check_hidden(result.stdout + result.stderr, environment)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def test_answers_of_the_hub(self):
        token_file = self.work / "token"
        token_file.write_text(IN_TOKEN_FILE)
        for token in ({}, {"HF_TOKEN": "", "HF_TOKEN_PATH": str(token_file)}):
            value = IN_TOKEN_FILE if token else IN_VARIABLE
            with Hub({"m.gguf": b"GGUF" * 100}) as hub:
                for status in (401, 404, 418, 500):
                    for at in ("api", "resolve", "cdn"):
                        known = "the token" if at == "cdn" else value  # which the other host has never seen
                        hub.fault(at, status, X_Error_Message=f"{known} is no good; Authorization: Bearer {known}, see {ADDRESS}")
                        self.pull(hub, 1, **token)
                for place in (ADDRESS, ADDRESS.replace("http:", "ftp:"), f"ftp://x/?sig={IN_SIGNATURE}", f"//name:{IN_ADDRESS}@"):
                    hub.fault("resolve", 302, Location=place)
                    self.pull(hub, 1, **token)
                self.assertEqual(hub.tokens("hub"), {f"Bearer {value}"})
                self.assertEqual(self.pull(hub, 0, **token).returncode, 0)

    def test_addresses_of_the_environment(self):
        with Hub({"m.gguf": b"GGUF" * 100}) as hub:
            for proxy in (f"http://name:{IN_PROXY}@127.0.0.1:1", f"name:{IN_PROXY}@127.0.0.1:1", f"name:{IN_PROXY} /x@127.0.0.1:x",
                          f"socks9://name:{IN_PROXY}@127.0.0.1:1", f"http://name:{IN_PROXY}/'y@127.0.0.1:1", f"http://name:{IN_PROXY}@[x"):
                self.pull(hub, 1, http_proxy=proxy, no_proxy="")
            for endpoint in (ADDRESS, f"name:{IN_ADDRESS}@host", f"https://{IN_ADDRESS}@host", f"https://name:{IN_ADDRESS} x@host",
                             f"name:{IN_ADDRESS}'x@host", f"name:{IN_ADDRESS * 20}@host", f"name@host/x?sig={IN_SIGNATURE}"):
                self.pull(hub, 2, HF_ENDPOINT=endpoint)
            self.pull(hub, 2, HF_TOKEN=f"two {IN_VARIABLE}")


if __name__ == "__main__":
    main()
