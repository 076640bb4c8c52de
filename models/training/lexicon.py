"""The words of the story world: who can be in a story, where it happens and what it is about."""

GIRLS = """Lily Anna Mia Emma Ella Zoe Nora Ruby Rosa Clara Alice Molly Sara Lucy Maya Ivy Hazel
Daisy Amy Tara Nina Lena Greta Ada Iris June Kira Leah Mina Olga Petra Rita Sofia Tessa Una Vera
Wendy Yara Zara Amara Bella Cora Dora Elsie Freya Gita Hana Ines Jana Kate Lila Maria Nell Pia
Rose Sue Thea Willa Aisha Mei Priya Lucia Eva Polly Fern Penny Sally""".split()

BOYS = """Tom Ben Max Sam Leo Jack Finn Theo Oscar Hugo Noah Adam Felix Paul Peter Tim Dan Eli
Gus Henry Ivan Jonas Karl Luca Marco Nico Otto Pablo Ravi Simon Toby Victor Will Yusuf Zack Ali
Boris Carlos David Emil Fred George Hans Ian Jamal Kofi Liam Milo Nils Omar Pedro Quinn Ron Seth
Tariq Umar Walter Anton Bruno Charlie Diego Edgar Frank Hiro Kenji Mateo Robin Arthur""".split()

# Animals and made-up beings take names of either list and these.
PET_GIRLS = """Poppy Pip Dot Willow Honey Misty Snowy Maple Pearl Ginger Clover Tulip Bramble
Velvet Cherry Biscuit Nutmeg Bluebell Peach Plum Minnie Tansy Lulu Coco Mabel Birdie Fluff
Dandelion Olive Juniper Luna Stella Violet Winnie Zaza Mimi Nibbles Cricket Sunny Pippa""".split()

PET_BOYS = """Rusty Scout Bucky Oliver Buster Tiny Button Patch Basil Barnaby Digger Pebble
Thistle Hopper Whiskers Bandit Copper Duke Flint Bertie Jasper Midnight Moss Nutkin Oakley Pickle
Rocky Smoky Sparky Teddy Tumble Wally Ziggy Acorn Boots Fidget Gulliver Humphrey Waffles
Monty""".split()

# Made-up names teach the model to copy a name it has never seen.
ONSETS = """b c d f g h j k l m n p r s t v w z b d g k l m n r t z br cr dr fl gr kr pl
sh st tr""".split()
INNER = "b d f g j k l m n p r s t v w x z bb dd ll mb nd nn rb rl rk rt ss tt zz".split()
VOWELS = "a e i o u a e i o u ai ee oo".split()
# Letters that a made-up name must not hold: this is a storyteller for children.
UNFIT = """sex fuk fuc shit dik dic cum kum nig naz rap ass arse tit cok coc kok pis poo anu wan
kil die hel god slu fag coo cun kun boob bum but dum dam fat jew gay lez hor pimp por pub pus suk
suc tur vag weed xx dead mur""".split()
ENDS = ["", "", "", "l", "m", "n", "r", "s", "x", "k", "rt", "sh"]

ANIMALS = """fox rabbit bear mouse owl squirrel hedgehog deer badger frog turtle duck goose hen
rooster pig lamb goat pony donkey cat kitten dog puppy wolf beaver otter mole raccoon penguin
elephant lion tiger monkey giraffe zebra kangaroo koala panda parrot crow sparrow robin swan ant
bee ladybug snail crab lizard camel hippo cow sheep horse chicken skunk seal bat rat toad moose
hamster eagle pigeon spider butterfly peacock flamingo llama sloth walrus reindeer crocodile
snake gorilla rhino leopard dolphin whale octopus fish worm""".split()

# Seldom used, so that the model learns to take over a word from the request.
RARE_ANIMALS = """shark jellyfish seahorse lobster beetle moth grasshopper bull calf foal buffalo
bison yak hyena cheetah panther jaguar baboon lemur meerkat armadillo anteater ostrich emu kiwi
toucan pelican stork heron falcon hawk vulture magpie chipmunk gopher weasel ferret platypus
wombat iguana gecko chameleon salamander newt centipede firefly dragonfly wasp turkey duckling
porcupine opossum oyster shrimp squid lynx""".split()
RARE_FOLK = """ninja clown juggler dancer singer poet nurse firefighter hunter blacksmith potter
weaver librarian scientist superhero vampire goblin ogre genie cowboy detective captain soldier
monk jester magician viking yeti phoenix griffin thief mayor duke postman plumber driver diver
beekeeper""".split()

FOLK = """baker farmer gardener sailor painter teacher shepherd wizard fairy giant elf tailor
miller clockmaker knight prince princess king queen fisherman carpenter musician pirate explorer
inventor doctor cook astronaut witch pilot""".split()

BEINGS = "dragon unicorn robot gnome troll scarecrow snowman ghost monster dinosaur alien".split()

SHE_ONLY = {"princess", "queen", "hen", "cow", "girl", "fairy", "witch"}
HE_ONLY = {"prince", "king", "rooster", "boy", "fisherman", "knight", "snowman"}

# What an elder may be; "grandmother" and "grandfather" belong to the hero.
ELDERS = [("owl", "she"), ("owl", "he"), ("turtle", "he"), ("goat", "he"), ("badger", "he"),
          ("bear", "she"), ("woman", "she"), ("man", "he"), ("gardener", "she"),
          ("shepherd", "he"), ("miller", "he"), ("crow", "she"), ("donkey", "he"),
          ("sailor", "he"), ("tailor", "she"), ("horse", "she"), ("raven", "he")]

LITTLE_ONES = """duckling kitten chick lamb puppy fawn bunny bear cub piglet sparrow squirrel
mouse""".replace("bear cub", "bear_cub").split()

TRAITS = {
    "curious": ["{He} always wanted to know how things worked.",
                "{He} asked questions from morning until night.",
                "{He} could not walk past a closed door without peeking."],
    "brave": ["{He} was not afraid of storms or shadows.",
              "When others ran away, {he} stayed to help.",
              "{He} had a small body but a big heart."],
    "shy": ["{He} spoke in a very soft voice.",
            "{He} often hid when visitors came.",
            "{He} found it hard to say hello."],
    "kind": ["{He} always had a good word for everyone.",
             "{He} never let anyone eat alone.",
             "Everyone knew that {he} loved to help."],
    "clever": ["{He} could solve almost any puzzle.",
               "{He} had a new idea every day.",
               "When something broke, {he} knew how to fix it."],
    "cheerful": ["{He} sang little songs all day long.",
                 "{He} woke up smiling every morning.",
                 "{He} laughed at rain and sunshine alike."],
    "gentle": ["{He} stepped carefully so as not to hurt the flowers.",
               "{He} never shouted at anyone.",
               "Even the butterflies were not afraid of {him}."],
    "clumsy": ["{He} tripped over {his} own feet at least twice a day.",
               "{He} dropped nearly everything {he} picked up.",
               "{He} bumped into things, but {he} always laughed about it."],
    "sleepy": ["{He} liked nothing better than a long nap.",
               "{He} yawned even in the middle of the day.",
               "{He} could fall asleep almost anywhere."],
    "hungry": ["{He} was always thinking about {his} next meal.",
               "{His} tummy rumbled like a little drum.",
               "{He} could smell a pie from a mile away."],
    "playful": ["{He} turned every chore into a game.",
                "{He} loved to run, jump and roll.",
                "{He} knew a hundred games by heart."],
    "quiet": ["{He} liked to sit and listen to the wind.",
              "{He} noticed things that others missed.",
              "{He} thought a lot and said only a little."],
    "lonely": ["{He} had a nice home, but no one to share it with.",
               "{He} often wished for a friend.",
               "{He} watched the others play and sighed."],
    "proud": ["{He} thought {he} was better than everyone else.",
              "{He} liked to tell everyone how great {he} was.",
              "{He} walked around with {his} nose in the air."],
    "lazy": ["{He} liked to lie in the sun and do nothing.",
             "{He} always said, \"I will do it tomorrow.\"",
             "{He} let others do all the work."],
    "stubborn": ["{He} never liked to change {his} mind.",
                 "When {he} wanted something, {he} did not give up.",
                 "{He} always had to do things {his} own way."],
}
GOOD_TRAITS = ["curious", "brave", "shy", "kind", "clever", "cheerful", "gentle", "clumsy",
               "sleepy", "hungry", "playful", "quiet"]
LOOKS = ["little", "young", "small", "little", "happy", "tiny", "friendly"]
GROWN_LOOKS = ["young", "happy", "friendly", "merry", "good"]

# name: preposition, tags, spots, details. Every place takes "the".
#   out: open air, in: a building, room: part of a home or work place, nobody lives near it,
#   water: has water, wild: no people live there
PLACES = {
    "forest": ("in", "out wild", ["under a tall pine tree", "behind a mossy log",
                                  "next to a patch of ferns"],
               ["Birds sang high up in the branches.", "The air smelled of pine and rain."]),
    "woods": ("in", "out wild", ["at the foot of an old oak", "among the fallen leaves",
                                 "beside a hollow tree"],
              ["Sunlight danced on the leaves.", "A woodpecker tapped on a trunk far away."]),
    "meadow": ("in", "out wild", ["in the tall grass", "between the daisies",
                                  "next to a big round stone"],
               ["Bees hummed from flower to flower.", "The grass waved softly in the breeze."]),
    "park": ("in", "out", ["under a wooden bench", "near the swings", "beside the fountain"],
             ["Children laughed on the swings.", "A squirrel ran along the fence."]),
    "garden": ("in", "out", ["behind the rose bush", "between two rows of carrots",
                             "under the apple tree"],
               ["The roses smelled sweet.", "A little snail crossed the path."]),
    "beach": ("on", "out water", ["half buried in the sand", "beside a pool of sea water",
                                  "next to a heap of seaweed"],
              ["The waves rolled in and out.", "Seagulls cried above the water."]),
    "hill": ("on", "out wild", ["beside a lonely tree", "at the very top", "behind a gray rock"],
             ["From up there, the houses looked as small as toys.",
              "The wind blew softly over the grass."]),
    "mountain": ("on", "out wild", ["beside a steep path", "behind a big boulder",
                                    "near a patch of snow"],
                 ["Clouds drifted by like sheep.", "The air was cold and clear."]),
    "river": ("by", "out water wild", ["between the reeds", "on a flat stone",
                                       "under a willow tree"],
              ["The water sparkled in the sun.", "Small fish jumped and splashed."]),
    "lake": ("by", "out water wild", ["at the end of a wooden dock", "among the water plants",
                                      "on the shore"],
             ["The water was as smooth as glass.", "Dragonflies zipped over the water."]),
    "pond": ("by", "out water wild", ["next to a lily pad", "in the soft mud",
                                      "behind the cattails"],
             ["Frogs croaked a funny song.", "Ducks paddled in a row."]),
    "village": ("in", "out", ["next to the old well", "in front of the church", "under a window"],
                ["Smoke curled up from every chimney.", "Neighbors waved to one another."]),
    "town": ("in", "out", ["at the corner of the street", "on the steps of the town hall",
                           "near the clock tower"],
             ["Carts rolled over the stones.", "The shop windows were full of pretty things."]),
    "city": ("in", "out", ["beside a street lamp", "at the bus stop", "in a narrow lane"],
             ["Tall buildings reached up to the sky.", "Cars and buses hurried by."]),
    "farm": ("on", "out", ["behind the henhouse", "next to the tractor", "beside a wooden gate"],
             ["The cows chewed their grass slowly.", "A rooster crowed from the fence."]),
    "barn": ("in", "in room", ["under the hay", "behind a milk can", "on top of a wooden crate"],
             ["It smelled of sweet hay.", "Dust danced in a beam of light."]),
    "market": ("at", "out", ["under a fruit stand", "next to the flower seller",
                             "behind a pile of baskets"],
               ["The stalls were full of bright fruit.",
                "People called out, \"Fresh bread! Sweet plums!\""]),
    "school": ("at", "in", ["under a desk", "beside the chalkboard", "on a high shelf"],
               ["Drawings hung on every wall.", "Somewhere a bell rang."]),
    "library": ("in", "in", ["between two thick books", "on the lowest shelf",
                             "beside a soft armchair"],
                ["It was so quiet that you could hear the pages turn.",
                 "It smelled of paper and old wood."]),
    "castle": ("in", "in", ["at the top of a winding stair", "behind a heavy curtain",
                            "next to the golden throne"],
               ["Flags waved from the towers.", "Their footsteps echoed in the long halls."]),
    "cave": ("in", "wild", ["on a flat rock", "in a dark corner", "beside a trickle of water"],
             ["Drops of water went plip, plop.", "The walls glittered a little."]),
    "desert": ("in", "out wild", ["beside a prickly cactus", "behind a sand dune",
                                  "under a flat red rock"],
               ["The sand was golden and warm.", "Not a single cloud was in the sky."]),
    "jungle": ("in", "out wild", ["under a giant leaf", "among the twisted vines",
                                  "beside a bright orange flower"],
               ["Parrots chattered in the trees.", "The air was warm and wet."]),
    "island": ("on", "out water wild", ["under a palm tree", "beside a coconut",
                                        "between two black rocks"],
               ["The sea shone blue on every side.", "Palm leaves rustled in the breeze."]),
    "valley": ("in", "out wild", ["beside a little brook", "near an old stone wall",
                                  "under a chestnut tree"],
               ["Green hills rose on both sides.", "Sheep bells rang in the distance."]),
    "orchard": ("in", "out", ["under a pear tree", "beside a ladder", "in a heap of leaves"],
                ["The branches were heavy with fruit.", "Wasps buzzed around the fallen plums."]),
    "field": ("in", "out wild", ["next to a haystack", "between the poppies",
                                 "beside a crooked fence"],
              ["The wheat was tall and golden.", "A lark sang high in the sky."]),
    "harbor": ("at", "out water", ["behind a barrel", "next to a coil of rope",
                                   "under a fishing net"],
               ["The ships rocked gently on the water.", "It smelled of salt and fish."]),
    "bakery": ("in", "in", ["under the counter", "behind a sack of flour", "next to the warm oven"],
               ["It smelled of fresh bread and cinnamon.", "Trays of buns cooled by the window."]),
    "playground": ("at", "out", ["under the slide", "next to the sandbox",
                                 "beside the climbing frame"],
                   ["The swings creaked in the wind.", "Someone had drawn a sun with chalk."]),
    "museum": ("in", "in", ["behind a stone lion", "under a glass table", "beside a painted vase"],
               ["Old paintings looked down from the walls.",
                "The floor was so shiny that you could see your face in it."]),
    "train station": ("at", "in", ["under a bench", "beside the ticket window",
                                   "next to a tall clock"],
                      ["A train whistled far away.", "Travelers hurried past with their bags."]),
    "bridge": ("on", "out water", ["beside the railing", "between two wooden boards",
                                   "near the middle"],
               ["The water rushed along far below.", "The old boards creaked at every step."]),
    "lighthouse": ("in", "in water", ["on the spiral stairs", "beside a round window",
                                      "next to the great lamp"],
                   ["The wind whistled around the tower.",
                    "Far below, the waves crashed on the rocks."]),
    "swamp": ("in", "out water wild", ["on a muddy bank", "under a bent tree",
                                       "next to a clump of reeds"],
              ["Green bubbles popped in the mud.", "Mosquitoes buzzed lazily."]),
    "tower": ("in", "in room", ["at the top of the stairs", "beside a tiny window",
                                "under a loose stone"],
              ["A hundred steps led to the top.", "Pigeons cooed on the roof."]),
    "attic": ("in", "in room", ["inside an old trunk", "behind a broken chair",
                                "under a dusty sheet"],
              ["Spider webs hung in the corners.", "The floor creaked at every step."]),
    "workshop": ("in", "in room", ["under the workbench", "behind a box of nails",
                                   "on a crowded shelf"],
                 ["Curls of wood covered the floor.", "Tools hung neatly on the wall."]),
    "waterfall": ("by", "out water wild", ["behind the falling water", "on a wet rock",
                                           "beside a clear pool"],
                  ["A rainbow shone in the spray.", "The water roared like a friendly lion."]),
    "cottage": ("in", "in room", ["beside the fireplace", "under the kitchen table",
                                  "behind the door"],
                ["A kettle sang on the stove.", "Flowers stood in the window."]),
    "fair": ("at", "out", ["under the merry-go-round", "beside the puppet tent",
                           "behind the candy stand"],
             ["Music played and lights twinkled.", "The air smelled of popcorn."]),
    "toy shop": ("in", "in", ["behind a row of dolls", "under the counter",
                              "next to a wooden train"],
                 ["Bright toys filled every shelf.", "A tiny music box was playing."]),
    "treehouse": ("in", "out room", ["under an old cushion", "beside the rope ladder",
                                     "in a wooden box"],
                  ["Leaves rustled all around.", "The floor swayed a little in the wind."]),
    "greenhouse": ("in", "in room", ["behind a flower pot", "among the tomato plants",
                                     "under a wide green leaf"],
                   ["It was warm and smelled of earth.", "Drops of water ran down the glass."]),
    "mill": ("at", "in water", ["beside the big stone", "behind a sack of grain",
                                "next to the water wheel"],
             ["The great wheel turned round and round.", "White flour lay on everything."]),
    "cornfield": ("in", "out", ["between two rows of corn", "near the scarecrow",
                                "beside a wheel track"],
                  ["The tall corn whispered in the wind.", "Crows circled above."]),
    "ship": ("on", "water room", ["under a pile of sails", "beside the big wheel",
                                  "behind a wooden chest"],
             ["The sails were full of wind.", "The deck rocked up and down."]),
    "moon": ("on", "wild room", ["beside a round crater", "behind a gray rock",
                                 "next to a silver flag"],
             ["The earth hung in the sky like a blue marble.", "The dust was as soft as flour."]),
    "ocean": ("by", "out water wild", ["on the wet sand", "between two smooth rocks",
                                       "beside an old anchor"],
              ["The waves sang their endless song.", "A white sail moved along far away."]),
    "house": ("in", "in room", ["under the stairs", "behind the sofa", "on the windowsill"],
              ["The floor was warm from the sun.", "A clock ticked on the wall."]),
    "backyard": ("in", "out", ["under the clothesline", "next to the old shed",
                               "behind a flower bed"],
                 ["A cat slept on the fence.", "The grass was soft and green."]),
    "street": ("on", "out", ["beside a mailbox", "under a parked cart",
                             "in front of a yellow house"],
               ["A postman rode by and waved.", "Windows stood open in the sun."]),
    "zoo": ("at", "out", ["beside the monkey house", "under a signpost", "near the penguin pool"],
            ["The lions were roaring for their lunch.",
             "Two monkeys threw peanuts at each other."]),
    "snowy field": ("in", "out wild", ["beside a frozen bush", "half hidden in the snow",
                                       "next to a row of tiny tracks"],
                    ["The snow sparkled like sugar.", "Everything was white and still."]),
    "palace": ("in", "in", ["beneath a velvet chair", "beside a silver mirror",
                            "at the end of a long hall"],
               ["The floors shone like water.", "Golden candlesticks stood on every table."]),
    "kitchen": ("in", "in room", ["behind the sugar bowl", "under the stove",
                                  "on the highest shelf"],
                ["Something was bubbling in a pot.", "The table was white with flour."]),
    "shop": ("in", "in room", ["behind the counter", "in a dusty corner", "beside the front door"],
             ["A small bell rang over the door.", "The shelves reached up to the ceiling."]),
}

# place: preposition and tags; spots and details are common to all of them.
RARE_PLACES = {
    "in": ("hospital bank post_office theater stadium office factory laboratory classroom "
            "gym hotel restaurant temple church maze dungeon basement cellar garage bedroom "
            "bathroom tunnel mine stable elevator cabin igloo barnyard tent_camp rocket "
            "submarine",
            "in room"),
    "on": ("cliff balcony rooftop glacier planet space_station iceberg raft train bus sofa "
            "mountaintop",
            "room"),
    "at": ("circus airport dock campsite crossroads bus_stop swimming_pool gate carnival "
            "racetrack gas_station",
            "out room"),
    "by": ("creek bay fountain lagoon campfire seashore windmill well canal",
            "out room"),
    "in ": ("volcano canyon vineyard pasture savanna rainforest marsh ravine courtyard alley "
            "neighborhood kingdom sandbox hedge wheat_field clouds",
            "out room"),
}
RARE_SPOTS = ["in a quiet corner", "near the entrance", "beside a big stone",
              "under some old boards"]
RARE_DETAILS = ["It was quiet and peaceful there.", "Everything smelled fresh and new.",
                "Somebody was humming a little tune."]
for _preposition, (_names, _tags) in RARE_PLACES.items():
    for _name in _names.split():
        PLACES[_name.replace("_", " ")] = (_preposition.strip(), _tags, RARE_SPOTS, RARE_DETAILS)

COLORS = "red blue green yellow purple orange pink white brown silver golden".split()

# group: (adjectives besides the colors, names)
OBJECT_GROUPS = {
    "light": ("old brass shiny dusty small glass", "lamp lantern candle flashlight"),
    "sound": ("shiny little old wooden", "bell whistle horn drum flute trumpet fiddle guitar"),
    "warm": ("soft woolly warm thick striped", "blanket scarf coat quilt sweater cloak"),
    "hat": ("tall floppy funny soft", "hat cap helmet"),
    "cover": ("big old striped bright", "umbrella tent"),
    "rope": ("long strong thick", "rope ribbon chain"),
    "ladder": ("tall wooden long", "ladder"),
    "carry": ("big strong old sturdy", "basket bag bucket box wagon wheelbarrow backpack"),
    "boat": ("small wooden sturdy", "boat raft canoe"),
    "ride": ("fast shiny little", "bicycle sled scooter skateboard"),
    "key": ("rusty tiny old iron", "key"),
    "guide": ("old wrinkled strange", "map compass"),
    "read": ("thick old dusty heavy", "book notebook"),
    "mirror": ("round shiny small", "mirror spoon"),
    "food": ("big round sweet juicy",
             "apple pear peach pumpkin carrot melon banana strawberry potato"),
    "snack": ("big fresh soft", "sandwich bun"),
    "baked": ("warm sweet fresh big", "pie cake cookie muffin"),
    "shiny": ("shiny tiny bright sparkling round",
              "coin pearl ring crystal gem diamond star crown necklace button"),
    "found": ("pretty smooth round tiny", "shell pebble stone marble"),
    "grow": ("tiny round strange", "seed acorn"),
    "flower": ("pretty tall bright red yellow pink white purple", "flower rose sunflower tulip"),
    "feather": ("long soft light fluffy", "feather leaf"),
    "cuddly": ("soft fluffy floppy big", "pillow doll teddy_bear puppet"),
    "play": ("bright big bouncy new", "ball balloon"),
    "kite": ("bright big new", "kite"),
    "toy": ("little wooden painted tiny", "toy_boat toy_train top yo-yo"),
    "dig": ("strong old heavy small", "shovel spade rake"),
    "fix": ("strong heavy small", "hammer wrench needle"),
    "sweep": ("old long wooden", "broom net"),
    "paint": ("long thin little", "paintbrush pencil crayon"),
    "clock": ("old round ticking", "clock watch"),
    "look": ("long shiny strange", "telescope magnifying_glass"),
    "pot": ("big heavy round", "pot kettle teapot"),
    "egg": ("big round speckled warm", "egg"),
    "magic": ("strange glowing tiny old", "wand bottle"),
    "paper": ("small folded mysterious", "letter picture"),
    "other": ("old shiny strange new little", """
spaceship car truck toy_car plane helicopter tractor camera phone radio computer piano violin harp
table chair bench carpet vase bowl cup plate fork jar barrel statue flag trophy medal badge stamp
postcard newspaper ticket suitcase purse belt shoe boot sock glove shirt dress mask bracelet brush
comb towel sponge bathtub wheel anchor paddle hook fishing_rod magnet battery wire nail saw hose
pinecone mushroom walnut coconut lemon cherry plum cabbage onion tomato turnip pretzel donut
pancake waffle lollipop bone stick branch log snowball puzzle snow_globe music_box rocking_horse
teacup toolbox lunchbox mailbox birdhouse beehive nest fossil globe calendar diary painting
tambourine harmonica xylophone calculator robot_arm rubber_duck snowflake potion scroll shield
sword cauldron broomstick hammock swing seesaw trampoline drone laptop printer flute_case keychain
bandage thermometer stethoscope microscope engine propeller parachute"""),
}
CRAFTED = """kite scarf hat boat raft drum basket doll puppet blanket quilt ladder sled box
toy_boat toy_train top flute cake pie crown lantern""".split()
BEFORE_VOWEL_SOUND = ("hour", "honest")
BEFORE_CONSONANT_SOUND = ("unicorn", "useful", "one", "unusual")

WORDS = {
    "happy": ["happy", "glad", "very happy", "cheerful", "full of joy"],
    "sad": ["sad", "very sad", "unhappy", "heartbroken"],
    "scared": ["scared", "afraid", "frightened", "a little scared"],
    "tired": ["tired", "very tired", "worn out"],
    "pretty": ["pretty", "lovely", "beautiful", "wonderful"],
    "walked": ["walked", "hurried", "skipped", "strolled"],
    "ran": ["ran", "raced", "hurried", "rushed"],
    "smiled": ["smiled", "grinned", "beamed"],
    "thought": ["thought", "said to {himself}", "whispered"],
    "treat": ["warm bread and honey", "berry pie", "hot soup", "apple cake",
              "sweet tea and biscuits",
              "pancakes with jam", "roasted chestnuts", "a bowl of cherries", "plum pudding"],
    "game": ["hide and seek", "tag", "leapfrog", "catch", "pirates", "hopscotch"],
    "weather": ["sunny", "bright", "windy", "cloudy", "warm", "cool", "misty", "lovely"],
    "tod": ["morning", "afternoon", "day", "morning"],
    "numw": ["two", "three", "four", "five", "six", "seven"],
}
