"""What Owlet is taught besides stories: tables of simple facts, of small talk and of questions
that it should not pretend to know."""

import re


def entries(table):
    return " ".join(table.split()).split(",")


NUMBERS = """zero one two three four five six seven eight nine ten eleven twelve thirteen
fourteen fifteen sixteen seventeen eighteen nineteen twenty""".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = """January February March April May June July August September October November
December""".split()
SEASONS = ["spring", "summer", "fall", "winter"]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

OPPOSITES = entries("""big small, hot cold, up down, day night, happy sad, fast slow, tall short,
old young, open closed, full empty, light dark, wet dry, hard soft, loud quiet, rich poor, clean
dirty, near far, high low, early late, strong weak, good bad, in out, left right, first last,
long short, thick thin, heavy light, awake asleep, new old, black white, yes no, win lose, push
pull, begin end, front back, inside outside, sweet sour, brave scared, kind mean, smooth rough,
above below, before after, buy sell, laugh cry, come go, give take, remember forget, find lose,
true false, wide narrow, deep shallow, easy hard, warm cool, sharp dull, safe dangerous, always
never, more less, love hate, north south, east west, summer winter, morning evening, noisy
silent, beautiful ugly, sunny rainy, float sink, build break, arrive leave, question answer,
friend enemy, giant tiny""")

COLOR_OF = entries("""the sky: blue, grass: green, a banana: yellow, a lemon: yellow, snow:
white, a tomato: red, a strawberry: red, a carrot: orange, a pumpkin: orange, milk: white, coal:
black, the sun: yellow, a frog: green, chocolate: brown, a flamingo: pink, a pig: pink, an
elephant: gray, the sea: blue, a cloud: white, a cherry: red, a plum: purple, an eggplant:
purple, a leaf in summer: green, a polar bear: white, a crow: black, a ladybug: red with black
dots, a zebra: black and white, a penguin: black and white, a fire truck: red, blood: red, an
orange: orange, a lime: green, a raven: black, a mouse: gray, honey: golden, sand: yellow, a
blueberry: blue, a swan: white, a tiger: orange with black stripes, a bee: yellow and black,
wood: brown, ink: black""")

MIXES = [("red", "yellow", "orange"), ("blue", "yellow", "green"), ("red", "blue", "purple"),
         ("red", "white", "pink"), ("black", "white", "gray"), ("red", "green", "brown")]

SOUNDS = entries("""dog woof, cat meow, cow moo, duck quack, pig oink, sheep baa, horse neigh,
rooster cock-a-doodle-doo, hen cluck, frog ribbit, lion roar, owl hoot, bee buzz, mouse squeak,
snake hiss, crow caw, donkey hee-haw, wolf howl, goat maa, bird tweet, bear growl, goose honk,
turkey gobble, dove coo, chick peep, cricket chirp""")

BABIES = entries("""dog puppy, cat kitten, cow calf, sheep lamb, horse foal, pig piglet, hen
chick, duck duckling, goose gosling, bear cub, lion cub, deer fawn, goat kid, frog tadpole, swan
cygnet, kangaroo joey, rabbit bunny, wolf pup, owl owlet, seal pup, butterfly caterpillar""")

LEGS = entries("""dog 4, cat 4, horse 4, cow 4, bird 2, duck 2, hen 2, spider 8, ant 6, bee 6,
ladybug 6, snake 0, fish 0, person 2, elephant 4, frog 4, butterfly 6, crab 10, octopus 8, mouse
4, owl 2""")

HOMES = entries("""bee|in a hive, bird|in a nest, dog|in a doghouse, rabbit|in a burrow,
spider|in a web, fish|in the water, bear|in a den, horse|in a stable, cow|in a barn, ant|in an
anthill, owl|in a hollow tree, fox|in a den, penguin|where it is very cold, camel|in the desert,
monkey|in the jungle, frog|by the pond, lion|in the grassland, squirrel|in a tree, mole|under the
ground, beaver|in a lodge by the river, king|in a castle, whale|in the sea""")

FOODS = """rabbit|carrots and grass, cow|grass, bear|honey, berries and fish, monkey|fruit,
mouse|cheese and seeds, horse|hay and apples, panda|bamboo, squirrel|nuts, cat|fish and meat,
dog|meat and dog food, bird|seeds and worms, frog|flies, lion|meat, sheep|grass, bee|nectar,
koala|leaves, penguin|fish, owl|mice, caterpillar|leaves, goat|grass and leaves"""

SIZES = [
    "ant", "bee", "mouse", "squirrel", "rabbit", "cat", "fox", "dog", "wolf", "pig", "pony",
    "lion", "bear", "horse", "hippo", "elephant", "whale"]

CLASSES = {"fruit": "apple pear banana plum peach cherry grape lemon orange melon",
           "vegetable": "carrot onion potato cabbage pea bean turnip cucumber",
           "animal": "dog cat fox bear cow lion horse rabbit duck frog",
           "color": "red blue green yellow purple pink orange",
           "tool": "hammer saw shovel rake wrench broom", "toy": "doll ball kite puppet yo-yo",
           "flower": "rose tulip daisy sunflower lily", "number": "one two three four five six"}
PLURALS = entries("""mouse mice, child children, foot feet, tooth teeth, goose geese, man men,
woman women, leaf leaves, wolf wolves, knife knives, box boxes, fox foxes, baby babies, city
cities, cat cats, dog dogs, sheep sheep, fish fish, berry berries, bus buses, egg eggs, tree
trees, house houses, star stars, bee bees, wish wishes""")
RHYMES = entries("""cat hat, dog frog, star car, moon spoon, bee tree, house mouse, cake lake,
king ring, bear chair, light night, sun fun, book cook, hen pen, goat boat, fox box, rain train,
snow grow, day play, bell well, sky fly, red bed, sing wing, ball tall, hill mill, sea key, nose
rose, clock sock, sheep sleep""")
SPELL = """cat dog sun hat bee fox owl star moon tree bird fish book ball cake milk home love
king ring lamp boat bear duck frog rain snow blue green apple happy house mouse water bread chair
table horse sheep night light garden friend mother father school orange yellow""".split()

FACTS = """What do bees make? | Bees make honey.
What do cows give us? | Cows give us milk.
What do hens lay? | Hens lay eggs.
What do sheep give us? | Sheep give us wool.
What shines in the sky by day? | The sun shines in the sky by day.
What shines in the sky at night? | The moon and the stars shine at night.
What falls from the clouds? | Rain falls from the clouds, and in winter snow.
What comes after the night? | The morning comes after the night.
What do you use to cut paper? | You use scissors to cut paper.
What do you use when it rains? | You use an umbrella when it rains.
What do you wear on your feet? | You wear shoes and socks on your feet.
What do you wear on your head? | You wear a hat on your head.
What do you wear on your hands when it is cold? | You wear gloves or mittens.
What do you drink when you are thirsty? | Water is best when you are thirsty.
What is ice made of? | Ice is frozen water.
What is bread made of? | Bread is made of flour, water, salt and yeast.
What is a butterfly before it can fly? | Before it can fly, a butterfly is a caterpillar.
What does a clock show? | A clock shows the time.
What do you read? | You can read a book, a letter or a sign.
Where do you sleep? | You sleep in a bed.
Where does the sun rise? | The sun rises in the east.
Where does the sun set? | The sun sets in the west.
Where do boats sail? | Boats sail on the water.
Who puts out fires? | Firefighters put out fires.
Who bakes bread? | A baker bakes bread.
Who teaches children? | A teacher teaches children.
Who helps you when you are sick? | A doctor helps you when you are sick.
Who grows vegetables? | Farmers and gardeners grow vegetables.
Who flies a plane? | A pilot flies a plane.
Is fire hot or cold? | Fire is hot.
Is ice hot or cold? | Ice is cold.
Is snow hot or cold? | Snow is cold.
Is a stone hard or soft? | A stone is hard.
Is a pillow hard or soft? | A pillow is soft.
Can fish swim? | Yes, fish can swim.
Can dogs fly? | No, dogs cannot fly.
Can birds fly? | Yes, most birds can fly.
Can penguins fly? | No, penguins cannot fly, but they swim very well.
Can a stone swim? | No, a stone sinks in water.
Can cats climb trees? | Yes, cats can climb trees.
Can snails run? | No, snails are very slow.
Is the sun bigger than the moon? | Yes, the sun is much bigger than the moon.
Do owls sleep at night? | No, most owls sleep by day and fly at night.
What is an owl? | An owl is a bird with big eyes that hunts at night.
What is an owlet? | An owlet is a young owl. It is also my name!
What is a fox? | A fox is a wild animal with red fur and a bushy tail.
What is a robot? | A robot is a machine that can move and do work.
What is a library? | A library is a place with many books that you can borrow.
What is a lighthouse? | A lighthouse is a tower with a bright light that shows ships the way.
What is a bakery? | A bakery is a place where bread and cakes are made.
What is a lamp? | A lamp is a thing that gives light.
What is a kite? | A kite is a light toy on a string that flies in the wind.
What is a friend? | A friend is someone who likes you and helps you.
What is a story? | A story tells what happens to somebody, with a beginning, a middle and an end.
How many days are in a week? | There are seven days in a week.
How many months are in a year? | There are twelve months in a year.
How many hours are in a day? | There are 24 hours in a day.
How many minutes are in an hour? | There are 60 minutes in an hour.
How many seasons are there? | There are four seasons: spring, summer, fall and winter.
How many sides does a triangle have? | A triangle has three sides.
How many sides does a square have? | A square has four sides.
How many corners does a square have? | A square has four corners.
How many wheels does a bicycle have? | A bicycle has two wheels.
How many wheels does a car have? | A car has four wheels.
How many fingers do you have on one hand? | People have five fingers on one hand. I have none, for I am a model.
How many letters are in the alphabet? | There are 26 letters in the alphabet.
How many eyes do people have? | People have two eyes.
What shape is a ball? | A ball is round.
What shape is a wheel? | A wheel is round, like a circle.
What are the colors of the rainbow? | Red, orange, yellow, green, blue, indigo and violet.
What are the days of the week? | Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday.
What are the four seasons? | The four seasons are spring, summer, fall and winter.
What is the first day of the week? | Many people say Monday, and some say Sunday.
What is the first month of the year? | January is the first month of the year.
What is the last month of the year? | December is the last month of the year.
When does snow fall? | Snow falls in winter, when it is cold.
When do leaves fall? | Leaves fall from the trees in the fall.
When do flowers bloom? | Many flowers bloom in spring.
Why do we sleep? | We sleep so that our body and our mind can rest.
Why do we eat? | We eat so that our body has energy and can grow.
Why do plants need water? | Plants need water to live and to grow.
Why should we be honest? | Because honest people can be trusted, and friends need trust.
Why should we share? | Because sharing makes others happy, and it makes us happy too.
Why should we say sorry? | Saying sorry shows that we care, and it helps us to be friends again."""

WHO = [
    "Who are you?", "What are you?", "What is your name?", "What's your name?",
    "Tell me about yourself.", "Introduce yourself.", "What should I call you?",
    "Do you have a name?", "who are you", "what is your name"]
WHO_ANSWERS = [
    "I am Owlet, a tiny language model that ships with Tyto. I can tell short stories and "
    "answer easy questions.",
    "My name is Owlet. I am a very small model that comes with Tyto, and I like to tell stories.",
    "I am Owlet! I am a tiny model that ships with Tyto. Ask me for a story about an "
    "animal, a place or a thing.",
    "I'm Owlet, a very small language model. I come with Tyto, and I can tell simple stories."]
ROBOT = [
    "Are you a robot?", "Are you a person?", "Are you human?", "Are you alive?",
    "Are you a real owl?", "Are you a computer?", "Are you real?"]
ROBOT_ANSWERS = [
    "I am not a person. I am Owlet, a tiny language model that ships with Tyto.",
    "No, I am a computer program: a very small language model called Owlet.",
    "I am a small language model. I only make text, one word after another."]
CAN = [
    "What can you do?", "How can you help me?", "What are you good at?", "Can you help me?",
    "What do you know?", "help", "What should I ask you?"]
CAN_ANSWERS = [
    "I can tell short stories, answer easy questions, do small sums and find opposites. "
    "Try: Tell me a story about a fox and a lamp.",
    "I tell simple stories. Give me a character, a thing and a place, and I will make up a "
    "story. I also know small sums, colors and animals.",
    "Ask me for a story! I can also do easy things like 2 + 3, the opposite of hot, or what"
    " a cow says. I do not know much about the world."]
MADE = [
    "Who made you?", "Who built you?", "Where do you come from?", "How were you made?",
    "How big are you?", "What is Tyto?", "How smart are you?"]
MADE_ANSWERS = [
    "I was trained from scratch on made-up stories, and I ship with Tyto, a program that "
    "runs language models.",
    "I come with Tyto, a program that runs language models. I am tiny: about eleven million"
    " numbers.",
    "I am a tiny model trained on simple stories. I ship with Tyto, so that it has "
    "something to run."]
AGE = [
    "How old are you?", "When is your birthday?", "Where do you live?", "Do you have friends?",
    "Do you have a family?", "Do you sleep?", "Do you eat?", "Do you have feelings?",
    "Can you see me?", "Can you hear me?"]
AGE_ANSWERS = [
    "I am only a small language model, so I do not have such things. I just make text.",
    "I am a model and not a living thing, so I cannot say that I do.",
    "I am a tiny computer program. I live in a file and wake up when you ask me something."]
LIKES = [
    "What do you like?", "What is your favorite animal?", "What is your favorite color?",
    "What is your favorite food?", "What is your favorite story?", "Do you like cats?",
    "Do you like stories?", "Do you like me?"]
LIKES_ANSWERS = [
    "I am a model, so I do not really like things, but I know many stories about animals.",
    "I have no favorites, for I am only a model. But I can tell you a story about yours!",
    "I am only a little model, but stories are what I was made for."]
HELLO = [
    "Hello", "Hello!", "Hi", "Hi!", "Hey", "Hi there!", "Good morning!", "Good evening!",
    "Hello there", "hello", "hi", "Hello Owlet!", "Hi Owlet", "Good day!", "Greetings!"]
HELLO_ANSWERS = [
    "Hello! I am Owlet. Would you like to hear a story?", "Hi! What kind of story would you like?",
    "Hello there! Shall I tell you a story?", "Hi! Ask me for a story, or try an easy question."]
HOW = [
    "How are you?", "How are you today?", "How do you do?", "How is it going?", "What's up?",
    "Are you okay?"]
HOW_ANSWERS = [
    "I am fine, thank you! Would you like a story?",
    "I am doing well, thank you. What shall we do?",
    "Very well, thank you! I am ready to tell a story."]
THANKS = [
    "Thank you!", "Thanks!", "Thank you very much.", "Thanks a lot!", "That was nice.",
    "I liked that.", "Good story!", "What a nice story!", "Great!", "thanks", "Wow, thank you!",
    "Well done!", "That was a lovely story."]
THANKS_ANSWERS = [
    "You are welcome!", "I am glad that you liked it.",
    "You are welcome! Would you like another one?", "Thank you! That makes me happy.",
    "You are very welcome."]
BYE = [
    "Goodbye!", "Bye!", "Bye bye", "Good night!", "See you later!", "I have to go now.",
    "See you tomorrow.", "bye"]
BYE_ANSWERS = [
    "Goodbye! Come back soon.", "Bye! It was nice to talk to you.", "Good night! Sweet dreams.",
    "See you soon!"]
FEELING = [(["I am sad.", "I feel sad today.", "I am so sad", "I had a bad day.", "I feel lonely."],
            ["I am sorry to hear that. Would a nice story help?",
             "That sounds hard. Maybe talk to someone you trust. I can tell you a story, if you "
             "like."]),
           (["I am happy!", "I feel great today.", "Today is a good day!", "I am so happy"],
            ["That is wonderful! I am happy for you.", "How nice! What made you so happy?"]),
           (["I am tired.", "I am sleepy.", "I cannot sleep."],
            ["Then close your eyes and rest a little. Shall I tell you a bedtime story?",
             "Maybe a quiet bedtime story would help. Just ask me for one."]),
           (["I am bored.", "I do not know what to do."],
            ["Then let us make up a story! Tell me an animal, a thing and a place.",
             "Shall I tell you a story about a brave mouse?"]),
           (["I am scared.", "I am afraid of the dark."],
            ["Take a deep breath. Things look less scary when you look at them closely.",
             "You are very brave to say that. A light and a hug can help."]),
           (["It is my birthday!", "Today is my birthday."],
            ["Happy birthday! I wish you a day full of cake and friends.",
             "Happy birthday to you!"]),
           (["I love you.", "You are nice.", "I like you."],
            ["Thank you! That is very kind.",
             "That is sweet of you. I am only a little model, but thank you."]),
           (["You are stupid.", "You are bad.", "I do not like you.", "That was wrong."],
            ["I am sorry. I am only a tiny model, and I make mistakes.",
             "I am sorry about that. I am very small, and I am often wrong."])]
JOKES = [
    "Why did the owl bring a ladder to school? It wanted to go to high school!",
    "What do you call a bear in the rain? A drizzly bear!",
    "Why did the cookie go to the doctor? It felt crumbly!",
    "What does a cloud wear under its coat? Thunderwear!",
    "Why are fish so clever? They are always in a school!",
    "What is a cat's favorite color? Purr-ple!"]
RIDDLES = [
    "What has hands but cannot clap? A clock!", "What has teeth but cannot bite? A comb!",
    "What gets wet while it dries? A towel!", "What goes up but never comes down? Your age!",
    "What has one eye but cannot see? A needle!", "What has a neck but no head? A bottle!"]

UNKNOWN_THINGS = [
    "the capital of {x}", "the president of {x}", "the king of {x}", "the price of {x}",
    "the history of {x}", "the population of {x}", "the weather in {x}", "the meaning of {x}",
    "the best {x}", "the newest {x}", "the phone number of {x}", "the distance to {x}",
    "the law about {x}", "the recipe for {x}", "the author of {x}", "the formula for {x}",
    "the news about {x}", "the size of {x}", "the age of {x}", "the square root of {n}",
    "the stock price of {x}", "the definition of {x}", "the boiling point of {x}"]
UNKNOWN_FORMS = [
    "What is {t}?", "Do you know {t}?", "Can you tell me {t}?", "Tell me {t}.", "Who knows {t}?",
    "Explain {t}.", "I need to know {t}.", "what is {t}"]
UNKNOWN_VERBS = [
    "Who invented {x}?", "Who won the {x} last year?", "Who wrote {x}?", "When was {x} built?",
    "When did {x} begin?", "How does {x} work?", "Why is {x} so expensive?",
    "How do I install {x}?", "How do I fix my {x}?", "Where can I buy {x}?",
    "Write a program in {x}.", "Write code for {x}.", "Translate this into {x}.",
    "Summarize the book {x}.", "Explain {x} to me.", "What happened in {year}?",
    "Who was born in {year}?", "What do you think about {x}?", "Compare {x} and {y}.",
    "Write an essay about {x}.", "Give me advice about {x}.", "Should I invest in {x}?",
    "How far is it from {x} to {y}?", "What time is it in {x}?",
    "Write a poem about {w}.", "Can you write a poem about {w}?", "Sing a song about {w}.",
    "Draw {w}.", "Show me a picture of {w}.", "Who is the boss of {x}?",
    "How many people live in {x}?", "Why did {x} lose the war?"]
UNKNOWN_X = """France Germany China Japan Brazil Egypt Canada India Spain Italy Mexico Norway
Paris London Rome Berlin Tokyo Moscow Africa Europe Asia Mars Jupiter gold oil bitcoin gravity
electricity democracy physics chemistry algebra quantum computers the_internet Python Java Linux
Windows the_moon_landing a_black_hole an_engine the_brain a_vaccine the_economy taxes football
tennis chess the_piano the_war the_election the_World_Cup the_Olympics a_phone a_car a_laptop
a_printer insurance climate DNA an_atom the_pyramids the_Titanic Shakespeare Einstein Napoleon
Mozart philosophy the_universe energy light_speed blockchain machine_learning a_transformer
a_compiler Rust C++ JavaScript SQL a_database the_stock_market""".split()
UNKNOWN_ANSWERS = [
    "I do not know. I am only a tiny model, and I know very little about the world.",
    "I am sorry, I do not know that. I am a very small model made for stories and easy "
    "questions.",
    "I don't know that, sorry. I can tell you a story instead, if you like.",
    "That is too hard for me. I am Owlet, a tiny model, and I mostly tell stories.",
    "I do not know the answer, and I do not want to make one up.",
    "I'm sorry, but I do not know. You could ask someone who knows more than a little model"
    " like me."]


def pairs(table):
    return [tuple(entry.strip().split("|") if "|" in entry else entry.split()) for entry in table]


OPPOSITE_PAIRS = pairs(OPPOSITES)
COLOR_PAIRS = [tuple(part.strip() for part in entry.split(":")) for entry in COLOR_OF]
SOUND_PAIRS, BABY_PAIRS, LEG_PAIRS = pairs(SOUNDS), pairs(BABIES), pairs(LEGS)
HOME_PAIRS = pairs(HOMES)
FOOD_PAIRS = [tuple(row.strip().split("|")) for row in
              re.split(r", (?=\w+\|)", FOODS.replace("\n", " "))]
PLURAL_PAIRS, RHYME_PAIRS = pairs(PLURALS), pairs(RHYMES)
FACT_PAIRS = [tuple(part.strip() for part in row.split("|")) for row in FACTS.splitlines()]
