"""Makes one story: a cast, a place and an object, carried through one of the plots."""

import random
import re
import zlib
from pathlib import Path

import lexicon as lex
from grammar import Template, capital, expand, read_lists, read_plots, read_uses

GRAMMAR = Path(__file__).parent / "grammar"
LISTS = read_lists(GRAMMAR / "shared.txt")
USES = read_uses(GRAMMAR / "uses.txt")
PLOTS = read_plots(GRAMMAR / "plots_objects.txt") + read_plots(GRAMMAR / "plots_deeds.txt")

WISHES = [tuple(Template(part) for part in line.text.split(" => ")) for line in LISTS.pop("wishes")]
WORD_SLOTS = {name: [Template(word) for word in words] for name, words in lex.WORDS.items()}
TRAIT_LINES = {trait: [Template(line) for line in lines] for trait, lines in lex.TRAITS.items()}
DETAILS = {place: list(row[3]) for place, row in lex.PLACES.items()}
GROUP_OF = {name.replace("_", " "): group
            for group, (_, names) in lex.OBJECT_GROUPS.items() for name in names.split()}
MOTHERS = {"duckling": "duck", "kitten": "cat", "chick": "hen", "lamb": "sheep", "puppy": "dog",
           "fawn": "deer", "bunny": "rabbit", "bear cub": "bear", "piglet": "pig"}
RELATED = [set(words.split()) for words in
           ("duck duckling goose", "cat kitten", "hen chick rooster chicken", "lamb sheep",
            "dog puppy", "deer fawn moose", "rabbit bunny", "bear cub", "pig piglet", "mouse rat",
            "frog toad", "horse pony donkey", "crow raven", "cow", "king queen prince princess")]
PRONOUNS = {"he": ("he", "him", "his", "himself"), "she": ("she", "her", "her", "herself")}
HELD_OUT_SHARE = 20  # one combination in this many is never trained on


def allowed_objects(plot):
    """The object names a plot can be told with; [None] when it needs none."""
    if plot.objects == ["none"]:
        return [None]
    names = []
    for word in plot.objects:
        if word == "any":
            names += GROUP_OF
        elif word == "crafted":
            names += [name.replace("_", " ") for name in lex.CRAFTED]
        elif word.startswith("-"):
            names = [name for name in names if name != word[1:] and GROUP_OF[name] != word[1:]]
        else:
            names += [name for name, group in GROUP_OF.items() if group == word]
    return names


def split_rare(names, rare):
    return [name for name in names if not rare(name)], [name for name in names if rare(name)]


PLACES = {plot.name: split_rare([place for place, row in lex.PLACES.items()
                                 if all(tag in row[1].split() for tag in plot.places)],
                                lambda place: lex.PLACES[place][2] is lex.RARE_SPOTS)
          for plot in PLOTS}
OBJECTS = {plot.name: split_rare(allowed_objects(plot), lambda name: GROUP_OF.get(name) == "other")
           for plot in PLOTS}


def held_out(kind, place):
    """Decided before any text is made: this character and place never meet in the training data,
    and so no held-out combination of character, place and object does."""
    return zlib.crc32(f"{kind}/{place}".encode()) % HELD_OUT_SHARE == 0


def article(phrase):
    first = phrase.split(" ")[0]
    vowel = first[0] in "aeiou" and first not in lex.BEFORE_CONSONANT_SOUND
    return ("an " if vowel or first in lex.BEFORE_VOWEL_SOUND else "a ") + phrase


def title_case(text):
    small = {"in", "on", "at", "by", "the", "a", "an", "and", "of"}
    return " ".join(word if word in small else capital(word) for word in text.split(" "))


def related(kind, other):
    return kind == other or any(kind in group and other in group for group in RELATED)


def made_up_name(rng):
    while True:
        name = rng.choice(lex.ONSETS) + rng.choice(lex.VOWELS)
        for _ in range(rng.choice((1, 1, 1, 2))):
            name += rng.choice(lex.INNER) + rng.choice(lex.VOWELS)
        name += rng.choice(lex.ENDS)
        if not any(part in name for part in lex.UNFIT):
            return capital(name)


class Being:
    """Somebody in the story: what they are, their name and how the text refers to them."""

    def __init__(self, rng, kind, named=True, gender=None):
        self.kind = kind
        self.human = kind in ("girl", "boy")
        if kind in lex.SHE_ONLY:
            self.gender = "she"
        elif kind in lex.HE_ONLY:
            self.gender = "he"
        else:
            self.gender = gender or rng.choice(("he", "she"))
        self.name = self.pick_name(rng) if named or self.human else None

    def pick_name(self, rng):
        if rng.random() < 0.18:
            return made_up_name(rng)
        people = lex.GIRLS if self.gender == "she" else lex.BOYS
        pets = lex.PET_GIRLS if self.gender == "she" else lex.PET_BOYS
        if self.human or (self.kind in lex.FOLK and rng.random() < 0.8):
            return rng.choice(people)
        return liking(rng, f"{self.kind}/{self.gender}/name", people + pets, 0.2)

    def mentions(self):
        """Name and description in the share in which the text should use them."""
        if not self.name:
            young = [] if self.kind in lex.FOLK else [f"the little {self.kind}"]
            return [f"the {self.kind}"] * 4 + young
        if self.human:
            return [self.name] * 7 + [f"the {self.kind}"]
        return [self.name] * 5 + [f"the {self.kind}"]

    def titled(self):
        return self.name if self.human else f"{self.name} the {self.kind}"


def liking(rng, key, choices, share):
    """Characters and places have their own ways, so that the likeliest story is not always the same
    one: a share of the choices is settled by the key."""
    if rng.random() < share:
        return choices[zlib.crc32(key.encode()) % len(choices)]
    return rng.choice(choices)


def pick_kind(rng):
    roll = rng.random()
    if roll < 0.22:
        return rng.choice(("girl", "boy"))
    if roll < 0.80:
        return rng.choice(lex.ANIMALS if roll < 0.68 else lex.RARE_ANIMALS)
    if roll < 0.92:
        return rng.choice(lex.FOLK if roll < 0.88 else lex.RARE_FOLK)
    return rng.choice(lex.BEINGS)


def pick_place(rng, plot):
    known, rare = PLACES[plot.name]
    return rng.choice(known if rng.random() < 0.83 else rare)


def pick_thing(rng, plot):
    known, rare = OBJECTS[plot.name]
    return rng.choice(rare if rare and rng.random() < 0.3 else known)


class Story:
    """The choices of one story, its text and what can be asked about it."""

    def __init__(self, rng, want=None):
        want = want or {}
        self.rng = rng
        kind = want.get("kind") or pick_kind(rng)
        self.plot = want.get("plot") or liking(rng, f"{kind}/plot", PLOTS, 0.25)
        self.thing = want["thing"] if "thing" in want else pick_thing(rng, self.plot)
        self.place = want.get("place") or pick_place(rng, self.plot)
        self.hero = Being(rng, kind, rng.random() < 0.7)
        self.friend = self.pick_friend()
        self.elder, self.elder_gender = self.pick_other(lex.ELDERS)
        self.little = self.pick_other([name.replace("_", " ") for name in lex.LITTLE_ONES])
        traits = self.plot.traits or lex.GOOD_TRAITS
        self.trait = rng.choice(traits)
        grown = self.hero.kind in lex.FOLK or self.hero.kind in lex.RARE_FOLK
        self.look = rng.choice((lex.GROWN_LOOKS if grown else lex.LOOKS) + [""])
        self.show_trait = bool(want.get("show_trait")) or rng.random() < 0.35
        self.branch = None
        self.slots = self.make_slots()
        self.paragraphs = self.tell()
        self.text = "\n\n".join(self.paragraphs)

    def pick_friend(self):
        """Mostly of the other gender, so that "he" and "she" tell the two apart."""
        other = "she" if self.hero.gender == "he" else "he"
        while True:
            kind = pick_kind(self.rng)
            if self.rng.random() < 0.2:
                kind = liking(self.rng, f"{self.hero.kind}/{self.place}/friend", lex.ANIMALS, 1)
            if kind in lex.FOLK or kind in lex.RARE_FOLK or related(kind, self.hero.kind):
                continue
            friend = Being(self.rng, kind, True, other if self.rng.random() < 0.75 else None)
            if friend.name != self.hero.name:
                return friend

    def pick_other(self, choices):
        taken = (self.hero.kind, self.friend.kind)
        while True:
            choice = self.rng.choice(choices)
            kind = choice if isinstance(choice, str) else choice[0]
            if not any(related(word, other) for other in taken for word in kind.split()):
                return choice

    def make_slots(self):
        slots = {**LISTS, **WORD_SLOTS}
        for prefix, gender in (("", self.hero.gender), ("f", self.friend.gender),
                               ("e", self.elder_gender)):
            names = ("he", "him", "his", "himself")
            slots.update({prefix + name: word for name, word in zip(names, PRONOUNS[gender])})
        slots["hers"] = "his" if self.hero.gender == "he" else "hers"
        slots.update(self.hero_slots())
        slots.update(self.other_slots())
        slots.update(self.place_slots())
        if self.thing:
            slots.update(self.thing_slots())
        return slots

    def hero_slots(self):
        hero = self.hero
        mark = self.trait if self.show_trait else self.look
        kind = f"{mark} {hero.kind}".strip()
        short = hero.name or f"the {hero.kind}"
        named = f" [named|named|called] {hero.name}" if hero.name else ""
        return {"h": hero.mentions(), "hs": [name + "'s" for name in hero.mentions()],
                "hn": short, "kind": hero.kind, "akindadj": article(kind),
                "ahero": Template(article(kind) + named), "traitline": TRAIT_LINES[self.trait],
                "kindt": title_case(hero.kind), "hnt": title_case(hero.name or short)}

    def other_slots(self):
        friend = self.friend
        kind = friend.kind
        mentions = [friend.name] if friend.human else friend.mentions()
        return {"f": mentions, "fs": [name + "'s" for name in mentions],
                "fn": friend.name, "fnt": friend.name, "fx": friend.titled(),
                "ax": f"{article(kind)} named {friend.name}",
                "ff": f"{self.slots_his()} friend {friend.titled()}",
                "e": f"the old {self.elder}", "ae": f"an old {self.elder}", "en": self.elder,
                "b": [f"the {self.little}"] * 2 + [f"the little {self.little}"],
                "ab": [article(self.little), f"a little {self.little}"], "bn": self.little,
                "mn": MOTHERS.get(self.little, self.little)}

    def slots_his(self):
        return PRONOUNS[self.hero.gender][2]

    def place_slots(self):
        preposition, _, spots, _ = lex.PLACES[self.place]
        at = f"{preposition} the {self.place}"
        weather = liking(self.rng, f"{self.place}/weather", lex.WORDS["weather"], 0.4)
        oneday = liking(self.rng, f"{self.place}/oneday", LISTS["oneday"], 0.4)
        sunny = weather in ("sunny", "bright", "warm", "lovely")
        # One spot serves the whole story: things stay where they were found.
        return {"p": self.place, "tp": f"the {self.place}", "at": at,
                "to": f"to the {self.place}", "spot": self.rng.choice(spots),
                "detail": list(DETAILS[self.place]), "pt": title_case(self.place),
                "att": title_case(at), "noise": self.rng.choice(LISTS["noise"]),
                "alarm": self.rng.choice(LISTS["alarm"]),
                "lostspot": self.rng.choice(LISTS["lostspot"]),
                "machine": self.rng.choice(LISTS["machine"]),
                "machine2": self.rng.choice(LISTS["machine2"]), "weather": weather,
                "oneday": oneday,
                "weatherline": LISTS["weather_sun" if sunny else "weather_gray"],
                "game": self.rng.choice(lex.WORDS["game"])}

    def thing_slots(self):
        group = GROUP_OF[self.thing]
        adjectives = lex.OBJECT_GROUPS[group][0].split()
        if group not in ("food", "baked", "grow", "egg", "feather") and self.rng.random() < 0.6:
            adjectives = lex.COLORS
        self.adjective = self.rng.choice(adjectives)
        full = f"{self.adjective} {self.thing}"
        uses = [use for use in USES[group] if not self.clashes(use[0])] or USES[group]
        trouble, solution, purpose = self.rng.choice(uses)
        self.use_tag = "usef" if re.search(r"\{[Ff]", trouble.text) else "useb"
        need, wish = self.rng.choice(WISHES)
        return {"o": self.thing, "ao": article(self.thing), "oo": full, "aoo": article(full),
                "problem": trouble, "solve": solution, "used": purpose, "wishneed": need,
                "wish": wish, "ot": title_case(self.thing),
                "aot": title_case(capital(article(self.thing)))}

    def clashes(self, template):
        """A template that names a kind of the cast in plain words would confuse the reader."""
        return self.hero.kind in template.words or self.friend.kind in template.words

    def fits(self, template):
        if self.clashes(template):
            return False
        tag = template.tag
        if tag is None:
            return True
        if tag == "named":
            return self.hero.name is not None
        if tag in ("usef", "useb"):
            return tag == self.use_tag
        if "/" in tag:  # for some groups of objects, or with "!" for all others
            return (GROUP_OF.get(self.thing) in tag.strip("!").split("/")) != tag.startswith("!")
        if len(tag) == 1:  # branches of a plot: the first one taken is kept
            return self.branch in (None, tag)
        return tag in lex.PLACES[self.place][1].split() or tag == GROUP_OF.get(self.thing)

    def say(self, variants, key=None):
        choices = [template for template in variants if self.fits(template)] or variants
        choice = self.rng.choice(choices) if key is None else liking(
            self.rng, f"{self.hero.kind}/{key}", choices, 0.4)
        if choice.tag and len(choice.tag) == 1:
            self.branch = choice.tag
        return capital(expand(choice.pieces, self.slots, self.rng))

    def tell(self):
        intro = self.plot.intro
        if intro == "intro" and "room" in lex.PLACES[self.place][1]:
            intro = "intro_room"
        sentences = [self.say(LISTS[intro], "intro")]
        if self.rng.random() < 0.6:
            sentences.append(self.say(LISTS["second"], "second"))
        paragraphs = []
        told = set()
        for marks, variants in self.plot.beats:
            if "maybe" in marks and self.rng.random() < 0.5:
                continue
            if "par" in marks:
                paragraphs.append(" ".join(sentences))
                sentences = []
            sentence = self.once(self.say(variants), told)
            if sentences and sentences[-1].endswith('"') and sentence.startswith('"'):
                paragraphs.append(" ".join(sentences))  # another speaker, another paragraph
                sentences = []
            sentences.append(sentence)
        sentences.append(self.say(self.plot.morals))
        if self.rng.random() < 0.25:
            sentences.append(self.say(LISTS["ending"]))
        return paragraphs + [" ".join(sentences)]

    def once(self, sentence, told):
        """A detail of the place is not told twice."""
        for detail in DETAILS[self.place]:
            if detail in sentence:
                if detail in told:
                    sentence = sentence.replace(" " + detail, "").replace(detail + " ", "")
                told.add(detail)
        return sentence

    def title(self):
        return self.say(LISTS["title" if self.thing else "title_plain"])

    def asks(self):
        return [ask for ask in self.plot.asks if self.fits(ask)]

    def fill(self, template):
        return expand(template.pieces, self.slots, self.rng)

    def is_held_out(self):
        return held_out(self.hero.kind, self.place)


def sound(story):
    """Whether the story keeps its promises: everything in it is named, and it is not too long."""
    text = story.text
    words = [story.hero.name or story.hero.kind, story.place] + [story.thing] * bool(story.thing)
    if not all(re.search(rf"\b{re.escape(word)}", text, re.I) for word in words):
        return False
    return len(re.findall(r"\w+|[^\w\s]", text)) <= 275


def make_story(rng, held=False, **want):
    """A sound story on the asked side of the split."""
    while True:
        story = Story(rng, want)
        if story.is_held_out() == held and sound(story):
            return story


if __name__ == "__main__":
    import sys
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    for index in range(int(sys.argv[2]) if len(sys.argv) > 2 else 5):
        tale = make_story(random.Random(seed * 1000 + index))
        print(f"--- {tale.plot.name}: {tale.title()}\n{tale.text}\n")
        for question, answer in tale.plot.qa:
            print("Q", capital(tale.fill(question)), "| A", capital(tale.fill(answer)))
        print("ASK", [tale.fill(ask) for ask in tale.asks()])
