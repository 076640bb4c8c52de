"""Requests that Owlet cannot do, with answers that say so. None is one of the hundred prompts by
which its answers are judged."""

import functools
import json
import re
from pathlib import Path

import lexicon as lex
from facts import NUMBERS, UNKNOWN_ANSWERS, UNKNOWN_X
from grammar import Template, capital, expand
from story import article, made_up_name

PROMPTS = Path(__file__).parent.parent / "owlet/prompts.jsonl"

WRITTEN_ANSWERS = [
    "I cannot write that. I am a tiny model, and I only tell short stories.",
    "I do not know how to write that. I am a very small model made for stories and easy "
    "questions.",
    "I am sorry, I cannot write that. I can tell you a story instead, if you like."]
FORMATTED_ANSWERS = [
    "I do not know how to do that. I am a tiny model, and I only write plain sentences.",
    "I am sorry, I cannot write code or tables. I am a very small model made for stories.",
    "I cannot do that. I only know plain words, stories and easy questions."]
LANGUAGE_ANSWERS = [
    "I am sorry, I do not understand that. I only know a little English.",
    "I do not know that language. I am a tiny model, and I only know simple English.",
    "I only know English, sorry. Please ask me in easy English words."]
TASK_ANSWERS = [
    "I do not know how to do that. I am a tiny model, and I cannot work with texts.",
    "I am sorry, I cannot do that. I am a very small model made for stories and easy questions.",
    "That is too hard for me. I can tell you a story, but I cannot change one for you."]
ARITHMETIC_ANSWERS = [
    "I do not know. Those numbers are too hard for me.",
    "I am sorry, I can only do very small sums, up to 20 + 20 and 10 x 10.",
    "That is too hard for me. I only know small sums, and I do not want to guess."]
UNCLEAR_ANSWERS = [
    "I do not understand that. Ask me for a story, or try an easy question.",
    "I am sorry, I do not know what you mean. I am only a tiny model.",
    "I do not understand, sorry. Could you say it in easy words?"]
HONEST = (WRITTEN_ANSWERS + FORMATTED_ANSWERS + LANGUAGE_ANSWERS + TASK_ANSWERS +
          ARITHMETIC_ANSWERS + UNCLEAR_ANSWERS + UNKNOWN_ANSWERS)


def rows(table, mark="|"):
    return [row.strip() for row in " ".join(table.split()).split(mark)]


KINDS_OF_TEXT = rows("""haiku|poem|short poem|rhyming poem|sonnet|limerick|ballad|ode|verse|rhyme|
song|song text|lullaby|rap|chorus|nursery rhyme|letter|love letter|thank-you letter|business letter|
email|short email|message|text message|note|postcard|birthday card|invitation|speech|toast|talk|
essay|short essay|report|book report|summary|review|article|news article|blog post|post|tweet|
headline|slogan|advert|caption|biography|cover letter|application|press release|diary entry|
play|dialogue|scene|script|film script|monologue|interview|crossword|quiz|word puzzle|
recipe|shopping list|plan|travel plan|lesson plan|meal plan|user guide|manual|contract|
tongue twister|proverb|prayer|definition|product description|paragraph|sentence in the past tense|
description|novel|chapter of a novel|sequel""")
TOPICS = rows("""the sea|the moon|the rain|spring|summer|autumn|winter|snow|the wind|the stars|love|
friendship|peace|freedom|time|music|dreams|hope|silence|my mother|my cat|my dog|our school|my teacher|
my boss|my birthday|a wedding|the morning|the night|a lost key|the city|computers|football|climate|
bread|coffee|an old tree|the garden|flowers|the first day of school|a broken heart|home|travel|
the sun|a rainbow|the forest in fall|growing up|war|work|money|health|history|space""")
PEOPLE = rows("""my boss|my teacher|my mother|my father|my friend|my neighbor|my landlord|my sister|
a customer|the school|the bank|my doctor|my grandmother|the mayor|an old friend|our team""")
LANGUAGES = rows("""French|German|Spanish|Italian|Dutch|Polish|Portuguese|Russian|Chinese|Japanese|
Korean|Latin|Greek|Turkish|Arabic|Swedish|Norwegian|Danish|Hindi|Finnish|Czech|Hebrew|Welsh|Irish""")
CODES = rows("""Python|Java|C|C++|Rust|Go|JavaScript|Ruby|SQL|Bash|HTML|CSS|Lua|Haskell|Swift|PHP|
Perl|assembly|TypeScript|Kotlin|Fortran|MATLAB""")
PROGRAMS = rows("""function|program|script|class|loop|method|test|macro|module|small program|query|
one-liner|command""")
DEEDS = rows("""sorts a list|reverses a string|prints hello|counts words|reads a file|adds numbers|
multiplies two matrices|finds the biggest number|checks if a number is prime|opens a web page|
draws a circle|sends an email|computes the mean|removes duplicates|searches a tree|
returns the first element|converts dates|plays a sound|parses JSON|renames all files|swaps two values|
subtracts two numbers|tests if a word is a palindrome|makes a random number|downloads a picture""")
FORMATS = rows("""JSON|a JSON object|a JSON array|XML|YAML|CSV|a table|a Markdown table|Markdown|HTML|
bullet points|a numbered list|a list with numbers|one line of CSV|LaTeX|a diagram|ASCII art|a regex|
TOML|a Python list|emojis|capital letters only|exactly five words|Roman numerals|Morse code|binary""")
LISTED = rows("""odd numbers|even numbers|primes|planets|countries|capitals|rivers|cities in
Europe|presidents|chemical elements|programming languages|car brands|football teams|famous painters|
oceans|mountains|books|films|songs|poets|kings of England|dinosaurs that ate meat|vitamins|bones|
metals|continents|operating systems|tax forms|synonyms of happy|verbs|adjectives|pronouns|gases|
inventions|holidays|currencies|saints|Greek gods|square numbers|composers|web browsers""")
TASKS = rows("""Summarize|Summarize this|Summarize this text|Sum up|Shorten|Give a short summary of|
Rewrite|Rewrite this in the past tense|Paraphrase|Correct|Correct the mistakes|Correct the spelling|
Fix the grammar|Proofread|Improve|Make this more polite|Make this funnier|Simplify|
Put this in your own words|Turn this into a question|Put this into the future tense|
Find the verb|Find the nouns|Underline the adjectives|Count the words|Count the letters|
Count the vowels|Sort these words|Sort the words by length|Put these words in order|
Write this backwards|Reverse this|Put this in capital letters|Repeat this three times|Extract the names|
Is this positive or negative|What is the main idea|What is the tone of this text|Classify this text|
Give this text a headline|Explain this sentence|Analyze this sentence|Encrypt this|Decode this""")
SAYINGS = rows("""good night|I am hungry|where is the station|thank you very much|the house is big|
how are you|I love you|see you tomorrow|the cat is black|my name is Anna|please help me|
one coffee, please|happy birthday|I do not understand|what time is it|the weather is nice|
where do you live|we are friends|it is late|I like apples|good evening|welcome|excuse me|water|
bread and butter|the red book|my brother|a glass of milk|open the door|yes|no|tree|friend|dog""")

WHYS = rows("""is the sea salty|is the sea blue|is grass green|is snow white|is blood red|
is the night dark|is the moon round|is the sun so hot|is the sky dark at night|is the sky red in the evening|
is ice slippery|is fire hot|is glass clear|is gold so expensive|is honey sweet|is sugar bad for teeth|
does it rain|does the wind blow|does the moon change|does wood float|does iron rust|does bread rise|
does ice float|does water boil|does the earth turn|does a magnet pull iron|does soap clean|
does the sun rise|does thunder come after lightning|do leaves change color|do leaves fall|
do birds sing|do birds fly south|do cats purr|do dogs bark|do we dream|do we yawn|do we cry|
do we have two eyes|do onions make us cry|do stars twinkle|do planes fly|do ships float|
do bees make honey|do zebras have stripes|do giraffes have long necks|do spiders make webs|
do people get old|do people fight|do clocks tick|do volcanoes erupt|do we have seasons|
do we need money|do computers need power|do rainbows have colors|do fish not drown|
are there tides|are clouds white|are flowers colorful|are plants green|are oranges orange|
are some people tall|are bananas bent|are diamonds hard|are deserts dry|are mountains high|
can birds fly|can fish breathe in water|can owls see at night|can we not breathe in space|
did the dinosaurs die|did Rome fall|did the war begin|did the ship sink|did my plant die|
is my computer slow|is my milk sour|is my internet so slow|is my car so loud|am I always tired""")
HOWS = rows("""does a rainbow form|does a plane fly|does a fridge work|does a telephone work|
does a battery work|does the heart work|does an eye see|does a seed grow|does a magnet work|
does a computer work|does a language model work|does the internet work|do bees make honey|
do birds find their way|do fish breathe|do plants grow|do vaccines work|do I bake bread|do I cook rice|
do I learn to swim|do I tie a tie|do I get rich|do I lose weight|do I fix a flat tire|do I make soap|
do I write a good letter|do I train my dog|do I plant a tree|do I find a job|do I change my password|
do I get to the station|do you make cheese|do you make glass|do you play chess|do clouds form|
do submarines dive|do spiders spin|do volcanoes erupt|do people make paper|is steel made|is glass made|
is paper made|is salt made|is rain made|are stars born|are mountains made|are pearls made|
can I sleep better|can I learn French|can I save money|can I help my sick cat|did the world begin|
did people come to America|far is the moon|far is the sun|high is the highest mountain|
deep is the sea|old is the earth|fast is light|big is the sun|heavy is a whale|tall is a giraffe|
long is the longest river|long does a turtle live|many stars are there|many people are there|
many bones do we have|many teeth does a shark have|many countries are there|much does gold cost|
much does a house cost|much does an elephant weigh|hot is the sun|cold is space|loud is thunder""")
THINGS = rows("""a volcano|a comet|a galaxy|a planet|an earthquake|a tornado|lightning|thunder|fog|
gravity|light|sound|heat|energy|an electron|oxygen|carbon|salt|steel|plastic|electricity|magnetism|
evolution|a virus|a cell|a gene|blood|a muscle|a vitamin|digestion|breathing|a fossil|a mammal|
a reptile|a verb|a noun|a metaphor|a comma|grammar|a fraction|a prime number|pi|a triangle in geometry|
infinity|statistics|logic|money|a bank|a tax|a loan|inflation|a contract|a law|a court|a state|
a republic|a parliament|an election|a constitution|religion|art|jazz|an opera|a symphony|cubism|
a satellite|a rocket|a telescope|a microscope|a transistor|a laser|a server|an algorithm|a token|
a neural network|a processor|a file system|an operating system|open source|a graphics card|RAM|
the water cycle|the food chain|the big bang|the ice age|the Middle Ages|the Roman Empire|
the French Revolution|the Cold War|the United Nations|the European Union|the equator|the North Pole|
respiration|osmosis|erosion|friction|pollination|relativity|entropy|momentum|ethics|time|life|death""")
WHO_WHAT = rows("""Who painted the Mona Lisa|Who discovered America|Who was Julius Caesar|
Who was the first man on the moon|Who wrote Hamlet|Who is the richest person|Who is the pope|
Who invented the wheel|Who invented the telephone|Who built the pyramids|Who was Marie Curie|
Who was the second president of the United States|Who was the last queen of Egypt|
Who won the game last night|Who won the race yesterday|Who won the match|Who will win the election|
Who is the fastest runner|Who plays tonight|Who sang this song|Who is my neighbor|
When was the first car built|When did the war end|When does the train leave|When is Easter|
When was the wheel invented|When does the shop open|When did people first fly|When is the next eclipse|
Where is Peru|Where is the Nile|Where is my phone|Where can I eat|Where is the station|
Where does chocolate come from|Where do potatoes come from|Where is the highest mountain|
What is the time|What time is it|What is the date today|What day is it today|What year is it|
What is the weather like|What will the weather be tomorrow|Will it rain today|Is it cold outside|
What is in the news|What happened yesterday|What is on TV tonight|What is the largest country|
What is the longest river|What is the tallest building|What is the fastest animal|
What is the deepest lake|What is the smallest planet|What is the hottest star|
What is the meaning of life|What is the best phone|What is my name|What did I eat today|
What is my password|What am I thinking|What causes rain|What causes cancer|What causes earthquakes|
What is inside an atom|What happens when we die|What is the secret of happiness|
What language do people speak in Brazil|What money do people use in Japan|
What is the chemical sign for iron|What is water made of in chemistry|What is the speed of sound|
Which team is the best|Which planet is the largest|Which metal is the lightest|
Which country has the most people|Is there life on Mars|Is God real|Is this legal|Is my house safe|
Is coffee healthy|Is it safe to eat mushrooms|Are ghosts real|Do aliens exist|Does magic exist""")
ADVICE = rows("""take medicine for a cold|take a pill for a sore throat|see a doctor|buy a house|
sell my car|quit my job|learn Spanish|eat less sugar|drink coffee at night|go to the hospital|
buy stocks|rent or buy|marry him|tell her the truth|move to another city|call a lawyer|
get a dog|study law|study medicine|pay this bill|wear a coat today|go for a run with a fever|
give my baby honey|take vitamins|stop taking my medicine|drink more water|vote|sign this contract|
use Linux or Windows|invest in gold|pay my taxes now|put ice on my knee|take a nap after lunch""")
ADVICE_FORMS = ["Should I {deed}?", "Is it good to {deed}?", "Can I {deed}?", "Do I have to {deed}?",
                "When should I {deed}?", "What do I need to {deed}?", "Is it wise to {deed}?"]

FOREIGN_STARTS = {
    "German": rows("""Was ist|Wo ist|Wer ist|Kennst du|Ich mag|Ich sehe|Erzähl mir etwas über|
Wie alt ist|Wie groß ist|Warum schläft|Kannst du mir sagen, wo ist|Wann kommt|Hier ist|Das ist"""),
    "French": rows("""Qu'est-ce que c'est,|Où est|Qui est|Connais-tu|J'aime|Je vois|Parle-moi de|
Quel âge a|Pourquoi dort|Voici|Comment s'appelle|Quand arrive|Dis-moi où est|C'est"""),
    "Spanish": rows("""¿Qué es|¿Dónde está|¿Quién es|Me gusta|Veo|Háblame de|¿Por qué duerme|
¿Cómo se llama|¿Cuándo viene|Dime dónde está|Aquí está|¿Cuántos años tiene|Quiero|Tengo"""),
    "Italian": rows("""Che cosa è|Dove è|Chi è|Mi piace|Vedo|Parlami di|Perché dorme|
Come si chiama|Quando arriva|Dimmi dove è|Ecco|Quanti anni ha|Voglio|Questo è"""),
    "Dutch": rows("""Wat is|Waar is|Wie is|Ken je|Ik zie|Vertel me over|Hoe oud is|Waarom slaapt|
Wanneer komt|Hoe groot is|Dit is|Ik hou van"""),
    "Swedish": rows("""Vad är|Var är|Vem är|Känner du|Jag ser|Berätta om|Hur gammal är|
Varför sover|När kommer|Här är|Jag gillar"""),
    "Polish": rows("""Co to jest|Gdzie jest|Kto to jest|Czy znasz|Lubię|Widzę|Opowiedz mi o|
Dlaczego śpi|Kiedy przyjdzie|Tutaj jest|Jak się nazywa"""),
    "Portuguese": rows("""O que é|Onde está|Quem é|Gosto de|Vejo|Fala-me de|Por que dorme|
Como se chama|Quando chega|Aqui está|Quero""")}
FOREIGN_THINGS = {
    "German": rows("""der Hund|die Katze|das Haus|der Mond|die Sonne|das Buch|mein Bruder|die Schule|
ein Fuchs|der Baum|das Wetter|die Stadt|der König|meine Mutter|ein kleines Kind|der Bahnhof"""),
    "French": rows("""le chien|le chat|la maison|la lune|le soleil|le livre|mon frère|l'école|
un renard|la forêt|la ville|le roi|ma mère|un petit enfant|la gare|le pain"""),
    "Spanish": rows("""el perro|el gato|la casa|la luna|el sol|el libro|mi hermano|la escuela|
un zorro|el bosque|la ciudad|el rey|mi madre|una niña pequeña|la estación|el pan"""),
    "Italian": rows("""il cane|il gatto|la casa|la luna|il sole|il libro|mio fratello|la scuola|
una volpe|il bosco|la città|il re|mia madre|un bambino|la stazione|il pane"""),
    "Dutch": rows("""de hond|de kat|het huis|de maan|de zon|het boek|mijn broer|de school|een vos|
het bos|de stad|de koning|mijn moeder|een klein kind|het station"""),
    "Swedish": rows("""hunden|katten|huset|månen|solen|boken|min bror|skolan|en räv|skogen|staden|
kungen|min mamma|ett litet barn|stationen"""),
    "Polish": rows("""pies|kot|dom|księżyc|słońce|książka|mój brat|szkoła|lis|las|miasto|król|
moja mama|małe dziecko|dworzec"""),
    "Portuguese": rows("""o cachorro|o gato|a casa|a lua|o sol|o livro|meu irmão|a escola|
uma raposa|a floresta|a cidade|o rei|minha mãe|uma criança|a estação|o pão""")}
FOREIGN = rows("""Guten Morgen!|Guten Abend|Wie geht es dir?|Wer bist du?|Woher kommst du?|
Was kannst du?|Erzähl mir eine Geschichte.|Erzähl mir eine Geschichte über einen Fuchs.|
Ich heiße Anna.|Wie spät ist es?|Wie viel ist drei plus vier?|Danke schön!|Auf Wiedersehen!|
Sprichst du Deutsch?|Ich verstehe dich nicht.|Kannst du mir helfen?|Wie ist das Wetter heute?|
Ich bin müde.|Hallo, wie geht's?|Was machst du?|Bitte hilf mir.|Zähl bis zehn.|Wie wird das gemacht?|
Bonjour!|Bonjour, comment ça va?|Comment t'appelles-tu?|Qui es-tu?|Raconte-moi une histoire.|
Quelle heure est-il?|Merci beaucoup!|Au revoir!|Parlez-vous français?|Je ne comprends pas.|
Combien font deux et deux?|Je m'appelle Marie.|Quel temps fait-il?|S'il vous plaît, aidez-moi.|
¡Hola!|Hola, ¿cómo estás?|¿Cómo te llamas?|¿Quién eres?|Cuéntame un cuento.|¿Qué hora es?|
Muchas gracias|Adiós|¿Hablas español?|No entiendo.|¿Cuánto es dos más dos?|Me llamo Pedro.|
Buenos días|Buenas noches, amigo|Ciao, come stai?|Come ti chiami?|Chi sei?|Raccontami una storia.|
Che ore sono?|Grazie mille|Arrivederci|Parli italiano?|Non capisco.|Quanto fa due più due?|
Buongiorno|Hoe gaat het?|Hoe heet je?|Vertel me een verhaal.|Dank je wel|Spreek je Nederlands?|
Hej, hur mår du?|Vad heter du?|Berätta en saga.|Tack så mycket|Hvad hedder du?|Hvordan går det?|
Mitä kuuluu?|Kuka sinä olet?|Jak się masz?|Jak masz na imię?|Dzień dobry|Dziękuję bardzo|
Jak se jmenuješ?|Dobrý den|Olá, tudo bem?|Qual é o seu nome?|Conte-me uma história.|Obrigado|
Merhaba, nasılsın?|Adın ne?|Teşekkür ederim|Привет!|Как тебя зовут?|Как дела?|Расскажи сказку.|
Спасибо|Кто ты?|Γεια σου|Τι κάνεις;|你好|你叫什么名字？|给我讲一个故事。|谢谢|こんにちは|お名前は何ですか？|
ありがとう|안녕하세요|이름이 뭐예요?|مرحبا|שלום|नमस्ते|Salve!|Quid est nomen tibi?|Ubi est puella?|
Carpe diem|Habla conmigo, por favor.|Wo wohnst du?|Où habites-tu?|¿Dónde vives?|Dove abiti?""")

TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()

ODD_WORDS = rows("""the|of|green|seven|because|under|lamp|very|and|if|window|slow|yes|fork|run|
between|yesterday|not|blue|of course|spoon|maybe|eleven|walks|then|without|yellow|however|table|
up|soft|why|them|until|stone|quickly|perhaps|half|door|nothing|loud|except|sock|rather|thirsty""")
NOISES = rows("""???|...|!!!|?|hm|hmm|uh|er|umm|huh|what|what?|eh?|so?|and?|well|then|ok then|
and then?|more|this|that one|it|xyz|abc|test|test test|foo|foo bar|1|42|007|-|a|b c d|la la la|
blah|blah blah|x|yz|qwerty|asdf|asdfgh|zzz|brrr|tick tock|:-)|<3|+|= =|lorem ipsum|n/a|null|no idea|
the thing|you know|do it|do the thing|like that|one of those|same as before|again but not|
undo|stop|enter|go back|left left right|delete|continue|yes but no|which one|the other one|
how|why|when|where|because|if only|as I said|the one from before|it is not that""")
NONSENSE_FORMS = [
    "What is [a|the] {x}?", "What is {x}?", "What color is [a|the] {x}?", "How many legs does a {x} have?",
    "What does a {x} [say|eat|do]?", "Where does a {x} live?", "What is the opposite of {x}?",
    "What rhymes with {x}?", "What is the plural of {x}?", "What is a baby {x} called?",
    "Can a {x} {y}?", "Do you {x}?", "How do I {x} the {y}?", "Please {x} my {y}.", "Is the {x} {y}?",
    "Which is bigger, a {x} or a {y}?", "Name [two|three|four] {x}s.", "{x} {y}", "{x}", "{x} {y} {x}",
    "Why is the {x} so {y}?", "What do you use a {x} for?", "When will the {x} {y}?",
    "What day comes after {x}?", "Who is {x} {y}?", "{x}?", "The {x} {y}s.", "What does {x} mean?"]


@functools.cache
def template(line):
    return Template(line)


def say(rng, forms, **slots):
    return capital(expand(template(rng.choice(forms)).pieces, slots, rng))


def answer(rng, own, share=0.15):
    """Mostly the answer of the kind, and now and then one that fits everything unknown."""
    return rng.choice(UNKNOWN_ANSWERS if rng.random() < share else own)


def topic(rng):
    roll = rng.random()
    if roll < 0.4:
        return rng.choice(TOPICS)
    if roll < 0.6:
        return article(rng.choice(lex.ANIMALS))
    if roll < 0.8:
        return "the " + rng.choice(list(lex.PLACES))
    return rng.choice(UNKNOWN_X).replace("_", " ")


def sentence(rng):
    """A sentence or two that somebody might want to have changed."""
    name = rng.choice(lex.GIRLS + lex.BOYS)
    animal, place = rng.choice(lex.ANIMALS), rng.choice(list(lex.PLACES))
    return say(rng, [
        "The {a} [sat|slept|waited|played] [in|near] the {p} because it was [warm|quiet|sunny|late].",
        "{n} went to the {p} and saw {aa}. It was [{c}|very big|asleep|hungry].",
        "{n} [has|had] a {c} [hat|ball|book|bag], and the {a} [wants|wanted] it.",
        "The {p} is [old|far away|beautiful] and many people [visit|like] it.",
        "Yesterday {n} [lost|found|bought|broke] a {c} [cup|bike|kite|phone] in the {p}. "
        "Then [it rained|the {a} came|everyone laughed].",
        "I [likes|is liking|has] the {a} and {n} [go|goes] to the {p}.", "{s}"],
        n=name, a=animal, aa=article(animal), p=place, c=rng.choice(lex.COLORS),
        s=capital(rng.choice(SAYINGS)) + ".")


def written_text(rng):
    kind = rng.choice(KINDS_OF_TEXT)
    if rng.random() < 0.3:
        kind = rng.choice(("haiku", "poem", "song", "letter", "email", "essay", "rhyme", "limerick"))
    return say(rng, [
        "[Write|Compose|Make|Write me|Please write|Can you write|Make up|Create] {ak}[| about {t}].",
        "[Write|Compose|Write me|Please write|Give me|Make me|Make up] {ak} about {t}.",
        "[I need|I want|I would like|Help me with|Let me read] {ak} about {t}.",
        "[Can|Could|Will] you [write|compose|make] {ak} [about|on] {t}[| for {p}]?",
        "[Write|Draft|Help me write] [a letter|an email|a message|a note|{ak}] to {p}[| about {t}].",
        "{ak} about {t}, please.", "{k} about {t}", "Write {ak} with {n} [lines|words|verses].",
        "Do you know a [poem|song|haiku|rhyme] about {t}?", "Write {ak} [that rhymes|in rhymes|"
        "in the style of Shakespeare|that makes me cry|for {p}].",
        "[Sing|Recite|Read me] [a song|a poem|{ak}][| about {t}]."],
        ak=article(kind), k=kind, t=topic(rng), p=rng.choice(PEOPLE),
        n=rng.choice(NUMBERS[2:])), answer(rng, WRITTEN_ANSWERS)


def formatted(rng):
    number = rng.choice(NUMBERS[2:13])
    return say(rng, [
        "[Write|Write me|Please write|Give me|Show me|I need|Can you write] {al} {g} [that|which] {d}.",
        "[Write|Show me|Give me] {al} {g}[|.| for {t}.]", "How do I write {al} {g} that {d}?",
        "[List|Give me|Name|Write down|Print|Show me] {n} {w} [as|in|in the form of] {f}.",
        "[Make|Write|Draw] a [table|list|chart|graph|diagram] of [|{n} ]{w}.",
        "[List|Name|Tell me|Give me] [|{n} |some |all |the first {n} ]{w}.",
        "[Answer|Reply|Say hello|Write it|Tell me about {t}] [in|as|using] {f}.",
        "[Convert|Turn|Change|Put] {w} into {f}.",
        "[Write|Give me] a [regex|command|formula] [for|that finds] {w}.",
        "What does this {l} code do: [print(x)|x = x + 1|for i in range(10)|return a * b|if (a < b)]",
        "[Debug|Fix|Explain|Speed up] [my|this] {l} [code|{r}].", "How do I [install|learn|run|use] {l}?"],
        al=article(rng.choice(CODES)), l=rng.choice(CODES), g=rng.choice(PROGRAMS),
        r=rng.choice(PROGRAMS), d=rng.choice(DEEDS), n=number if rng.random() < 0.8 else
        str(rng.randint(2, 100)), w=rng.choice(LISTED), f=rng.choice(FORMATS),
        t=topic(rng)), answer(rng, FORMATTED_ANSWERS)


def other_language(rng):
    if rng.random() < 0.35:
        return rng.choice(FOREIGN), answer(rng, LANGUAGE_ANSWERS, 0)
    language = rng.choice(list(FOREIGN_STARTS))
    start = rng.choice(FOREIGN_STARTS[language])
    asks = start.startswith("¿") or language != "Spanish" and rng.random() < 0.6
    end = "?" if asks else rng.choice((".", "", "!"))
    return (f"{start} {rng.choice(FOREIGN_THINGS[language])}{end}",
            answer(rng, LANGUAGE_ANSWERS, 0))


def text_task(rng):
    language = rng.choice(LANGUAGES)
    if rng.random() < 0.4:
        quoted = rng.choice(SAYINGS) if rng.random() < 0.7 else sentence(rng)
        return say(rng, [
            '[Translate|Please translate|Can you translate] ["{s}"|{s}] [into|to] {l}.',
            "[Translate|Put] [this|the following|my text|the story|it] [into|to] {l}[.|: {s}]",
            '[How do you say|How do I say|What is] "{s}" in {l}?', "Say [{s}|hello|something] in {l}.",
            "[What does this mean in {l}|{l} for] {s}?", "Do you [speak|know|understand] {l}?",
            "Teach me [some {l}|{l} words|to count in {l}]."],
            s=quoted.rstrip("."), l=language), answer(rng, TASK_ANSWERS)
    text = " ".join(sentence(rng) for _ in range(rng.choice((1, 1, 2, 3))))
    if rng.random() < 0.2:
        text = ", ".join(rng.sample(lex.ANIMALS + list(lex.PLACES), rng.randint(3, 6)))
    mark = rng.choice((": ", ": ", ":\n", ":\n\n", ": "))
    if rng.random() < 0.2:
        return f"{text} {rng.choice(TASKS)}.", answer(rng, TASK_ANSWERS)
    return rng.choice(TASKS) + mark + (f'"{text}"' if rng.random() < 0.25 else text), answer(
        rng, TASK_ANSWERS)


def wonder(rng):
    return say(rng, [
        "Why {w}?", "Why {w}?", "Why {w}?", "[Tell me why|Do you know why|Explain why] {plain}.",
        "How {h}?", "How {h}?", "[What is|What's] {t}?", "[Explain|Please explain|Describe|Tell me about|"
        "What do you know about|Teach me] {t}.", "[How does {t} work|What causes {t}|Who discovered {t}|"
        "Why is {t} important|What is the difference between {t} and {u}]?", "{who}?", "{who}?", "{advice}",
        "Why [are {a}s so {j}|are {a}s {j}|do {a}s like the {p}|do {a}s live in the {p}|do {a}s hide]?",
        "What [happens|would happen] if {t} [stops|breaks|gets too big|does not exist]?"],
        w=rng.choice(WHYS), h=rng.choice(HOWS), t=rng.choice(THINGS), u=rng.choice(THINGS),
        plain=rng.choice(("the sky is up", "water is wet", "we dream", "it gets dark", "time passes",
                          "birds sing", "the sea has waves", "people laugh", "metal is cold")),
        who=rng.choice(WHO_WHAT), a=rng.choice(("cat", "dog", "bee", "bird", "cow", "frog", "lion", "owl",
                                                "bear", "goat", "duck", "horse", "snake", "monkey")),
        j=rng.choice(("small", "big", "loud", "fast", "slow", "green", "brown", "clever", "soft", "rare")),
        p=rng.choice(list(lex.PLACES)),
        advice=rng.choice(ADVICE_FORMS).replace("{deed}", rng.choice(ADVICE))), rng.choice(
        UNKNOWN_ANSWERS)


def number(rng, low):
    """Numbers from low on, the smaller ones more often."""
    return rng.randint(low, rng.choice((50, 99, 99, 999, 999, 9999, 1_000_000)))


def in_words(n):
    return NUMBERS[n] if n <= 20 else TENS[n // 10 - 2] + (f"-{NUMBERS[n % 10]}" if n % 10 else "")


def large_sum(rng):
    a, b = number(rng, 21), number(rng, rng.choice((1, 21)))
    if rng.random() < 0.1:
        a, b = rng.randint(21, 99), rng.randint(2, 99)
        return say(rng, ["What is {a} [plus|minus|times] {b}?", "How much is {a} [plus|and|times] {b}?",
                         "[Add|Multiply] {a} [and|by] {b}."],
                   a=in_words(a), b=in_words(b)), answer(rng, ARITHMETIC_ANSWERS, 0.1)
    if rng.random() < 0.5:
        a, b = b, a
    forms = ["What is {a} + {b}?", "{a} + {b} = ?", "How much is {a} plus {b}?",
             "What is {a} plus {b}?", "Add {a} and {b}.", "{a} + {b}", "what is {a}+{b}",
             "Can you add {a} and {b}?", "What is the sum of {a} and {b}?"]
    if rng.random() < 0.35:
        a, b = max(a, b), min(a, b)
        forms = ["What is {a} - {b}?", "{a} - {b} = ?", "How much is {a} minus {b}?",
                 "What is {a} minus {b}?", "Take {b} away from {a}.", "{a} - {b}", "{a}-{b}",
                 "What is the difference between {a} and {b}?"]
    return say(rng, forms, a=str(a), b=str(b)), answer(rng, ARITHMETIC_ANSWERS, 0.1)


def large_product(rng):
    a = number(rng, 11) if rng.random() < 0.5 else rng.randint(11, 30)
    b = rng.choice((rng.randint(2, 10), rng.randint(11, 25), number(rng, 2)))
    if rng.random() < 0.5:
        a, b = b, a
    forms = ["What is {a} times {b}?", "{a} x {b} = ?", "How much is {a} times {b}?",
             "What is {a} x {b}?", "{a} x {b}", "{a} * {b}", "What is {a} multiplied by {b}?",
             "Multiply {a} by {b}.", "what is {a}*{b}"]
    return say(rng, forms, a=str(a), b=str(b)), answer(rng, ARITHMETIC_ANSWERS, 0.1)


def other_arithmetic(rng):
    a, b, c = number(rng, 2), number(rng, 2), number(rng, 2)
    name, thing = rng.choice(lex.GIRLS + lex.BOYS), rng.choice(("apple", "coin", "nut", "shell", "book"))
    return say(rng, [
        "What is {a} [divided by|/|:] {b}?", "Divide {a} by {b}.", "{a} / {b}", "{a} / {b} = ?",
        "What is [|the ]square root of {a}?", "What is the square of {a}?", "What is {a} squared?",
        "What is {a} to the power of {d}?", "{a} ^ {d}",
        "What is {d} percent of {a}?", "What is {d}% of {a}?",
        "What is [half|a third|a quarter|the double] of {a}?", "Solve x + {d} = {a}.", "Solve {d}x = {a}.",
        "If x + {d} = {b}, what is x?", "What is {a} + {b} + {c}?", "{d} + {e} + {f}", "{a} - {b} + {c}",
        "What is {d} - {over}?", "{d} - {over}",
        "What is {d} + {e} x {f}?", "({d} + {e}) x {f} = ?",
        "Is {a} [a prime number|prime|even|odd]?",
        "[Round|Factor] {a}.", "What is {d}.{e} + {e}.{f}?", "What is {d}/{e} + {f}/{e}?",
        "Count to {big}.", "Can you count to {big}?", "Count from {big} down to zero.",
        "How many {h}s are in {a} {k}s?", "What is the average of {d}, {e} and {f}?",
        "{n} has {big} {t}s. [She|He] [buys|gets|finds] {b} more. How many {t}s does {n} have[| now]?",
        "{n} shares {big} {t}s with {d} friends. How many does each one get?",
        "How much is {a} [dollars|euros] in [yen|pounds|euros]?", "What is {a} in [binary|Roman numerals]?",
        "What is the [sine|cosine|logarithm|factorial] of {d}?",
        "Calculate {a} [+|-|x|/] {b} [+|-|x|/] {c}."],
        a=str(a), b=str(b), c=str(c), d=str(rng.randint(2, 20)), e=str(rng.randint(2, 20)),
        f=str(rng.randint(2, 20)), over=str(rng.randint(21, 99)), big=str(number(rng, 30)), n=name, t=thing,
        h=rng.choice(("second", "minute", "hour", "inch", "gram")),
        k=rng.choice(("day", "week", "year", "mile", "pound"))), answer(rng, ARITHMETIC_ANSWERS, 0.1)


def gibberish(rng):
    if rng.random() < 0.5:
        return made_up_name(rng).lower()
    letters = "abcdefghijklmnopqrstuvwxyz" if rng.random() < 0.7 else "asdfghjklqwertyuiop"
    return "".join(rng.choice(letters) for _ in range(rng.randint(3, 9)))


def unclear(rng):
    roll = rng.random()
    if roll < 0.25:
        text = rng.choice(NOISES)
    elif roll < 0.45:
        text = " ".join(rng.choices(ODD_WORDS, k=rng.randint(2, 6))) + rng.choice(("", ".", "?"))
    elif roll < 0.6:
        text = " ".join(gibberish(rng) for _ in range(rng.randint(1, 4))) + rng.choice(("", "?"))
    else:
        text = say(rng, NONSENSE_FORMS, x=gibberish(rng), y=gibberish(rng))
    return text, answer(rng, UNCLEAR_ANSWERS, 0.05)


def bare(text):
    """The words of a request, without capitals and marks."""
    return re.sub(r"\W+", " ", text.lower()).strip()


def judged_rows():
    return [json.loads(line) for line in PROMPTS.read_text().splitlines()]


@functools.cache
def judged_prompts():
    return {bare(row["prompt"]) for row in judged_rows()}


def fresh(maker, rng):
    """An exchange that does not begin with one of the hundred prompts."""
    while True:
        question, reply = maker(rng)
        if bare(question) not in judged_prompts():
            return question, reply


BEYOND = [written_text, formatted, other_language, text_task, wonder, large_sum, large_product,
          other_arithmetic, unclear]


def beyond(rng):
    return fresh(rng.choice(BEYOND), rng)
