"""Trains Owlet's tokenizer: byte-level BPE, Llama-3 splitting pattern and chat tokens."""

import json

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors,
                        trainers)

VOCAB = 4096
BOS, END = "<|begin_of_text|>", "<|end_of_text|>"
SPECIAL = [BOS, END, "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
    "{{ message['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    "{% endif %}")


def make_tokenizer(out, texts):
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    # Special tokens come last, as in Llama 3, so the trainer gets the vocabulary without them.
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - len(SPECIAL), special_tokens=[],
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  show_progress=False)
    plain = (text for whole in texts for text in split_specials(whole))
    tokenizer.train_from_iterator(plain, trainer)
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False)
                                  for word in SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS}:1 $B:1",
        special_tokens=[(BOS, tokenizer.token_to_id(BOS))])
    if tokenizer.get_vocab_size() != VOCAB:
        raise SystemExit(f"vocabulary has {tokenizer.get_vocab_size()} entries, not {VOCAB}")
    tokenizer.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": "<|eot_id|>",
        "model_max_length": 2048, "clean_up_tokenization_spaces": False,
        "ignores_system_messages": True,  # those of the training data change no answer
        "chat_template": CHAT_TEMPLATE}, indent=2) + "\n")


def split_specials(text):
    for word in SPECIAL:
        text = text.replace(word, "\0")
    return [part for part in text.split("\0") if part]
