"""The tokenizers of the golden fixtures: small, but built from the same parts as the real ones.

Byte-level BPE as in Llama 3, Qwen2 and SmolLM2, SentencePiece-style BPE with byte fallback as in
Llama 2 (normaliser) and Mistral v0.3 (Metaspace), trained on golden_texts.SENTENCES.
"""

import hashlib
import json
import random
from collections import Counter

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)
from transformers import PreTrainedTokenizerFast

from golden_texts import CONVERSATIONS, SENTENCES, STRINGS, TEMPLATES

SEED = 20240607

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TOKENIZERS = {
    "llama3": dict(
        vocab=384, split=SPLIT, ignore_merges=True, extra_word="Ġquartz",
        special=["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                 "<|eot_id|>"], bos="<|begin_of_text|>", eos="<|eot_id|>", add_bos=True,
        stop=["<|end_of_text|>", "<|eot_id|>"]),
    "qwen2": dict(
        vocab=371, split=SPLIT.replace(r"\p{N}{1,3}", r"\p{N}"), nfc=True,
        special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], plain=["<think>", "</think>"],
        bos=None, eos="<|im_end|>", stop=["<|im_end|>", "<|endoftext|>"], model_vocab=384),
    "smollm2": dict(
        vocab=384, digits=True, special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        special_first=True, bos="<|im_start|>", eos="<|im_end|>", stop=["<|im_end|>"]),
    "llama2": dict(vocab=448, spm="normalizer", bos="<s>", eos="</s>", add_bos=True, stop=["</s>"]),
    "mistral": dict(vocab=448, spm="metaspace", bos="<s>", eos="</s>", add_bos=True,
                    stop=["</s>"]),
}


def seed_of(*names):
    text = "/".join([str(SEED), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "little")


def corpus():
    rng = random.Random(seed_of("corpus"))
    return [rng.choice(SENTENCES) for _ in range(1500)] + SENTENCES


def trained(tokenizer, size, special, **options):
    """Vocabulary and merges of a BPE trained on the corpus with the tokenizer's own splitting."""
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  **options)
    tokenizer.train_from_iterator(corpus(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]]


def byte_level_tokenizer(spec):
    byte_level = pre_tokenizers.ByteLevel
    tokenizer = Tokenizer(models.BPE())
    if spec.get("nfc"):
        tokenizer.normalizer = normalizers.NFC()
    if spec.get("digits"):
        parts = [pre_tokenizers.Digits(individual_digits=True), byte_level(add_prefix_space=False)]
    else:
        parts = [pre_tokenizers.Split(Regex(spec["split"]), "isolated"),
                 byte_level(add_prefix_space=False, use_regex=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    first = spec["special"] if spec.get("special_first") else []
    extra = [spec["extra_word"]] if "extra_word" in spec else []
    later = 0 if first else len(spec["special"])
    size = spec["vocab"] - later - len(spec.get("plain", [])) - len(extra)
    vocab, merges = trained(tokenizer, size, first,
                            initial_alphabet=sorted(byte_level.alphabet()))
    for word in extra:  # no merge leads there: reached only because whole words are looked up first
        assert word not in vocab
        vocab[word] = len(vocab)
    tokenizer = rebuilt(tokenizer, models.BPE(vocab=vocab, merges=merges,
                                              ignore_merges=spec.get("ignore_merges", False)))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True)
                                  for t in spec["special"]])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in spec.get("plain", [])])
    steps = [processors.ByteLevel(trim_offsets=False)]
    if spec.get("add_bos"):
        steps.append(bos_template(tokenizer, spec["bos"]))
    tokenizer.post_processor = steps[0] if len(steps) == 1 else processors.Sequence(steps)
    return tokenizer


def rebuilt(old, model):
    """The same tokenizer around another model; what training registered as added is dropped."""
    new = Tokenizer(model)
    if old.normalizer is not None:
        new.normalizer = old.normalizer
    if old.pre_tokenizer is not None:
        new.pre_tokenizer = old.pre_tokenizer
    return new


def bos_template(tokenizer, bos):
    return processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1",
                                         special_tokens=[(bos, tokenizer.token_to_id(bos))])


def sentencepiece_tokenizer(spec):
    legacy = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainee = Tokenizer(models.BPE())
    trainee.normalizer = legacy
    trainee.pre_tokenizer = pre_tokenizers.Split(Regex("▁*[^▁]+"), "isolated")
    named = ["<unk>", "<s>", "</s>"]
    first = named + [f"<0x{b:02X}>" for b in range(256)]
    # Chosen here: among letters equally frequent the trainer's own choice varies from run to run.
    counts = Counter("".join(corpus()).replace(" ", "▁"))
    letters = sorted(counts, key=lambda c: (-counts[c], c))[:72]  # the others fall back to bytes
    vocab, merges = trained(trainee, spec["vocab"], first, initial_alphabet=letters,
                            limit_alphabet=len(letters))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=True))
    if spec["spm"] == "normalizer":
        tokenizer.normalizer = legacy
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in named])
    tokenizer.post_processor = bos_template(tokenizer, spec["bos"])
    return tokenizer


def make_tokenizer(kind):
    spec = TOKENIZERS[kind]
    backend = sentencepiece_tokenizer(spec) if "spm" in spec else byte_level_tokenizer(spec)
    assert backend.get_vocab_size() == spec["vocab"], (kind, backend.get_vocab_size())
    names = {"eos_token": spec["eos"], "model_max_length": 128}
    if spec["bos"]:
        names["bos_token"] = spec["bos"]
    if "spm" in spec:
        names["unk_token"] = "<unk>"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    tokenizer.chat_template = TEMPLATES[kind]
    return tokenizer


def tokenizer_goldens(kind, tokenizer, fixtures):
    backend = tokenizer.backend_tokenizer

    def case(text):
        ids = backend.encode(text, add_special_tokens=False).ids
        return {"text": text, "ids": ids, "ids_bos": backend.encode(text).ids,
                "decoded": backend.decode(ids, skip_special_tokens=True),
                "decoded_special": backend.decode(ids, skip_special_tokens=False)}

    def chat(messages, generate):
        text = tokenizer.apply_chat_template(messages, tokenize=False,
                                             add_generation_prompt=generate)
        return {"messages": messages, "add_generation_prompt": generate, "rendered": text,
                "ids": backend.encode(text, add_special_tokens=False).ids}

    return {"tokenizer": kind, "fixtures": fixtures, "size": backend.get_vocab_size(),
            "bos": tokenizer.bos_token, "eos": tokenizer.eos_token,
            "template": TEMPLATES[kind],
            "strings": [case(s) for s in STRINGS + SENTENCES[:3] + ["\n".join(SENTENCES)]],
            "chats": [chat(c, g) for c in CONVERSATIONS for g in (False, True)]}
