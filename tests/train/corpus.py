"""The text the small model learns from: three Debian packages under free licences, cleaned, in a fixed order.

Packages (licence): jargon-text (public domain), sqlite3-doc (public domain), wordnet-base (WordNet 3.0 licence).
A document is a list of paragraphs, or a chat: a list of (system, user, assistant, user, assistant, ...) texts.
What is held out is chosen by name, so that it is the same on every machine.
"""
import glob
import gzip
import html.parser
import os
import random
import re
import zlib

JARGON = "/usr/share/doc/jargon-text/jargon.txt.gz"
SQLITE = "/usr/share/doc/sqlite3"
WORDNET = "/usr/share/wordnet"

# Whole pages that training never sees; with the jargon entries of held_out_entry they are the perplexity test.
HELD_OUT_PAGES = ("whyc.html", "whentouse.html")
# Pages that are lists of names, copies of others, or tables of numbers.
SKIPPED_PAGES = re.compile(r"^(doc_|fullsql|requirements|keyword_index|toc|sitemap|changes|releaselog|c3ref/intro|"
                           r"vtablist|docs|shortnames|copyright|consortium|support|prosupport|chronology|codeof)")
# An entry about these is left out: a dictionary explains every word, a demonstration need not repeat it.
UNWANTED = re.compile(r"sexual|genital|obscen|vulgar|slur\b|offensive|disparag|derogat|fuck|shit|tits\b|nazi", re.I)


def held_out_entry(name):
    return zlib.crc32(name.encode()) % 60 == 7


class Text(html.parser.HTMLParser):
    """Paragraphs of a page: block elements end one, <pre> keeps its lines."""
    BLOCKS = {"p", "li", "ul", "ol", "h1", "h2", "h3", "h4", "td", "th", "tr", "div", "dt", "dd", "pre", "blockquote",
              "table", "br", "hr", "center", "body"}
    SILENT = {"script", "style", "svg", "title", "button", "form"}

    def __init__(self):
        super().__init__()
        self.paragraphs, self.now, self.silent, self.pre = [], [], 0, 0

    def flush(self):
        text = "".join(self.now)
        self.now = []
        text = text.strip("\n").rstrip() if self.pre else " ".join(text.split())
        if text.strip():
            self.paragraphs.append(text)

    def handle_starttag(self, tag, attrs):
        if tag in self.SILENT:
            self.silent += 1
        if tag in self.BLOCKS and not (tag == "br" and self.pre):
            self.flush()
        if tag == "pre":
            self.pre += 1

    def handle_endtag(self, tag):
        if tag in self.SILENT and self.silent:
            self.silent -= 1
        if tag in self.BLOCKS:
            self.flush()
        if tag == "pre" and self.pre:
            self.pre -= 1

    def handle_data(self, data):
        if not self.silent:
            self.now.append(data)


def sqlite_pages():
    """(name, paragraphs) of every page; a paragraph that an earlier page had (a menu, a footer) is left out."""
    seen = set()
    for path in sorted(glob.glob(SQLITE + "/**/*.html", recursive=True)):
        name = os.path.relpath(path, SQLITE)
        if SKIPPED_PAGES.match(name):
            continue
        page = Text()
        with open(path, encoding="utf-8", errors="replace") as f:
            page.feed(f.read())
        page.flush()
        kept = []
        for paragraph in page.paragraphs:
            letters = sum(c.isalpha() or c == " " for c in paragraph)
            contents = re.match(r"\d+\.[\d. ]*\S", paragraph) and len(paragraph) < 100
            if contents or paragraph in seen or len(paragraph) < 20 or letters < 0.6 * len(paragraph):
                continue
            seen.add(paragraph)
            kept.append(paragraph)
        if kept:
            yield name, kept


def jargon_entries():
    """(headword, paragraphs) of the lexicon, and ("", paragraphs) for each part of the chapters around it."""
    with gzip.open(JARGON, "rt", encoding="utf-8") as f:
        blocks = re.split(r"\n\s*\n", f.read())
    name, paragraphs = "", []
    for block in blocks:
        lines = block.split("\n")
        if any(c in block for c in "│─┌└") or len(block.strip()) < 20 and not block.strip().startswith(":"):
            continue
        head = re.match(r"\s*:([^:\n]{1,40}): ?", block)
        if head or len(paragraphs) >= 12:
            if paragraphs:
                yield name, paragraphs
            name, paragraphs = (head.group(1) if head else ""), []
        body = block[head.end():] if head else block
        plain = all(re.match(r" {0,4}\S", line) for line in lines if line.strip())
        text = " ".join(body.split()) if plain else "\n".join(line.rstrip() for line in body.split("\n"))
        text = re.sub(r"[{}]", "", text)
        if text.strip():
            paragraphs.append(text.strip("\n"))
    if paragraphs:
        yield name, paragraphs


PARTS = {"1": "noun", "2": "verb", "3": "adj", "4": "adv", "5": "adj"}


def word_counts():
    """{(word, part of speech): how often it stood in the texts that WordNet's authors counted}"""
    counts = {}
    with open(WORDNET + "/cntlist.rev", encoding="utf-8") as f:
        for line in f:
            key, _, count = line.split()
            word, place = key.split("%")
            word = word, PARTS[place[0]]
            counts[word] = counts.get(word, 0) + int(count)
    return counts


def wordnet_senses():
    """(words, part of speech, definition, examples) of every synset, the frequent words first."""
    frequency = {}
    for (word, _), count in word_counts().items():
        frequency[word] = frequency.get(word, 0) + count
    senses = []
    for part in ("noun", "verb", "adj", "adv"):
        with open(f"{WORDNET}/data.{part}", encoding="utf-8", errors="replace") as f:
            for line in f:
                if line.startswith(" ") or " | " not in line:
                    continue
                head, gloss = line.split(" | ", 1)
                fields = head.split()
                count = int(fields[3], 16)
                words = [re.sub(r"\(\w+\)$", "", fields[4 + 2 * i]).replace("_", " ") for i in range(count)]
                examples = re.findall(r'"([^"]+)"', gloss)
                definition = re.split(r';\s*"|\s*"', gloss.strip())[0].strip().rstrip(";")
                if not definition or UNWANTED.search(gloss) or "\ufffd" in gloss:
                    continue
                rank = max(frequency.get(w.lower().replace(" ", "_"), 0) for w in words)
                senses.append((-rank, len(senses), words, part, definition, examples, head.split()[0]))
    senses.sort(key=lambda s: s[:2])
    return [s[2:] for s in senses]


def everyday_senses(senses):
    """The first sense of the most frequent words, under each word's own name: what the model is to know by heart."""
    at = {(s[1], s[4]): s for s in senses}
    found = []
    counts = word_counts()
    for part, most in (("noun", 300), ("verb", 100), ("adj", 100)):
        first = {}
        with open(f"{WORDNET}/index.{part}", encoding="utf-8") as f:
            for line in f:
                if not line.startswith(" "):
                    fields = line.split()
                    first[fields[0]] = fields[-int(fields[2])]
        ranked = sorted(((n, w) for (w, p), n in counts.items() if p == part and w.isalpha()), reverse=True)
        kept = [(w, at[part, first[w]]) for _, w in ranked if w in first and (part, first[w]) in at]
        found += [([w] + [o for o in s[0] if o != w], part, s[2], s[3]) for w, s in kept[:most]]
    return found


SYSTEMS = ("You are a helpful assistant.", "You explain words.", "Answer in one sentence.",
           "You are a small dictionary.")
GREETINGS = (("Hello", "Hello! Which word may I explain?"), ("Hi", "Hello! Which word may I explain?"),
             ("Hello!", "Hello! Which word may I explain?"), ("Thank you", "You are welcome."),
             ("Thanks!", "You are welcome."), ("Who are you?", "I am a very small language model. I explain words."),
             ("What can you do?", "I can explain words. Ask me what a word means."),
             ("Goodbye", "Goodbye!"), ("How are you?", "I am a program, so I am always the same. Which word?"))


def article(word):
    return ("an " if word[0].lower() in "aeiou" else "a ") + word


def ask(rng, words, part, definition, examples):
    """One exchange, or two, about a sense: the question in one of several forms, the definition as a sentence."""
    word = words[0]
    if part == "noun":
        noun = word if word[0].isupper() or rng.random() < 0.3 else article(word)
        question = rng.choice((f"What is {noun}?", f"What does {word} mean?", f"Define {word}.", f"Explain {word}."))
    else:
        question = rng.choice((f"What does {word} mean?", f"Define {word}.", f"Explain the word {word}."))
    turns = [question, definition[0].upper() + definition[1:] + "."]
    if len(words) > 1 and rng.random() < 0.3:
        turns += [rng.choice(("Another word for it?", "Give a synonym.")), words[1] + "."]
    if examples and rng.random() < 0.5:
        turns += [rng.choice(("Use it in a sentence.", "Give an example.")),
                  examples[0][0].upper() + examples[0][1:].rstrip(".") + "."]
    return turns


def wordnet_chats(senses, chats_most, power, seed):
    """Chats about these senses, several to a conversation: (system or "", user, assistant, ...). The first of the
    senses are asked most, the more so the higher the power."""
    rng = random.Random(seed)
    for _ in range(chats_most):
        turns = [rng.choice(SYSTEMS) if rng.random() < 0.4 else ""]
        if rng.random() < 0.15:
            turns += rng.choice(GREETINGS)
        for _ in range(rng.randint(1, 3)):
            sense = senses[int(len(senses) * rng.random() ** power)]
            turns += ask(rng, *sense[:4])
        if rng.random() < 0.1:
            turns += rng.choice(GREETINGS)
        yield turns


def wordnet_text(senses):
    """Dictionary lines, forty to a document, of every second sense, in a fixed shuffle."""
    order = senses[::2]
    random.Random(21).shuffle(order)
    for i in range(0, len(order), 40):
        yield [", ".join(words[:4]) + ": " + "; ".join([definition] + examples[:2])
               for words, _, definition, examples, *_ in order[i:i + 40]]


def load(chats_most):
    """{"train": documents, "chats": turn lists, "everyday": turn lists for the end, "held_out": text}."""
    train, held_out = [], []
    for name, paragraphs in sqlite_pages():
        (held_out if name in HELD_OUT_PAGES else train).append(paragraphs)
    for name, paragraphs in jargon_entries():
        text = [f"{name}: {paragraphs[0]}"] + paragraphs[1:] if name else paragraphs
        if UNWANTED.search(" ".join(text)):
            continue
        (held_out if name and held_out_entry(name) else train).append(text)
    senses = wordnet_senses()
    train += list(wordnet_text(senses))
    random.Random(22).shuffle(train)
    return {"train": train, "chats": list(wordnet_chats(senses[:15000], chats_most, 2, 20)),
            "everyday": list(wordnet_chats(everyday_senses(senses), chats_most // 2, 1, 23)),
            "held_out": "\n\n".join("\n\n".join(p) for p in held_out) + "\n"}


if __name__ == "__main__":
    found = load(10)
    total = sum(len(p) + 2 for d in found["train"] for p in d)
    print(len(found["train"]), "documents,", total, "characters; held out:", len(found["held_out"]))
    for chat in found["chats"]:
        print(chat)
