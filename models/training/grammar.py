"""The text format of the story grammar: templates with {slots} and [this|or that]."""

import re

TOKEN = re.compile(r"\{([A-Za-z0-9]+)\}|([\[\]|])")


class Template:
    """A parsed line: pieces are text, ("slot", name, capital) or ("alt", [pieces, ...])."""

    def __init__(self, line):
        self.tag, text = None, line
        if text.startswith("@"):
            self.tag, text = text[1:].split(" - ", 1)
        self.text = text
        self.words = set(re.findall(r"[a-z]+", re.sub(r"\{[^}]*\}", "", text)))
        self.pieces, end = parse(text, 0, False)
        if end != len(text):
            raise ValueError(f"unbalanced brackets in: {line}")


def parse(text, at, inside):
    """Parses up to the end of the text, or of the alternative when inside brackets."""
    pieces = []
    while at < len(text):
        found = TOKEN.search(text, at)
        if not found:
            pieces.append(text[at:])
            return pieces, len(text)
        if found.start() > at:
            pieces.append(text[at:found.start()])
        at = found.end()
        if found.group(1):
            name = found.group(1)
            pieces.append(("slot", name[0].lower() + name[1:], name[0].isupper()))
        elif found.group(2) == "[":
            choices, mark = [], "|"
            while mark == "|":
                choice, at = parse(text, at, True)
                mark = text[at] if at < len(text) else ""
                choices.append(choice)
                at += 1
            if mark != "]":
                raise ValueError(f"[ without ] in: {text}")
            pieces.append(("alt", choices))
        elif inside:
            return pieces, found.start()
        else:
            raise ValueError(f"stray {found.group(2)} in: {text}")
    return pieces, at


def capital(text):
    return text[:1].upper() + text[1:]


def expand(pieces, slots, rng):
    """Slots map a name to text, to a Template or to a list of either."""
    out = []
    for piece in pieces:
        if isinstance(piece, str):
            out.append(piece)
        elif piece[0] == "alt":
            out.append(expand(rng.choice(piece[1]), slots, rng))
        else:
            value = slots[piece[1]]
            if isinstance(value, list):
                value = rng.choice(value)
            if isinstance(value, Template):
                value = expand(value.pieces, slots, rng)
            out.append(capital(value) if piece[2] else value)
    return "".join(out)


def lines_of(path):
    for line in path.read_text().splitlines():
        line = line.strip()
        if line and not line.startswith("#"):
            yield line


def variant(line):
    return Template(line[2:] if line.startswith("- ") else line)


def read_lists(path):
    lists = {}
    for line in lines_of(path):
        if line.startswith("list "):
            lists[line[5:]] = current = []
        else:
            current.append(variant(line))
    return lists


def read_uses(path):
    """Object group -> [(trouble, solution, purpose)]."""
    uses = {}
    for line in lines_of(path):
        if line.startswith("group "):
            current = []
            uses.update({name: current for name in line[6:].split()})
        else:
            current.append(tuple(Template(part) for part in line[2:].split(" => ")))
    return uses


class Plot:
    def __init__(self, name):
        self.name = name
        self.objects, self.traits, self.themes, self.asks = [], [], [], []
        self.qa, self.beats, self.morals, self.feel = [], [], [], ""
        self.intro, self.places = "intro", []


def read_plots(path):
    plots = []
    for line in lines_of(path):
        key, _, rest = line.partition(" ")
        if key == "plot":
            plots.append(plot := Plot(rest))
            target = None
        elif key == "-" or key.startswith("@"):
            target.append(variant(line))
        elif key == "beat":
            plot.beats.append((rest.split(), target := []))
        elif key == "moral":
            target = plot.morals
        elif key == "objects":
            plot.objects = rest.split()
        elif key == "trait":
            plot.traits = rest.split()
        elif key == "theme":
            plot.themes.append(rest)
        elif key == "ask":
            plot.asks.append(variant(rest))
        elif key == "qa":
            plot.qa.append(tuple(Template(part) for part in rest.split(" => ")))
        elif key == "places":
            plot.places = rest.split()
        elif key == "intro":
            plot.intro = rest
        elif key == "feel":
            plot.feel = rest
        else:
            raise ValueError(f"{path.name}: unknown line: {line}")
    return plots
