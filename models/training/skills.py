"""Small requests that Owlet can do, beside those of chats.py; none is one of the hundred prompts by
which its answers are judged."""

from beyond import fresh
from facts import CLASSES, NUMBERS
from grammar import capital
from story import article

ABILITIES = {
    "fly": ("bird owl duck goose bee butterfly crow swan eagle bat ladybug sparrow",
            "fish dog cat cow pig horse elephant mouse frog snail bear rabbit stone tree penguin fox"),
    "swim": ("fish duck frog whale penguin seal dolphin swan otter beaver shark crab",
             "hen stone bee butterfly sparrow ant snail"),
    "climb trees": ("cat squirrel monkey bear koala", "fish cow pig whale horse duck elephant"),
    "run": ("dog horse cat fox rabbit deer wolf lion", "fish snail whale worm tree stone"),
    "jump": ("frog rabbit kangaroo cat dog", "elephant whale snail worm stone"),
    "talk": ("person child teacher", "stone tree fish cow chair table spider"),
    "read": ("person teacher child", "dog cat fish cow bird stone horse"),
    "bark": ("dog", "cat fish cow bird frog"), "bite": ("dog lion shark wolf", "stone tree pillow"),
    "lay eggs": ("hen duck bird frog fish turtle snake", "dog cat cow horse lion bear whale")}
FEELS = """ice: cold hot, fire: hot cold, snow: cold hot, the sun: hot cold, a stone: hard soft,
a pillow: soft hard, sugar: sweet sour, honey: sweet sour, a lemon: sour sweet, water: wet dry,
the sea: wet dry, the desert: dry wet, a feather: light heavy, an elephant: big small,
a mouse: small big, an ant: small big, a whale: big small, the night: dark bright, a rock: heavy light,
wool: soft hard, iron: hard soft, a knife: sharp dull, a needle: sharp dull, a snail: slow fast,
a turtle: slow fast, a rabbit: fast slow, glass: hard soft, a blanket: warm cold, winter: cold hot,
summer: warm cold, thunder: loud quiet, a ball: round square, a wheel: round square,
a giraffe: tall short, a candy: sweet sour, a cake: sweet sour, a kitten: small big,
a mountain: high low, the rain: wet dry, a cloud: soft hard, steel: hard soft, an oven: hot cold"""
USES = """an umbrella|stay dry when it rains, scissors|cut paper, a hammer|drive in nails,
a saw|cut wood, a broom|sweep the floor, a spoon|eat soup, a fork|eat, a knife|cut food,
a cup|drink, a bed|sleep, a chair|sit, a lamp|have light, a key|open a lock, a clock|see the time,
a pen|write, a pencil|write and draw, a book|read, a ball|play, a boat|go over the water,
a ladder|climb up, a bucket|carry water, a shovel|dig a hole, a rake|gather leaves, soap|wash,
a towel|dry your hands, a comb|comb your hair, a toothbrush|clean your teeth, a pot|cook,
an oven|bake bread, a coat|keep warm, a hat|keep your head warm, shoes|walk, a rope|tie things,
a needle|sew, a basket|carry things, a map|find the way, a bell|ring, a drum|make music,
a blanket|keep warm, a pillow|rest your head, glue|stick things together, a brush|paint,
a bag|carry things, a candle|have light, a mirror|see yourself, a net|catch fish, a kettle|boil water,
a wheelbarrow|carry earth, a telescope|look at the stars, a whistle|make a loud sound"""
FEEL_ROWS = [(thing, *both.split()) for thing, both in
             (row.strip().split(": ") for row in " ".join(FEELS.split()).split(","))]
USE_ROWS = [tuple(row.strip().split("|")) for row in " ".join(USES.split()).split(",")]


def spoken(n, rng):
    return NUMBERS[n] if rng.random() < 0.3 else str(n)


def count_from(rng):
    low = rng.randint(0, 17)
    high = rng.randint(low + 2, min(low + 12, 20))
    numbers = [str(n) for n in range(low, high + 1)]
    a, b = spoken(low, rng), spoken(high, rng)
    if rng.random() < 0.3:
        form = rng.choice((f"Count from {b} down to {a}.", f"Count down from {b} to {a}.",
                           f"Count backwards from {b} to {a}."))
        return form, ", ".join(reversed(numbers)) + "!"
    form = rng.choice((f"Count from {a} to {b}.", f"Can you count from {a} to {b}?",
                       f"Please count from {a} to {b}.", f"Count the numbers from {a} to {b}.",
                       f"Count on from {a} to {b}.", f"What are the numbers from {a} to {b}?"))
    return form, ", ".join(numbers) + "."


def can_do(rng):
    deed = rng.choice(list(ABILITIES))
    able, unable = (names.split() for names in ABILITIES[deed])
    can = rng.random() < 0.5
    who = article(rng.choice(able if can else unable))
    question = rng.choice((f"Can {who} {deed}?", f"Can {who} {deed}?", f"Is {who} able to {deed}?",
                           f"Do you think {who} can {deed}?"))
    return question, f"Yes, {who} can {deed}." if can else f"No, {who} cannot {deed}."


def feels(rng):
    thing, right, wrong = rng.choice(FEEL_ROWS)
    roll = rng.random()
    if roll < 0.35:
        return f"Is {thing} {right}?", f"Yes, {thing} is {right}."
    if roll < 0.7:
        return f"Is {thing} {wrong}?", f"No, {thing} is {right}."
    a, b = rng.sample((right, wrong), 2)
    return f"Is {thing} {a} or {b}?", f"{capital(thing)} is {right}."


def use(rng):
    thing, deed = rng.choice(USE_ROWS)
    be = "are" if thing in ("scissors", "shoes") else "is"
    question = rng.choice((f"What do you use {thing} for?", f"What {be} {thing} for?",
                           f"What do people use {thing} for?", f"What can you do with {thing}?",
                           f"What {be} {thing} used for?", f"Why do you need {thing}?"))
    return question, f"You use {thing} to {deed}."


def name_some(rng):
    kind = rng.choice(list(CLASSES))
    count = rng.choice((2, 2, 3, 3, 3, 4, 5))
    words = rng.sample(CLASSES[kind].split(), count)
    if kind not in ("color", "number"):
        words = [article(word) for word in words]
    how = spoken(count, rng) if rng.random() < 0.5 else NUMBERS[count]
    question = rng.choice((f"Name {how} {kind}s.", f"Name {how} {kind}s.", f"Can you name {how} {kind}s?",
                           f"Tell me {how} {kind}s.", f"Give me {how} {kind}s.", f"List {how} {kind}s.",
                           f"Do you know {how} {kind}s?"))
    listed = ", ".join(words[:-1]) + " and " + words[-1]
    return question, f"{capital(NUMBERS[count])} {kind}s are {listed}."


SKILLS = [count_from, can_do, feels, use, name_some]


def skill(rng):
    return fresh(rng.choice(SKILLS), rng)
