#!/usr/bin/env python3
"""Every curl line of docs/server.md against a running server, and every path of the server in docs/server.md."""
import json
import re
import shutil
import subprocess
import sys
import unittest

import harness
from serving import Serving

PAGE = (harness.ROOT / "docs" / "server.md").read_text()
LINES = [line.strip() for line in PAGE.splitlines() if line.startswith("    curl ")]
BASE = "http://127.0.0.1:9377"

# What must be in an answer: keys from the outside in.
EXPECTED = {
    "/health": ["status"], "/v1/health": ["status"], "/v1/models": ["data", 0, "id"], "/v1/models/owlet": ["id"],
    "/v1/chat/completions": ["choices", 0, "message", "content"], "/v1/completions": ["choices", 0, "text"],
    "/v1/embeddings": ["data", 1, "embedding", 0], "/v1/receipts": ["receipts", 0, "badge"],
    "/v1/receipts/$ID": ["devices", 0, "name"], "/v1/receipts/$ID/profile.json": ["schema"],
    "/tokenize": ["tokens", 0, "piece"], "/detokenize": ["content"], "/apply-template": ["prompt"],
    "/props": ["default_generation_settings", "n_ctx"], "/slots": [], "/doctor": ["checks", 0, "check"], "/plan": [0],
    "/api/version": ["version"], "/api/tags": ["models", 0, "name"], "/api/ps": ["models", 0, "name"],
    "/api/show": ["model_info"], "/api/generate": ["response"], "/api/embed": ["embeddings", 0, 0],
    "/api/embeddings": ["embedding", 0],
}
# Answers that are not one JSON text: how they begin, and what is in them.
TEXTS = {
    "/metrics": ("# HELP", "tyto_requests_total"), "/v1/receipts/$ID/profile.html": ("<!doctype html>", "</html>"),
    "/v1/receipts/$ID/dataflow.svg": ("<svg ", "</svg>"), "/api/chat": ('{"model"', '"done":true'),
}


def path_of(line):
    return re.search(re.escape(BASE) + r"(\S*)", line).group(1)


class ServerDocs(unittest.TestCase):
    answer_id = ""

    @classmethod
    def setUpClass(cls):
        cls.server = Serving()
        cls.addClassCleanup(cls.server.stop)
        answer = cls.run_line(f"""curl -s {BASE}/v1/completions -d '{{"prompt":"Hi","max_tokens":3,"profile":true}}'""")
        cls.answer_id = json.loads(answer[1])["id"]

    @classmethod
    def run_line(cls, line):
        """The status and the body that a line of the page gets."""
        command = line.replace(BASE, cls.server.url).replace("$ID", cls.answer_id)
        result = subprocess.run(["bash", "-c", command + r" --max-time 120 -w '\n%{http_code}'"], capture_output=True, text=True,
                                timeout=150)
        body, _, status = result.stdout.rpartition("\n")
        return int(status), body

    def test_every_line(self):
        for line in LINES:
            with self.subTest(line=line):
                status, body = self.run_line(line)
                self.assertEqual(status, 200, body)
                path = path_of(line)
                if '"stream":true' in line:
                    self.assertTrue(body.startswith("data: {") and body.rstrip().endswith("data: [DONE]"), body)
                elif path in TEXTS:
                    begin, inside = TEXTS[path]
                    self.assertTrue(body.startswith(begin), body[:200])
                    self.assertIn(inside, body)
                else:
                    value = json.loads(body)
                    for key in EXPECTED[path]:
                        value = value[key]

    def test_constrained_answers(self):
        for line in LINES:
            if "json_schema" in line:
                content = json.loads(self.run_line(line)[1])["choices"][0]["message"]["content"]
                self.assertIsInstance(json.loads(content)["name"], str)
            if '"grammar"' in line:
                self.assertIn(json.loads(self.run_line(line)[1])["choices"][0]["text"], ["yes", "no"])

    def test_the_error_of_the_page(self):
        shown = re.search(r"^    (\{\"error\".*)$", PAGE, re.MULTILINE).group(1)
        status, body = self.run_line(f"""curl -s {BASE}/v1/completions -d '{{"prompt":"x","temperature":"hot"}}'""")
        self.assertEqual(status, 400)
        self.assertEqual(json.loads(body), json.loads(shown))

    def test_every_path_is_described(self):
        routes = (harness.ROOT / "src" / "serve" / "api" / "routes.cc").read_text()
        described = {re.sub(r"\$ID|owlet", "{}", path_of(line)) for line in LINES}
        served = set(re.findall(r'\{"(?:GET|POST)", "([^"]+)"', routes))
        self.assertEqual(served, described)


if __name__ == "__main__":
    if not shutil.which("curl"):
        print("SKIPPED: curl is not installed")
        sys.exit(0)
    harness.main()
