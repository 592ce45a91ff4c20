// Strings that are hard on tokenizers, from a seed: all planes, joined emoji, line ends, digits of every script, mixes of
// Chinese and Japanese, texts that look like special tokens.
export function random(seed) {
  let state = (seed ^ 0x9e3779b9) >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const below = (n) => Math.floor(next() * n);
  return { below, pick: (list) => list[below(list.length)], chance: (p) => next() < p };
}

const codeIn = (r, from, to) => String.fromCodePoint(from + r.below(to - from + 1));
const many = (r, most, make) => Array.from({ length: 1 + r.below(most) }, make).join('');

const blanks = [' ', '  ', '\t', '\n', '\r\n', '\r', '\n\n', '\u00a0', '\u0085', '\ufeff', '\u2028', '\u2029', '\u3000', '\u2003',
  '\u200b', '\u200c', '\u1680', '\u180e', '\u202f', '\u205f', '\v', '\f', '\x1c', '\x1f', '\0', '\x7f', '     ', ' \n ', '\n  \n'];
const words = ['the', 'The', 'THE', 'token', 'izer', "don't", "I'm", "we'll", "they're", "you've", "he'd", "IT'S", 'x', 'über', 'naïve',
  'Straße', 'façade', 'Ελλάδα', 'Москва', 'שלום', 'مرحبا', 'हिन्दी', 'ไทย', '한국어', 'ქართული', 'Ꭰꮳ', 'ﬁne', 'ǆ', 'ſ', 'K', 'ªº', 'Ⅷ', '²', '½'];
const marks = ['!', '"', '#', '$', '%', '&', "'", '(', ')', '*', '+', ',', '-', '.', '/', ':', ';', '<', '=', '>', '?', '@', '[', '\\', ']',
  '^', '_', '`', '{', '|', '}', '~', '...', '->', '=>', '::', '//', '/*', '*/', '```', '"""', '，', '。', '「', '」', '！', '～', '—', '…', '€', '™',
  '¿', '«', '»', '‘', '’', '“', '”', '·', '￥', '〜', '٪', '₿', '♯', '∀', '☃'];
const digits = ['0', '1', '12', '123', '1234', '1234567', '0x1F', '3.14', '1,000,000', '٣٤٥', '१२३', '１２３４', '〇', '一二三', '①', '⅓', '𝟘𝟙𝟚', '௧', '໑', '𐄇', '𑁒', '๙'];
const emoji = ['😀', '👍', '👍🏽', '👩‍💻', '👨‍👩‍👧‍👦', '🏳️‍🌈', '🇩🇪', '🇯🇵🇨🇳', '❤️', '❤️‍🔥', '1️⃣', '#️⃣', '☎️', '🧑🏿‍🚀', '🫨', '🪿', '🏴󠁧󠁢󠁳󠁣󠁴󠁿', '\u200d', '\ufe0f', '🏻', '⌚'];
const code = ['def f(x):\n    return x', 'for (int i = 0; i < n; i++) {', '#include <stdio.h>\n', 'SELECT * FROM t;', '<div class="a">', '</div>',
  '{"a":[1,2,3]}', 'https://example.org/a?b=c#d', 'user@example.org', '$HOME/x', 'a_b_c', 'camelCase', 'SNAKE_CASE', '\\frac{1}{2}', '===', '\t\tif'];

function anyCode(r) {
  for (;;) {
    const code = r.pick([
      () => r.below(0x80), () => r.below(0x800), () => r.below(0x3000), () => 0x3000 + r.below(0xd000), () => r.below(0x10000),
      () => 0x10000 + r.below(0x10000), () => 0x20000 + r.below(0x14000), () => 0xe0000 + r.below(0x1f0), () => r.below(0x110000),
    ])();
    if (code < 0xd800 || code > 0xdfff) return String.fromCodePoint(code);
  }
}

function cjk(r) {
  return r.pick([
    () => codeIn(r, 0x4e00, 0x9fff), () => codeIn(r, 0x3041, 0x309f), () => codeIn(r, 0x30a0, 0x30ff), () => codeIn(r, 0x3400, 0x4dbf),
    () => codeIn(r, 0xff01, 0xff9f), () => codeIn(r, 0x3000, 0x303f), () => codeIn(r, 0xac00, 0xd7a3), () => codeIn(r, 0x20000, 0x3347f),
    () => r.pick(['的', '是', '了', '一', '我', '你好', '世界', '。', '，', 'こんにちは', 'カタカナ', '東京', '々', 'ー', '龥', '龦', '㍿']),
  ])();
}

function lookAlike(r, specials) {
  const whole = r.pick(specials);
  const chars = [...whole];
  return r.pick([
    () => whole,
    () => whole,
    () => chars.slice(0, 1 + r.below(chars.length)).join(''),
    () => chars.slice(r.below(chars.length)).join(''),
    () => whole.replaceAll('｜', '|'),
    () => whole.replaceAll('▁', r.pick(['_', ' ', ''])),
    () => chars.map((c) => (r.chance(0.1) ? c + r.pick(['', ' ', '<', '｜', c]) : c)).join(''),
    () => whole + whole,
    () => '<' + whole,
    () => r.pick(['<', '<|', '<｜', '｜>', '▁', '<｜｜', '<<', '<think>', '</think>', '<｜User', 'User｜>']),
  ])();
}

function anything(r, specials) {
  return r.pick([
    () => many(r, 6, () => anyCode(r)), () => many(r, 8, () => cjk(r)), () => many(r, 4, () => r.pick(words) + r.pick(['', ' ', ' ', '\n'])),
    () => many(r, 4, () => r.pick(blanks)), () => many(r, 4, () => r.pick(marks)), () => many(r, 4, () => r.pick(digits)),
    () => many(r, 3, () => r.pick(emoji)), () => r.pick(code), () => lookAlike(r, specials),
    () => many(r, 5, () => codeIn(r, 0x20, 0x7e)), () => many(r, 4, () => codeIn(r, 0x300, 0x36f)), () => ' '.repeat(r.below(12)),
    () => r.pick(words) + many(r, 2, () => codeIn(r, 0x300, 0x36f)), () => r.pick(['a', ' ', '\n', '\t', '0', '-', '中', '=']).repeat(1 + r.below(40)),
    () => many(r, 6, () => r.pick(['a', 'B', ' ', '1', '.', '\n', 'é', '中', '\u0301', "'s"])), () => r.pick(marks) + r.pick(words),
  ])();
}

// One string: most are short, some of a few hundred characters.
export function hardString(r, specials) {
  const parts = r.chance(0.05) ? 40 : r.chance(0.3) ? 8 : 3;
  return many(r, parts, () => anything(r, specials) + (r.chance(0.3) ? r.pick([' ', '\n', '  ']) : ''));
}
