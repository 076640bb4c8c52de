#!/usr/bin/env python3
"""The HTML report in a real browser, headless: two widths, light and dark.

Usage: page_test.py PATH_TO_TYTO OUTPUT_FOLDER

Screenshots stay in the output folder. Exit 77, with the reason, where there is no browser.
"""
import html
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

TYTO = None
OUTPUT = None
BROWSER = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
WIDTHS = [360, 1280]
LAPTOP = 1100  # narrower than a whole page, and no reason to scroll a table

# A window cannot be as narrow as a phone, so each page stands in frames that are. The answers are left in the DOM, in the
# frames' order.
FRAME = '<iframe style="border:0;display:block;width:%dpx;height:4000px" srcdoc="%s"></iframe>'
HARNESS = """<!doctype html><body style="margin:0">%s
<script>
const ask = frame => {
  const page = frame.contentDocument, view = page.defaultView;
  const root = page.documentElement;
  const wide = [...page.querySelectorAll("body *")].filter(e =>
    !e.closest(".scroll") && e.getBoundingClientRect().right > root.clientWidth + 1).map(e => e.tagName + "." + e.className);
  const scrolled = [...page.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth + 1).map(e =>
    e.closest("section").querySelector("h2").textContent);
  const letters = [...page.querySelectorAll("svg text")].map(e => {
    const scale = e.getScreenCTM().a;
    return parseFloat(view.getComputedStyle(e).fontSize) * scale;
  });
  const overlapping = [...page.querySelectorAll("svg")].flatMap(svg => {
    const boxes = [...svg.querySelectorAll("text")].map(e => [e.textContent, e.getBoundingClientRect()]);
    return boxes.flatMap(([a, r], i) => boxes.slice(i + 1).filter(([, s]) =>
      r.left < s.right - 1 && s.left < r.right - 1 && r.top < s.bottom - 3 && s.top < r.bottom - 3).map(([b]) => a + " | " + b));
  });
  return {
    width: root.clientWidth, scroll: root.scrollWidth, wide: wide, smallest: Math.min(...letters), letters: letters.length,
    overlapping: overlapping, scrolled: scrolled, drawings: page.querySelectorAll("svg").length, background: view.getComputedStyle(page.body).backgroundColor,
    ink: view.getComputedStyle(page.body).color, loaded: view.performance.getEntriesByType("resource").length};
};
onload = () => {
  const answer = document.createElement("pre");
  answer.textContent = "ANSWER" + JSON.stringify([...document.querySelectorAll("iframe")].map(ask)) + "END";
  document.body.append(answer);
};
</script>"""


def browse(page, *flags, dark=False):
    with tempfile.TemporaryDirectory() as profile:
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                   f"--user-data-dir={profile}", "--virtual-time-budget=4000",
                   f"--blink-settings=preferredColorScheme={0 if dark else 1}", *flags, f"file://{page}"]
        return subprocess.run(command, capture_output=True, timeout=300, text=True, errors="replace")


def pixels(path):
    """Rows of a PNG as bytes, three or four per pixel; enough to see that something was drawn."""
    data, at, stream = path.read_bytes(), 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", body[:10])
        if kind == b"IDAT":
            stream += body
        at += 12 + length
    return width, height, {2: 3, 6: 4}[colour], zlib.decompress(stream)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.page = OUTPUT / "profile.html"
        cls.sweep = OUTPUT / "sweep.html"
        cls.diagnosis = OUTPUT / "diagnosis.html"
        flags = ["--device", "vnpu", "--prompt-rows", "64", "-n"]
        subprocess.run([TYTO, "profile", "-p", "Tell me a story.", "--temp", "0", *flags, "24", "--html", cls.page],
                       check=True, capture_output=True, timeout=300)
        subprocess.run([TYTO, "profile", "--sweep", "13,64,256", *flags, "4", "--html", cls.sweep], check=True,
                       capture_output=True, timeout=300)

        # One layer's map is past its tolerance: the page must show that too.
        subprocess.run([TYTO, "diagnose", "-p", "Hi", *flags, "2", "--fusion", "op", "--tolerance", "0.999999", "--html",
                        cls.diagnosis], capture_output=True, timeout=300)

        cls.answers = {dark: cls.ask_all(dark) for dark in (False, True)}

    @classmethod
    def ask_all(cls, dark):
        """One start of the browser for every page and width."""
        asked = [(page, width) for page in (cls.page, cls.sweep, cls.diagnosis) for width in (*WIDTHS, LAPTOP)]
        harness = OUTPUT / "harness.html"
        harness.write_text(HARNESS % "".join(FRAME % (width, html.escape(page.read_text())) for page, width in asked))
        result = browse(harness, "--window-size=1400,900", "--dump-dom", dark=dark)
        found = re.search(r"<pre>ANSWER(.*?)END</pre>", result.stdout, re.S)
        assert found, result.stderr[-2000:]
        return dict(zip(asked, json.loads(html.unescape(found.group(1))), strict=True))

    def ask(self, page, width, dark=False):
        return self.answers[dark][page, width]

    def test_it_fits_its_width_and_can_be_read(self):
        for page in (self.page, self.sweep):
            for width in WIDTHS:
                answer = self.ask(page, width)
                self.assertEqual(answer["width"], width)
                self.assertLessEqual(answer["scroll"], width, answer["wide"])
                self.assertEqual(answer["wide"], [])
                self.assertGreaterEqual(answer["smallest"], 8.5)
                self.assertEqual(answer["overlapping"], [])
                self.assertEqual(answer["loaded"], 0)
                self.assertGreater(answer["letters"], 10)
        self.assertGreaterEqual(self.ask(self.page, 1280)["drawings"], 11)

    def test_no_table_is_cut_on_a_laptop(self):
        for page in (self.page, self.sweep, self.diagnosis):
            self.assertEqual(self.ask(page, LAPTOP)["scrolled"], [], page.name)

    def test_the_diagnosis_fits_too(self):
        for width in WIDTHS:
            answer = self.ask(self.diagnosis, width)
            self.assertEqual(answer["width"], width)
            self.assertEqual(answer["wide"], [])
            self.assertLessEqual(answer["scroll"], width)
            self.assertEqual(answer["loaded"], 0)

    def test_light_and_dark(self):
        def brightness(colour):
            return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3
        light, dark = self.ask(self.page, 1280), self.ask(self.page, 1280, dark=True)
        self.assertGreater(brightness(light["background"]), 200)
        self.assertLess(brightness(light["ink"]), 80)
        self.assertLess(brightness(dark["background"]), 60)
        self.assertGreater(brightness(dark["ink"]), 180)

    def test_screenshots_show_something(self):
        for page in (self.page, self.sweep, self.diagnosis):
            for width in WIDTHS:
                for dark in (False, True):
                    picture = OUTPUT / f"{page.stem}-{width}-{'dark' if dark else 'light'}.png"
                    picture.unlink(missing_ok=True)
                    browse(page, f"--window-size={width},1600", f"--screenshot={picture}", dark=dark)
                    self.assertTrue(picture.exists())
                    shown, height, channels, raw = pixels(picture)
                    self.assertEqual((shown, height), (width, 1600))
                    row_length = 1 + shown * channels
                    drawn = {raw[y * row_length:(y + 1) * row_length] for y in range(height)}
                    self.assertGreater(len(drawn), 200, picture)


if __name__ == "__main__":
    OUTPUT = Path(sys.argv.pop())
    TYTO = sys.argv.pop()
    if BROWSER is None:
        print("SKIPPED: no chromium; `make test` installs it")
        sys.exit(77)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    unittest.main(verbosity=1)
