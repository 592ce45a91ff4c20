"""Byte-level BPE in the form of a Hugging Face tokenizer.json: training, encoding, decoding, writing.

The pre-tokenizer is that of DeepSeek-V3: three splits, one after the other, then bytes as printable letters.
Training is the usual greedy one: join the most frequent neighbouring pair, the smaller pair first at a tie.
"""
import collections
import json

import regex

SPECIAL = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜User｜>", "<｜Assistant｜>")
BOS, EOS, PAD, USER, ASSISTANT = range(5)
SPLITS = (r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
          r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
          r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
PATTERNS = tuple(regex.compile(s) for s in SPLITS)

CHAT_TEMPLATE = (
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    "{% set ns = namespace(system='') %}"
    "{% for message in messages %}{% if message['role'] == 'system' %}"
    "{% set ns.system = message['content'] %}{% endif %}{% endfor %}"
    "{{ bos_token }}{{ ns.system }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '<｜User｜>' + message['content'] }}"
    "{% elif message['role'] == 'assistant' %}"
    "{{ '<｜Assistant｜>' + message['content'] + '<｜end▁of▁sentence｜>' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}")


def byte_letters():
    """The letter that stands for each byte: printable Latin-1 as itself, the others from U+0100 on (GPT-2)."""
    kept = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    letters, next_free = {b: chr(b) for b in kept}, 0x100
    for b in range(256):
        if b not in letters:
            letters[b] = chr(next_free)
            next_free += 1
    return letters


def split(text):
    """The words of a text: each split cuts its matches out of what the one before left, as `Isolated` does."""
    pieces = [text]
    for pattern in PATTERNS:
        cut = []
        for piece in pieces:
            at = 0
            for m in pattern.finditer(piece):
                if m.start() > at:
                    cut.append(piece[at:m.start()])
                cut.append(m.group())
                at = m.end()
            if at < len(piece):
                cut.append(piece[at:])
        pieces = cut
    return [p for p in pieces if p]


def train(texts, vocab_size):
    """The merges, in order, learnt from the words of the texts."""
    letters = byte_letters()
    counts = collections.Counter()
    for text in texts:
        counts.update(split(text))
    words, weights = [], []
    for word, n in counts.items():
        words.append([letters[b] for b in word.encode()])
        weights.append(n)
    pairs, places = collections.Counter(), collections.defaultdict(set)
    for i, word in enumerate(words):
        for pair in zip(word, word[1:]):
            pairs[pair] += weights[i]
            places[pair].add(i)
    merges = []
    while len(merges) < vocab_size - len(SPECIAL) - 256:
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        for i in sorted(places.pop(best)):
            word, joined, at = words[i], [], 0
            while at < len(word):
                if at + 1 < len(word) and (word[at], word[at + 1]) == best:
                    joined.append(word[at] + word[at + 1])
                    at += 2
                else:
                    joined.append(word[at])
                    at += 1
            for pair in zip(word, word[1:]):
                pairs[pair] -= weights[i]
            for pair in zip(joined, joined[1:]):
                pairs[pair] += weights[i]
                places[pair].add(i)
            words[i] = joined
        pairs = +pairs
    return merges


class Tokenizer:
    def __init__(self, merges):
        letters = byte_letters()
        self.vocab = {text: i for i, text in enumerate(SPECIAL)}
        for b in sorted(letters.values()):
            self.vocab[b] = len(self.vocab)
        for a, b in merges:
            self.vocab[a + b] = len(self.vocab)
        self.merges, self.letters = merges, letters
        self.rank = {pair: i for i, pair in enumerate(merges)}
        self.known = {}

    def word(self, text):
        if text in self.known:
            return self.known[text]
        parts = [self.letters[b] for b in text.encode()]
        while len(parts) > 1:
            ranks = [self.rank.get(pair, len(self.merges)) for pair in zip(parts, parts[1:])]
            at = min(range(len(ranks)), key=lambda i: ranks[i])
            if ranks[at] == len(self.merges):
                break
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        ids = self.known[text] = [self.vocab[p] for p in parts]
        return ids

    def encode(self, text):
        """Text only: what looks like a special token is spelt out in bytes."""
        return [i for w in split(text) for i in self.word(w)]

    def decode(self, ids):
        names = {i: t for t, i in self.vocab.items()}
        of_letter = {c: b for b, c in self.letters.items()}
        out = b""
        for i in ids:
            out += names[i].encode() if i < len(SPECIAL) else bytes(of_letter[c] for c in names[i])
        return out.decode(errors="replace")

    def chat(self, turns):
        """Ids of (system, user, assistant, user, assistant, ...), as CHAT_TEMPLATE writes them."""
        ids = [BOS] + self.encode(turns[0])
        for i in range(1, len(turns), 2):
            ids += [USER] + self.encode(turns[i]) + [ASSISTANT] + self.encode(turns[i + 1]) + [EOS]
        return ids

    def save(self, folder, context_tokens):
        isolated = [{"type": "Split", "pattern": {"Regex": s}, "behavior": "Isolated", "invert": False} for s in SPLITS]
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        special = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                    "special": True} for i, t in enumerate(SPECIAL)]
        whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
                 "pre_tokenizer": {"type": "Sequence", "pretokenizers": isolated + [byte_level]},
                 "post_processor": dict(byte_level, add_prefix_space=True, trim_offsets=False),
                 "decoder": dict(byte_level, add_prefix_space=True),
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": self.vocab,
                           "merges": [f"{a} {b}" for a, b in self.merges]}}
        settings = {"add_bos_token": True, "add_eos_token": False, "bos_token": SPECIAL[BOS],
                    "eos_token": SPECIAL[EOS], "pad_token": SPECIAL[PAD], "clean_up_tokenization_spaces": False,
                    "model_max_length": context_tokens, "tokenizer_class": "PreTrainedTokenizerFast",
                    "chat_template": CHAT_TEMPLATE}
        for name, value in (("tokenizer.json", whole), ("tokenizer_config.json", settings)):
            with open(f"{folder}/{name}", "w", encoding="utf-8") as f:
                json.dump(value, f, ensure_ascii=False, indent=1)
                f.write("\n")


def load(path):
    with open(path, encoding="utf-8") as f:
        return Tokenizer([tuple(m.split(" ")) for m in json.load(f)["model"]["merges"]])
