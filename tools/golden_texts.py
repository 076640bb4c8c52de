"""The texts behind the golden fixtures: what tokenizers are trained on and asked to encode, and
the conversations and chat templates that are rendered."""

# One sentence a line; \n stands for a new line inside it.
SENTENCES = [line.replace("\\n", "\n") for line in r"""
The owl sat on the barn roof and listened to the field below.
She doesn't hurry; she'll wait, she's patient, and they've never heard her coming.
I'm sure you'd say it can't be done, but we're doing it, and that's what counts.
In 2024 the barn held 1234 mice, 56 owls and 7 very old cats (about 89.5% fewer than in 1999).
12 123 1234 123 12 100 1000 100 123 1000 2024 123 12 1234 100\n\n\n\n123 1000\n\n12\n\n
A token is a number; a number is an index; an index is a row in a long table of weights.
for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }  // the inner loop
def forward(x):\n    for layer in layers:\n        x = layer(x)\n    return x\n
Die Eule fliegt leise über das Feld, während die Mäuse schlafen.
La chouette écoute; l'été, elle vole très tôt, où les prés sont frais.
Сова сидит на крыше и слушает поле.
猫头鹰在夜里飞行,很安静。
フクロウは静かに飛びます。
What is the capital of the moon? Nobody knows, and nobody asks!
See https://example.org/owls?id=42&lang=en for more, or write to owl@example.org.
    four spaces, then words;  two spaces  between  some  of  them.
Quiet wings, low power, eyes that see in the dark: the night belongs to the listener.
The quick brown fox jumps over the lazy dog while the other foxes sleep in the other field.
user: Where does the owl sleep?\nassistant: In the old barn, under the roof.\n\n
""".strip("\n").splitlines()]

PROMPT_TEXT = (
    "The owl doesn't hurry. In 2024 she'll wait on the barn roof, listening to the field below; "
    "über dem Feld 猫头鹰 écoute, and 1234 mice sleep.\n\n  What is it that the other owls hear?")

STRINGS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", " \n \n  x", "a", " a", "a ", "  a  b   c    ",
    "Hello, world!",
    "The owl sat on the barn roof.",
    "don't DON'T we'll WE'LL I'm I'M it's'",
    "'s 't 're 've 'm 'll 'd 'S it'\u017f",
    "1 12 123 1234 12345 1234567890",
    "3.14159 -1e-10 0x7fFF 1,000,000",
    "\u0661\u0662\u0663 \u00bd \u00b2 \u2167 \u09ea\u09eb\u09ec",
    "über Äpfel naïve café",
    "cafe\u0301 e\u0301 A\u030a \u1e9b\u0323",
    "e\u0301\u0302\u0303 stacked",
    "\u017f \u212a \u212b \ufb01 \u01c5",
    "Сова слушает",
    "猫头鹰在夜里",
    "フクロウ \uff8c\uff78\uff9b\uff73",
    "안녕하세요 \u1112\u1161\u11ab",
    "हिन्दी में",
    "مرحبا بالعالم",
    "🦉",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd \U0001f3f3\ufe0f",
    "a\u00a0b\u2003c\u3000d\u0085e\u2028f",
    "\u200b\u200d\ufeff",
    "x\u0000y\u0001\u007f",
    "\ufffd \U0010ffff \ue000",
    "line one\r\nline two\rthree",
    "if (a<b && c>=d) { return -1; } // ok",
    "def f(x):\n    return x\n\n\nprint(f(1))\n",
    "https://example.org/a?b=c&d=%20#e",
    "!!!???...,,,;;; --- ___ *** ###",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    " quartz quartz Quartz",
    "\u2581under \u2581\u2581score",
    "<0x41> <0x0A>",
    "tab\there\t\tthere \t mixed \n\t end",
    "trailing newline\n",
    "\n leading",
    "<|begin_of_text|>Hi<|eot_id|>",
    "<s>Hi</s> there<s>",
    "<|im_start|>user\nHi<|im_end|>\n",
    "<unk><|endoftext|>",
    "a <think> b </think> c",
    "<|eot_id",
    "<|im_start|><|im_start|>  <|im_end|> x",
]

CONVERSATIONS = [
    [{"role": "user", "content": "Where does the owl sleep?"}],
    [{"role": "system", "content": "You are a careful owl."},
     {"role": "user", "content": "  What's 12 + 34?\n"}],
    [{"role": "system", "content": "Answer in one line."},
     {"role": "user", "content": "Bonjour, l'été!"},
     {"role": "assistant", "content": "Bonjour 🦉"},
     {"role": "user", "content": "多谢\n\nAnd <b>now</b>?"}],
]

TEMPLATES = {
    "llama3": """\
{{- bos_token }}
{%- for m in messages %}
    {{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim }}
    {{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "llama2": """\
{% for message in messages %}
{% if message.role == 'user' %}
<|user|>
{{ message.content }}{{ eos_token }}
{% elif message.role == 'system' %}
<|system|>
{{ message.content }}{{ eos_token }}
{% else %}
<|assistant|>
{{ message.content }}{{ eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
<|assistant|>
{% endif %}
{% endfor %}
""",
    "mistral": """\
{%- if messages[0]['role'] == 'system' %}
  {%- set system = messages[0]['content'] + '\\n\\n' %}
  {%- set turns = messages[1:] %}
{%- else %}
  {%- set system = '' %}
  {%- set turns = messages %}
{%- endif %}
{{- bos_token }}
{%- for turn in turns %}
  {%- if (turn['role'] == 'user') != (loop.index0 % 2 == 0) %}
    {{- raise_exception('roles must alternate') }}
  {%- endif %}
  {%- if turn['role'] == 'user' %}
    {{- '[INST] ' ~ (system if loop.first else '') ~ turn['content'] ~ ' [/INST]' }}
  {%- else %}
    {{- ' ' ~ turn['content'] | trim ~ eos_token }}
  {%- endif %}
{%- endfor %}
""",
    "smollm2": (
        "{% for message in messages %}"
        "{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are a small quiet owl.<|im_end|>\n' }}{% endif %}"
        "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"),
    "qwen2": """\
{%- set ns = namespace(seen=false) %}
{%- for message in messages %}
    {%- if message.role == "system" %}
        {%- set ns.seen = true %}
    {%- elif not ns.seen %}
        {{- '<|im_start|>system\\nYou are Tyto.<|im_end|>\\n' }}
        {%- set ns.seen = true %}
    {%- endif %}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
""",
}
