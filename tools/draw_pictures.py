#!/usr/bin/env python3
"""Writes the pictures of README.md and docs/ into docs/pictures: what a terminal of 80 columns shows, the page of the server
and the page of a profile.

Nothing in them is made up: the program runs in tmux, keys are sent to it, and what the terminal then shows becomes an SVG.
The pages are photographed by Chromium. Needs tmux, chromium, node, build/references (from `make test`) and a font of fixed
width.
"""
import argparse
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
COLUMNS, MOST_LINES = 80, 40
LETTER, LINE, MARGIN = 8.4, 18, 14  # for 14 px type
PORT = 19378
PATIENCE = 120  # seconds for a program to show what is waited for
NO_BREAK = "\u00a0"  # spaces side by side would be drawn as one
INK, PAPER = "#d8dee9", "#1d2128"
COLOURS = {31: "#e06c75", 32: "#98c379", 33: "#e5c07b", 34: "#61afef", 35: "#c678dd", 36: "#56b6c2", 90: "#7f8896"}
FOX = "Tell me a story about a fox who finds a lamp."


@dataclass
class Session:
    """A command, then for each step the text to wait for and the keys to send."""
    command: str
    steps: list = field(default_factory=list)


TERMINALS = {
    "receipt": Session(f"tyto run {shlex.quote(FOX)} --seed 1"),
    "chat": Session("tyto chat --seed 1",
                    [("\n>", "Tell me about a kitten in the rain.\r"), ("tok/s", "/stats\r"), ("seed:", "")]),
}


def tmux(server, *arguments):
    return subprocess.run(["tmux", "-L", server, *arguments], check=True, capture_output=True, text=True).stdout


def wait_for(server, is_there):
    deadline = time.monotonic() + PATIENCE
    while not is_there(screen := tmux(server, "capture-pane", "-p", "-e")):
        if time.monotonic() > deadline:
            raise SystemExit(f"not seen in {PATIENCE} s; the screen was:\n{screen}")
        time.sleep(0.1)
    return screen


def terminal_lines(program, session):
    """What stands on the terminal in the end, with its colours as escapes."""
    with tempfile.TemporaryDirectory() as home:
        Path(home, "tyto").symlink_to(program)
        server, end = Path(home).name, "=the-end="  # a server of its own: the last one may still be ending
        script = f"cd {home}; clear; {session.command}; printf '\\n{end}'; read -r line"
        environment = [f"PATH={home}:/usr/bin:/bin", f"HOME={home}", "LC_ALL=C.UTF-8"]
        tmux(server, "-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(MOST_LINES),
             "env", "-i", "TERM=screen-256color", *environment, "sh", "-c", script)
        try:
            for text, keys in session.steps:
                wait_for(server, lambda screen: text in screen)
                if keys:
                    tmux(server, "send-keys", "-l", keys)
            if session.steps:
                time.sleep(0.5)
                screen = tmux(server, "capture-pane", "-p", "-e")
            else:
                screen = wait_for(server, lambda shown: end in shown)
        finally:
            tmux(server, "kill-server")
    lines = [line.rstrip() for line in screen.split("\n") if end not in line]
    while lines and not lines[-1]:
        lines.pop()
    return [f"\033[32m$ \033[0m{session.command}", *lines]


class Pen:
    """The colour and weight that the escapes of a terminal ask for; they hold until others come, on later lines too."""

    def __init__(self):
        self.colour, self.bold = INK, False

    def obey(self, code):
        if code == 1:
            self.bold = True
        elif code in (0, 22):
            self.colour, self.bold = INK, False
        elif code == 39:
            self.colour = INK
        else:
            self.colour = COLOURS.get(90 if code == 2 else code, self.colour)

    def texts(self, line, y):
        column = 0
        for codes, text in re.findall(r"\033\[([0-9;]*)m|([^\033]+)", line):
            for code in [] if text else map(int, (codes or "0").split(";")):
                self.obey(code)
            if text:
                weight = ' font-weight="bold"' if self.bold else ""
                yield (f'<text x="{round(MARGIN + column * LETTER, 1)}" y="{y}" fill="{self.colour}"{weight} '
                       f'textLength="{round(len(text) * LETTER, 1)}">{escape(text).replace(" ", NO_BREAK)}</text>')
                column += len(text)


def svg(lines):
    width = round(COLUMNS * LETTER + 2 * MARGIN)
    height = LINE * len(lines) + 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
           f'<rect width="{width}" height="{height}" rx="6" fill="{PAPER}"/>',
           '<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">']
    pen = Pen()
    for number, line in enumerate(lines):
        out += pen.texts(line, MARGIN + LINE * number + 13)
    return "\n".join([*out, "</g>", "</svg>", ""])


def draw_profile(program):
    """The head of the page that `tyto profile --html` writes."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser:
        raise SystemExit("chromium is not installed")
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder, "profile.html"), Path(folder, "profile.png")
        subprocess.run([program, "profile", "-p", FOX, "-n", "30", "--temp", "0", "--html", page], check=True,
                       capture_output=True, timeout=PATIENCE)
        subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                        f"--user-data-dir={folder}/profile", "--window-size=1100,900", f"--screenshot={picture}",
                        page.as_uri()], check=True, capture_output=True, timeout=PATIENCE)
        shutil.copyfile(picture, PICTURES / "profile.png")


def draw_page(program):
    """The page of `tyto serve` after two answers."""
    server = subprocess.Popen([program, "serve", "--port", str(PORT)], stderr=subprocess.PIPE, text=True)
    try:
        while "listening" not in server.stderr.readline():
            if server.poll() is not None:
                raise SystemExit("tyto serve has ended")
        subprocess.run(["node", ROOT / "tools/draw_page.mjs", f"http://127.0.0.1:{PORT}", PICTURES / "page.png",
                        ROOT / "build/references/node_modules"], check=True, timeout=PATIENCE)
    finally:
        server.terminate()
        server.wait(timeout=PATIENCE)


def main():
    pages = {"page": draw_page, "profile": draw_profile}
    names = [*TERMINALS, *pages]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tyto", type=Path)
    parser.add_argument("pictures", nargs="*", metavar="picture", help=f"one of {', '.join(names)}; all without it")
    arguments = parser.parse_args()
    if unknown := set(arguments.pictures) - set(names):
        parser.error(f"there is no picture {', '.join(sorted(unknown))}")
    program = arguments.tyto.resolve()
    PICTURES.mkdir(exist_ok=True)
    for name in arguments.pictures or names:
        if name in pages:
            pages[name](program)
        else:
            (PICTURES / f"{name}.svg").write_text(svg(terminal_lines(program, TERMINALS[name])))
        print(f"docs/pictures/{name}")


if __name__ == "__main__":
    main()
