"""The training samples: story chats, questions about stories, continuations, small chats, prose."""

import re

from asking import make_request, scuff
from chats import make_exchange
from facts import BYE, BYE_ANSWERS, THANKS, THANKS_ANSWERS
from grammar import capital
from story import article, make_story

BOS, END, EOT = "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"
HEADER, HEADER_END = "<|start_header_id|>", "<|end_header_id|>"
STORY_GAP = "\n\n\n"

SYSTEMS = [
    "You are Owlet, a tiny storyteller.", "You are a helpful assistant.",
    "You are a friendly storyteller.", "You tell short stories for children.", "Answer briefly.",
    "You are Owlet. Be kind and honest.", "You are a small and friendly model that tells stories.",
    "Be helpful.", "You are a kind teacher."]
CONTINUE = [
    "Continue: {t}", "continue: {t}", "Continue this story: {t}", "Please continue: {t}",
    "Finish this story: {t}", "Go on with this story: {t}", "How does this story go on? {t}",
    "Continue the story.\n\n{t}", "This is how my story begins: {t} How does it go on?",
    "What happens next? {t}"]
ANOTHER = [
    "Tell me another story.", "Another one, please!", "One more story, please.",
    "Tell me one more.", "Again! Another story!", "Can I have another one?",
    "Now a different story, please."]
TITLED = [" Give it a title.", " Please add a title.", " It should have a title."]


def render(messages):
    text = BOS
    for role, content in messages:
        text += f"{HEADER}{role}{HEADER_END}\n\n{content.strip()}{EOT}"
    return text


def system(rng):
    return [("system", rng.choice(SYSTEMS))] if rng.random() < 0.12 else []


def questions(story):
    """Questions that the story answers, with their answers."""
    hero, plot = story.hero, story.plot
    name = story.slots["hn"]
    pairs = [(capital(story.fill(question)), capital(story.fill(answer))) for question,
             answer in plot.qa]
    who = article(hero.kind) + (f" named {hero.name}" if hero.name else "")
    pairs += [("Who is the story about?", f"The story is about {who}."),
              ("Who was in the story?", f"The story is about {who}."),
              ("Where did it happen?", f"It happened {story.slots['at']}."),
              ("Where does the story take place?", f"It takes place {story.slots['at']}."),
              (f"How did {name} feel at the end?", f"At the end, {name} felt {plot.feel}.")]
    if hero.name:
        pairs += [(f"What was the name of the {hero.kind}?",
                   f"The {hero.kind} was named {hero.name}."),
                  (f"Who was {hero.name}?", f"{hero.name} was {article(hero.kind)}.")]
    if story.thing:
        pairs.append((f"What did the {story.thing} look like?",
                      f"It was {article(f'{story.adjective} {story.thing}')}."))
    friend = story.friend
    if friend.titled() in story.text and not friend.human:
        pairs.append((f"Who was {friend.name}?", f"{friend.name} was {article(friend.kind)}."))
    return pairs


def story_chat(rng):
    story = make_story(rng)
    request = make_request(story, rng)
    answer = story.text
    if rng.random() < 0.03 and request.endswith("."):
        request += rng.choice(TITLED)
        answer = f"{story.title()}\n\n{answer}"
    return system(rng) + [("user", request), ("assistant", answer)], story


def plain_story_chat(rng):
    return render(story_chat(rng)[0])


def question_chat(rng):
    messages, story = story_chat(rng)
    asked = questions(story)
    for question, answer in rng.sample(asked, rng.randint(1, 3)):
        messages += [("user", scuff(question, rng)), ("assistant", answer)]
    if rng.random() < 0.25:
        messages += [("user", rng.choice(THANKS)), ("assistant", rng.choice(THANKS_ANSWERS))]
    return render(messages)


def repeated_chat(rng):
    messages, _ = story_chat(rng)
    for _ in range(rng.randint(1, 3)):
        story = make_story(rng)
        request = rng.choice(ANOTHER) if rng.random() < 0.4 else make_request(story, rng)
        messages += [("user", request), ("assistant", story.text)]
    return render(messages)


def continuation(rng):
    text = make_story(rng).text
    ends = [match.end() for match in re.finditer(r'[.!?]"?(?= [A-Z"]|\n)|,(?= )', text)]
    cut = rng.choice([end for end in ends if end < len(text) // 2][:10])
    if rng.random() < 0.25:  # in the middle of a sentence
        cut = text.index(" ", rng.randint(10, len(text) // 3))
    given = text[:cut]
    if rng.random() < 0.6:
        given = given.replace("\n\n", " ")
    request = rng.choice(CONTINUE).replace("{t}", given)
    return render(system(rng) + [("user", request), ("assistant", text[cut:])])


def small_chat(rng):
    messages = system(rng)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        question, answer = make_exchange(rng)
        messages += [("user", scuff(question, rng)), ("assistant", answer)]
    roll = rng.random()
    if roll < 0.08:
        messages += [("user", rng.choice(THANKS)), ("assistant", rng.choice(THANKS_ANSWERS))]
    elif roll < 0.12:
        messages += [("user", rng.choice(BYE)), ("assistant", rng.choice(BYE_ANSWERS))]
    elif roll < 0.22:
        story = make_story(rng)
        messages += [("user", make_request(story, rng)), ("assistant", story.text)]
    return render(messages)


def titled_story(rng, held=False):
    story = make_story(rng, held)
    return f"{story.title()}\n\n{story.text}"


def prose(rng):
    """A page of stories without a chat around it."""
    count = rng.randint(1, 6)
    if rng.random() < 0.25:
        stories = [make_story(rng).text for _ in range(count)]
    else:
        stories = [titled_story(rng) for _ in range(count)]
    return BOS + STORY_GAP.join(stories) + END


MIX = [(plain_story_chat, 52), (question_chat, 9), (repeated_chat, 3), (continuation, 5),
       (small_chat, 22), (prose, 9)]
MAKERS, WEIGHTS = zip(*MIX)


def make_sample(rng):
    return rng.choices(MAKERS, WEIGHTS)[0](rng)
