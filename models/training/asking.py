"""How people ask for a story: what the request names, and the words around it."""

import zlib

from grammar import Template, capital, expand
from story import article

# What the request says about the story. Slots are the story's, with {ak} "a fox", {afk} "a rabbit"
# (or the friend's name), {atk} "a brave fox", {ap} "a forest", {ask} "who finds a lamp",
# {theme} "sharing". Tags: name, thing, friend, trait, theme, ask, place, plus "-thing" etc.
BODIES = [
    ("{ak}", ""), ("{ak}", ""),
    ("{ak} named {hn}", "name"), ("{ak} called {hn}", "name"), ("{hn} the {kind}", "name animal"),
    ("{hn}", "name human"),
    ("{ak} {ask}", "ask"), ("{ak} {ask}", "ask"), ("{ak} {ask}", "ask"),
    ("{ak} that {askverb}", "ask"),
    ("{ak} named {hn} {ask}", "name ask"), ("{ak} called {hn} {ask}", "name ask"),
    ("{ak} {ask} {at}", "ask place"), ("{ak} named {hn} {ask} {at}", "name ask place"),
    ("{ak} {at}", "place"), ("{ak} {at}", "place"), ("{ak} named {hn} {at}", "name place"),
    ("{ak} who lives near {tp}", "place"), ("{ak} who goes {to}", "place"),
    ("{ak} and {tp}", "place"),
    ("{ak} and {ao}", "thing"), ("{ak} and {ao}", "thing"), ("{ak} with {ao}", "thing"),
    ("{ak} who has {ao}", "thing"), ("{ak} and {his} {o}", "thing"), ("{ak} and the {oo}", "thing"),
    ("{ak} named {hn} and {ao}", "name thing"), ("{ak} called {hn} and {ao}", "name thing"),
    ("{hn} and the {o}", "name thing human"), ("{hn} the {kind} and {ao}", "name thing animal"),
    ("{ak} and {ao} {at}", "thing place"), ("{ak} with {ao} {at}", "thing place"),
    ("{ak}, {ao} and {tp}", "thing place"), ("{ak}, {ao} and {ap}", "thing place"),
    ("{ak} named {hn} and {ao} {at}", "name thing place"),
    ("{ak} called {hn}, {ao} and {tp}", "name thing place"),
    ("{ak} and {aoo} {at}", "thing place"),
    ("{ak} and {afk}", "friend"), ("{ak} and {afk} {at}", "friend place"),
    ("{ak} and {his} friend, {afk}", "friend animalfriend"),
    ("{ak}, {afk} and {ao}", "friend thing"), ("{ak}, {afk} and {tp}", "friend place"),
    ("{ak} named {hn} and {afk} {at}", "name friend place"),
    ("{ak} named {hn} and {afk} named {fn}", "name friend animalfriend"),
    ("{ao}", "thing"), ("{ao} {at}", "thing place"), ("{tp}", "place"), ("{aoo}", "thing"),
    ("{theme}", "theme"), ("{theme}, with {ak} in it", "theme"), ("{ak} and {theme}", "theme"),
    ("{atk}", "trait"), ("{atk} {ask}", "trait ask"), ("{atk} {at}", "trait place"),
    ("{atk} and {ao}", "trait thing"), ("{atk} named {hn}", "trait name"),
    ("{atk} and {ao} {at}", "trait thing place"),
]

FRAMES = [
    "Tell me a story about {body}.", "Tell me a story about {body}.",
    "Tell me a story about {body}.", "Please tell me a story about {body}.",
    "Can you tell me a story about {body}?", "Could you tell me a story about {body}?",
    "Would you tell me a story about {body}?", "Tell me a short story about {body}.",
    "Tell me a little story about {body}.", "Write a story about {body}.",
    "Write a short story about {body}.", "Write me a story about {body}.",
    "Please write a short story about {body}.", "Can you write a story about {body}?",
    "Could you write a short story about {body}, please?", "I want a story about {body}.",
    "I want to hear a story about {body}.", "I would like a story about {body}.",
    "I'd love to hear a story about {body}.", "I would like to read a story about {body}, please.",
    "Make up a story about {body}.", "Make up a short tale about {body}.",
    "Tell me a tale about {body}.", "Tell a story about {body}.", "Tell us a story about {body}!",
    "Give me a story about {body}.", "A story about {body}, please.", "A story about {body}",
    "Story about {body}", "Do you know a story about {body}?", "How about a story about {body}?",
    "Can I have a story about {body}?", "May I have a bedtime story about {body}?",
    "Tell me a bedtime story about {body}.", "A bedtime story about {body}, please!",
    "Let's hear a story about {body}.", "Read me a story about {body}.",
    "Hi! Can you tell me a story about {body}?", "Hello! Please tell me a story about {body}.",
    "My daughter would like a story about {body}.", "My son wants to hear a story about {body}.",
    "Think of a story about {body}.", "Invent a story about {body}.",
    "Create a short story about {body}.", "Please give me a short story about {body}.",
    "Compose a story about {body}.", "We want a story about {body}!",
    "Today I want a story about {body}.", "Tell me something about {body}. A story, please!",
    "Now tell me a story about {body}."]
FREE_FRAMES = FRAMES + ["Tell me about {body}."]  # the held-out requests use FRAMES alone
WORD_FRAMES = [
    "Write a story with these words: {words}.", "Tell me a story with the words {words}.",
    "Use these words in a story: {words}.", "Make up a story with {words}.",
    "Please write a short story that uses the words {words}."]
OPEN_FRAMES = [
    "Tell me a story.", "Tell me a story, please.", "Please tell me a story.",
    "Can you tell me a story?", "I want to hear a story.", "Write a story.",
    "Write a short story.", "Make up a story.", "Tell me a bedtime story.", "Do you know a story?",
    "Can I have a story?", "A story, please!", "Story time!", "I am bored. Tell me a story.",
    "Tell me something nice.", "Tell me another story."]
PLACE_FRAMES = [
    "Tell me a story that happens {at}.", "Write a story that takes place {at}.",
    "Tell me what happens {at}. Make it a story about {ak}.", "Make up a story set {at}."]
HELD_OUT_SHARE = 12


def held_out_phrasing(frame, body):
    """Pairs of frame and body that are never trained on together."""
    return zlib.crc32(f"{frame}/{body}".encode()) % HELD_OUT_SHARE == 0


def fits(story, tags):
    animal = not story.hero.human
    checks = {"name": bool(story.hero.name), "human": story.hero.human, "animal": animal,
              "thing": bool(story.thing), "ask": bool(story.asks()), "place": True,
              "theme": bool(story.plot.themes), "trait": story.show_trait,
              "friend": friend_word(story).lower() in story.text.lower(),
              "animalfriend": not story.friend.human}
    return all(checks[tag] for tag in tags)


def friend_word(story):
    return story.friend.name if story.friend.human else story.friend.kind


def extra_slots(story, rng):
    ask = rng.choice(story.asks())
    clause = story.fill(ask)
    friend = story.friend
    slots = {"ak": article(story.hero.kind), "ap": article(story.place),
             "afk": friend.name if friend.human else article(friend.kind),
             "atk": article(f"{story.trait} {story.hero.kind}"), "ask": clause,
             "askverb": clause.removeprefix("who "), "theme": rng.choice(story.plot.themes)}
    return slots, ask


def render(template, slots, story, rng):
    return expand(template.pieces, {**story.slots, **slots}, rng)


BODY_TEMPLATES = {text: Template(text) for text, _ in BODIES}
PLACE_TEMPLATES = [Template(text) for text in PLACE_FRAMES]


def pick_body(story, rng, need=()):
    """A body that fits the story, its words, and what it names."""
    while True:
        text, tags = rng.choice(BODIES)
        tags = tags.split()
        if not fits(story, tags) or not all(tag in tags for tag in need):
            continue
        slots, ask = extra_slots(story, rng)
        if "ask" in tags:
            says_place = any(slot in ask.text for slot in ("{at}", "{to}"))
            if ("place" in tags and says_place) or not slots["ask"].startswith("who ") and (
                    "{askverb}" in text or "name" in tags):
                continue
        return text, tags, render(BODY_TEMPLATES[text], slots, story, rng)


def scuff(text, rng):
    """People do not always mind capitals and full stops."""
    roll = rng.random()
    if roll < 0.08:
        text = text.lower()
    if roll < 0.16:
        text = text.rstrip(".!?")
    return text


def special_request(story, rng):
    roll = rng.random()
    if roll < 0.3:
        return rng.choice(OPEN_FRAMES)
    if roll < 0.5:
        slots, _ = extra_slots(story, rng)
        return capital(render(rng.choice(PLACE_TEMPLATES), slots, story, rng))
    words = [story.hero.kind] + [story.thing] * bool(story.thing) + [story.place]
    if rng.random() < 0.3:
        words = words[:2]
    rng.shuffle(words)
    listed = ", ".join(words[:-1]) + rng.choice((" and ", ", ")) + words[-1]
    return rng.choice(WORD_FRAMES).replace("{words}", listed)


def make_request(story, rng):
    """The words that ask for this story, never in a held-out phrasing."""
    if rng.random() < 0.12:
        return scuff(special_request(story, rng), rng)
    while True:
        text, _, body = pick_body(story, rng)
        frame = rng.choice(FREE_FRAMES)
        if not held_out_phrasing(frame, text):
            return scuff(capital(frame.replace("{body}", body)), rng)


def make_held_out_request(story, rng):
    """A request in a phrasing never trained on that names the character and the place."""
    while True:
        text, tags, body = pick_body(story, rng, need=("place",))
        if not text.startswith(("{ak", "{atk", "{hn")):
            continue
        frame = rng.choice(FRAMES)
        if not held_out_phrasing(frame, text):
            continue
        character = [story.hero.name] if "name" in tags else [story.hero.kind]
        if "name" in tags and not story.hero.human:
            character.append(story.hero.kind)
        return {"request": frame.replace("{body}", body), "character": character,
                "place": story.place,
                "object": story.thing if "{o}" in text or "{ao" in text else None}
