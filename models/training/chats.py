"""Short question-and-answer chats: small sums, colors, opposites, animals, days, manners."""

import lexicon as lex
from beyond import beyond, fresh
from facts import (AGE, AGE_ANSWERS, BABY_PAIRS, BYE, BYE_ANSWERS, CAN, CAN_ANSWERS, CLASSES,
                   COLOR_PAIRS, DAYS, FACT_PAIRS, FEELING, FOOD_PAIRS, HELLO, HELLO_ANSWERS,
                   HOME_PAIRS, HOW, HOW_ANSWERS, JOKES, LEG_PAIRS, LETTERS, LIKES, LIKES_ANSWERS,
                   MADE, MADE_ANSWERS, MIXES, MONTHS, NUMBERS, OPPOSITE_PAIRS, PLURAL_PAIRS,
                   RHYME_PAIRS, RIDDLES, ROBOT, ROBOT_ANSWERS, SEASONS, SIZES, SOUND_PAIRS, SPELL,
                   THANKS, THANKS_ANSWERS, UNKNOWN_ANSWERS, UNKNOWN_FORMS, UNKNOWN_THINGS,
                   UNKNOWN_VERBS, UNKNOWN_X, WHO, WHO_ANSWERS)
from skills import skill
from story import article, made_up_name


def fact(rng):
    return rng.choice(FACT_PAIRS)


def fill(form, **values):
    for name, value in values.items():
        form = form.replace("{" + name + "}", value)
    return form


def capital_first(text):
    return text[:1].upper() + text[1:]


def which(rng):
    return rng.choice(("What", "Which"))


def spoken(number, rng):
    return NUMBERS[number] if number <= 20 and rng.random() < 0.3 else str(number)


def total(rng):
    a, b = rng.randint(0, 20), rng.randint(0, 20)
    if rng.random() < 0.5:
        a, b = rng.randint(0, 10), rng.randint(0, 10)
    left, right = spoken(a, rng), spoken(b, rng)
    form = rng.choice((
        "What is {a} + {b}?", "{a} + {b} = ?", "How much is {a} plus {b}?", "What is {a} plus {b}?",
        "Add {a} and {b}.", "{a} + {b}", "what is {a}+{b}", "Can you add {a} and {b}?"))
    return capital_first(fill(form, a=left, b=right)), f"{a} + {b} = {a + b}."


def difference(rng):
    a = rng.randint(0, 20)
    b = rng.randint(0, a)
    left, right = spoken(a, rng), spoken(b, rng)
    form = rng.choice((
        "What is {a} - {b}?", "{a} - {b} = ?", "How much is {a} minus {b}?",
        "What is {a} minus {b}?", "Take {b} away from {a}.", "{a} - {b}"))
    return capital_first(fill(form, a=left, b=right)), f"{a} - {b} = {a - b}."


def product(rng):
    a, b = rng.randint(1, 10), rng.randint(1, 10)
    form = rng.choice(("What is {a} times {b}?", "{a} x {b} = ?", "How much is {a} times {b}?",
                       "What is {a} x {b}?"))
    return fill(form, a=str(a), b=str(b)), f"{a} x {b} = {a * b}."


def word_sum(rng):
    name = rng.choice(lex.GIRLS + lex.BOYS)
    thing = rng.choice(("apple", "nut", "coin", "shell", "ball", "cookie", "pencil", "flower",
                        "balloon"))
    he = "She" if name in lex.GIRLS else "He"
    a, b = rng.randint(1, 10), rng.randint(1, 10)
    if rng.random() < 0.5:
        question = (f"{name} has {plural(a, thing)}. {he} finds {b} more. "
                    f"How many {thing}s does {name} have now?")
        return question, f"{a} + {b} = {a + b}. {name} has {plural(a + b, thing)}."
    a, b = max(a, b) + 1, min(a, b)
    question = f"{name} has {plural(a, thing)}. {he} gives away {b}. How many {thing}s are left?"
    return question, f"{a} - {b} = {a - b}. {name} has {plural(a - b, thing)} left."


def plural(count, thing):
    return f"{count} {thing}" + "s" * (count != 1)


AMBIGUOUS = {"tall", "long", "heavy", "new", "easy"}  # their opposites have another opposite


def opposite(rng):
    pair = list(rng.choice(OPPOSITE_PAIRS))
    first, second = pair if pair[0] in AMBIGUOUS else rng.sample(pair, 2)
    form = rng.choice((
        "What is the opposite of {w}?", "The opposite of {w}?", "What's the opposite of {w}?",
        "Tell me the opposite of {w}.", "opposite of {w}",
        "Which word means the opposite of {w}?"))
    return fill(form, w=first), f"The opposite of {first} is {second}."


def color(rng):
    thing, shade = rng.choice(COLOR_PAIRS)
    form = rng.choice(("What color is {t}?", "Which color is {t}?", "What is the color of {t}?",
                       "what color is {t}", "Tell me the color of {t}."))
    return fill(form, t=thing), f"{capital_first(thing)} is {shade}."


def mix(rng):
    a, b, result = rng.choice(MIXES)
    a, b = rng.sample((a, b), 2)
    form = rng.choice(("What do you get when you mix {a} and {b}?",
                       "What color do {a} and {b} make?", "Mix {a} and {b}."))
    return fill(form, a=a, b=b), f"{capital_first(a)} and {b} make {result}."


def animal_sound(rng):
    animal, noise = rng.choice(SOUND_PAIRS)
    name = article(animal)
    form = rng.choice(("What does {a} say?", "What sound does {a} make?",
                       "What noise does {a} make?", "How does {a} go?"))
    return fill(form, a=name), f"{capital_first(name)} says \"{noise}\"."


def baby(rng):
    animal, young = rng.choice(BABY_PAIRS)
    form = rng.choice(("What is a baby {a} called?", "What do you call a baby {a}?",
                       "What is the name for a young {a}?"))
    return fill(form, a=animal), f"A baby {animal} is called {article(young)}."


def legs(rng):
    animal, count_text = rng.choice(LEG_PAIRS)
    name = article(animal)
    form = rng.choice(("How many legs does {a} have?", "How many legs has {a}?",
                       "Count the legs of {a}."))
    word = NUMBERS[int(count_text)] if count_text != "0" else "no"
    return fill(form, a=name), f"{capital_first(name)} has {word} legs."


def home(rng):
    animal, where = rng.choice(HOME_PAIRS)
    name = article(animal)
    form = rng.choice(("Where does {a} live?", "Where is the home of {a}?"))
    return fill(form, a=name), f"{capital_first(name)} lives {where}."


def food(rng):
    animal, meal = rng.choice(FOOD_PAIRS)
    name = article(animal)
    form = rng.choice(("What does {a} eat?", "What does {a} like to eat?"))
    return fill(form, a=name), f"{capital_first(name)} eats {meal}."


def day(rng):
    at = rng.randrange(7)
    if rng.random() < 0.5:
        form = rng.choice(("What day comes after {d}?", "Which day comes after {d}?",
                           "If today is {d}, what day is tomorrow?"))
        answer = f"{DAYS[(at + 1) % 7]} comes after {DAYS[at]}."
    else:
        form = rng.choice(("What day comes before {d}?", "Which day comes before {d}?",
                           "If today is {d}, what day was yesterday?"))
        answer = f"{DAYS[(at - 1) % 7]} comes before {DAYS[at]}."
    return fill(form, d=DAYS[at]), answer


def month(rng):
    at = rng.randrange(12)
    after = rng.random() < 0.5
    other = MONTHS[(at + (1 if after else -1)) % 12]
    word = "after" if after else "before"
    return f"{which(rng)} month comes {word} {MONTHS[at]}?", f"{other} comes {word} {MONTHS[at]}."


def season(rng):
    at = rng.randrange(4)
    here, following = SEASONS[at], capital_first(SEASONS[(at + 1) % 4])
    return f"{which(rng)} season comes after {here}?", f"{following} comes after {here}."


def letter(rng):
    at = rng.randrange(25)
    here, following = LETTERS[at], LETTERS[at + 1]
    return (f"{which(rng)} letter comes after {here}?",
            f"The letter {following} comes after {here}.")


def number_next(rng):
    n = rng.randint(0, 99)
    if rng.random() < 0.5:
        return f"{which(rng)} number comes after {n}?", f"{n + 1} comes after {n}."
    return f"{which(rng)} number comes before {n + 1}?", f"{n} comes before {n + 1}."


def count(rng):
    top = rng.randint(3, 20)
    target = NUMBERS[top] if rng.random() < 0.5 else str(top)
    if rng.random() < 0.3 and top <= 10:
        return f"Count down from {target}.", ", ".join(str(n) for n in range(top, -1, -1)) + "!"
    form = rng.choice(("Count to {n}.", "Can you count to {n}?", "Please count to {n}.",
                       "Count from one to {n}."))
    return fill(form, n=target), ", ".join(str(n) for n in range(1, top + 1)) + "."


def compare(rng):
    a, b = sorted(rng.sample(range(len(SIZES)), 2))
    small, big = SIZES[a], SIZES[b]
    x, y = rng.sample((small, big), 2)
    if rng.random() < 0.5:
        return (f"Which is bigger, {article(x)} or {article(y)}?",
                f"{capital_first(article(big))} is bigger than {article(small)}.")
    return (f"Which is smaller, {article(x)} or {article(y)}?",
            f"{capital_first(article(small))} is smaller than {article(big)}.")


def compare_numbers(rng):
    a, b = rng.sample(range(0, 51), 2)
    form = rng.choice(("Which number is bigger, {a} or {b}?", "What is more, {a} or {b}?"))
    return fill(form, a=str(a), b=str(b)), f"{max(a, b)} is bigger than {min(a, b)}."


def kind_of(rng):
    name = rng.choice(list(CLASSES))
    word = rng.choice(CLASSES[name].split())
    thing = article(word) if name not in ("color", "number") else word
    if rng.random() < 0.5:
        return f"Name {article(name)}.", f"{capital_first(thing)} is {article(name)}."
    other = rng.choice(list(CLASSES))
    if word in CLASSES[other].split() or word == "lily":  # Lily is a name, too
        return f"Is {thing} {article(name)}?", f"Yes, {thing} is {article(name)}."
    return f"Is {thing} {article(other)}?", f"No, {thing} is {article(name)}."


def plural_of(rng):
    one, many = rng.choice(PLURAL_PAIRS)
    form = rng.choice(("What is the plural of {w}?", "One {w}, two what?"))
    return fill(form, w=one), f"One {one}, two {many}."


def rhyme(rng):
    a, b = rng.sample(rng.choice(RHYME_PAIRS), 2)
    form = rng.choice(("What rhymes with {w}?", "Find a rhyme for {w}.",
                       "Which word rhymes with {w}?"))
    return fill(form, w=a), f"{capital_first(b)} rhymes with {a}."


def spell(rng):
    word = rng.choice(SPELL)
    form = rng.choice(("How do you spell {w}?", "Spell the word {w}.", "Can you spell {w}?"))
    return fill(form, w=word), "-".join(word.upper()) + "."


def unknown(rng):
    x, y = (word.replace("_", " ") for word in rng.sample(UNKNOWN_X, 2))
    form = rng.choice(UNKNOWN_VERBS if rng.random() < 0.6 else UNKNOWN_FORMS)
    form = form.replace("{t}", rng.choice(UNKNOWN_THINGS))
    if rng.random() < 0.15:
        x = made_up_name(rng)
    numbers = {"{n}": str(rng.randint(100, 9999)), "{m}": str(rng.randint(11, 999)),
               "{year}": str(rng.randint(1500, 2030))}
    if rng.random() < 0.5:
        word = article(rng.choice(lex.ANIMALS))
    else:
        word = "the " + rng.choice(list(lex.PLACES))
    for slot, value in {"{x}": x, "{y}": y, "{w}": word, **numbers}.items():
        form = form.replace(slot, value)
    return form, rng.choice(UNKNOWN_ANSWERS)


def named_hello(rng):
    name = made_up_name(rng) if rng.random() < 0.3 else rng.choice(lex.GIRLS + lex.BOYS)
    form = rng.choice(("My name is {n}.", "I am {n}.", "Hi, I am {n}.", "Hello, my name is {n}!"))
    answer = rng.choice(("Hello, {n}! I am Owlet. Would you like a story?",
                         "Nice to meet you, {n}! I am Owlet."))
    return fill(form, n=name), fill(answer, n=name)


TALK = [(WHO, WHO_ANSWERS)] * 3 + [
    (ROBOT, ROBOT_ANSWERS), (CAN, CAN_ANSWERS), (CAN, CAN_ANSWERS), (MADE, MADE_ANSWERS),
    (AGE, AGE_ANSWERS), (LIKES, LIKES_ANSWERS), (HELLO, HELLO_ANSWERS), (HELLO, HELLO_ANSWERS),
    (HOW, HOW_ANSWERS), (THANKS, THANKS_ANSWERS), (BYE, BYE_ANSWERS),
    (["Tell me a joke.", "Do you know a joke?", "Make me laugh."], JOKES),
    (["Tell me a riddle.", "Do you know a riddle?", "Give me a riddle."], RIDDLES)] + FEELING


def small_talk(rng):
    questions, answers = rng.choice(TALK)
    return rng.choice(questions), rng.choice(answers)


def passage(rng):
    """A few sentences and a question about them."""
    name = made_up_name(rng) if rng.random() < 0.2 else rng.choice(lex.GIRLS + lex.BOYS)
    friend = rng.choice([other for other in lex.GIRLS + lex.BOYS if other != name])
    place = rng.choice(list(lex.PLACES))
    shade = rng.choice(lex.COLORS)
    thing = rng.choice(("ball", "kite", "hat", "book", "cup", "scarf", "shell", "box"))
    item = article(f"{shade} {thing}")
    verb, did = rng.choice((("find", "found"), ("see", "saw"), ("buy", "bought"), ("lose", "lost")))
    met = rng.choice(("met", "called", "visited"))
    text = f"{name} went to the {place}. There {name} {did} {item}. Then {name} {met} {friend}."
    question, answer = rng.choice((
        (f"What did {name} {verb}?", f"{name} {did} {item}."),
        (f"Where did {name} go?", f"{name} went to the {place}."),
        (f"What color was the {thing}?", f"The {thing} was {shade}."),
        (f"Who went to the {place}?", f"{name} went to the {place}.")))
    return f"{text} {question}", answer


KINDS = (
    [total] * 5 + [difference] * 3 + [product] * 2 + [word_sum] * 2 + [opposite] * 4 + [color] * 3 +
    [mix] + [animal_sound] * 2 +
    [baby, legs, home, food, day, day, month, season, letter, number_next, count, count, compare,
     compare, compare_numbers, kind_of, kind_of, plural_of, rhyme, spell] +
    [fact] * 5 + [unknown] * 7 + [named_hello] + [small_talk] * 7 + [passage] * 4 +
    [beyond] * 19 + [skill] * 12)


def make_exchange(rng):
    kind = rng.choice(KINDS)
    return fresh(kind, rng) if kind is unknown else kind(rng)
