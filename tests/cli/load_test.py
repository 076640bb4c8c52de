#!/usr/bin/env python3
"""Many clients at once, and clients that go away: nothing is lost, and nothing stays behind.

LOAD_SECONDS=60 makes the load longer than it is in `make test`.
"""
import json
import os
import re
import socket
import subprocess
import time
import urllib.request
from urllib.parse import urlparse

from harness import CliTest, main
from serving import Serving

CONNECTIONS = 32
SECONDS = int(os.environ.get("LOAD_SECONDS", "4"))
ABORTED = 1000

# What the load generator asks for, one after the other.
BODIES = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 12}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "A fox."}], "max_tokens": 9, "stream": True}),
    ("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8, "n": 2, "logprobs": 3}),
    ("/v1/completions", {"prompt": "Once", "max_tokens": 6, "grammar": 'root ::= [a-z ]+'}),
    ("/v1/embeddings", {"input": "a fox and a lamp"}),
    ("/tokenize", {"content": "a fox and a lamp"}),
    ("/api/chat", {"model": "owlet", "messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 5}}),
    ("/v1/completions", {"prompt": 7}),
]
REFUSED = 1  # how many of BODIES are refused


def lua(path):
    rows = ",\n".join(f"{{{json.dumps(path)}, {json.dumps(json.dumps(body))}}}" for path, body in BODIES)
    path.write_text(f"""
local bodies = {{{rows}}}
local at = 0
function request()
  at = at % #bodies + 1
  return wrk.format("POST", bodies[at][1], {{["Content-Type"] = "application/json"}}, bodies[at][2])
end
""")


def get(server, path):
    with urllib.request.urlopen(server.url + path, timeout=60) as response:
        return response.read().decode()


def metric(server, name):
    return float(re.search(rf"^{name}\{{model=\"owlet\"\}} (\S+)$", get(server, "/metrics"), re.M).group(1))


class Load(CliTest):
    def setUp(self):
        self.server = Serving("--workers", "2")
        self.addCleanup(self.server.stop)

    def wait_until_idle(self):
        """Requests whose clients are gone may still be on their way through the server: idle is idle for a second."""
        idle = 0
        for _ in range(600):
            idle = idle + 1 if get(self.server, "/slots").strip() == "[]" else 0
            if idle == 10:
                break
            time.sleep(0.1)
        self.assertEqual(get(self.server, "/slots").strip(), "[]")
        self.assertEqual(metric(self.server, "tyto_kv_pages_in_use"), metric(self.server, "tyto_prefix_pages"))

    def test_every_request_of_many_connections_is_answered(self):
        self.need("wrk")
        script = self.work / "requests.lua"
        lua(script)
        result = subprocess.run(["wrk", "-t", "2", "-c", str(CONNECTIONS), "-d", f"{SECONDS}s", "--timeout", "60s", "-s",
                                 str(script), self.server.url], capture_output=True, text=True, timeout=SECONDS + 120)
        self.assertNotIn("Socket errors", result.stdout)
        requests = int(re.search(r"(\d+) requests in", result.stdout).group(1))
        refused = int((re.search(r"Non-2xx or 3xx responses: (\d+)", result.stdout) or [0, 0])[1])
        self.assertGreater(requests, CONNECTIONS)
        # In each connection's row of requests one is wrong on purpose.
        self.assertLessEqual(refused, requests * REFUSED / len(BODIES) + CONNECTIONS)
        self.wait_until_idle()
        self.assertEqual(self.server.stop(), 0, self.server.log)

    def test_clients_that_go_away_leave_nothing_behind(self):
        place = urlparse(self.server.url)
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": 400, "stream": True, "ignore_eos": True})
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
        for number in range(ABORTED):
            with socket.create_connection((place.hostname, place.port), timeout=60) as connection:
                connection.sendall((head + body).encode())
                if number % 7 == 0:
                    connection.recv(100)  # the answer has begun
        self.wait_until_idle()
        self.assertIn("choices", get_answer(self.server))


def get_answer(server):
    body = json.dumps({"prompt": "Once", "max_tokens": 3}).encode()
    with urllib.request.urlopen(urllib.request.Request(server.url + "/v1/completions", body), timeout=60) as response:
        return json.load(response)


if __name__ == "__main__":
    main()
