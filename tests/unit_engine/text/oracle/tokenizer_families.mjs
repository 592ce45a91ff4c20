// Pre-tokenizers of other families than the file at hand, in the form of tokenizer.json: with its vocabulary the ids show
// where each of them cuts.
const split = (Regex) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false });
const bytes = (use_regex = false) => ({ type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex });
const sequence = (...pretokenizers) => ({ type: 'Sequence', pretokenizers });
const short = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const upper = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]', lower = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]';
const blanks = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const kimi = `[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?${upper}*${lower}+${short}?|[^\\r\\n\\p{L}\\p{N}]?${upper}+${lower}*${short}?` +
  `|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${blanks}`;

export const families = {
  coder: sequence(split('[\r\n]'), split('\\s?\\p{L}+'), split('\\s?\\p{P}+'), split('[一-龥ࠀ-一가-\ud7ff]+'), split('\\p{N}'), bytes()),
  llm: sequence(split('[\r\n]'), split('\\s?[A-Za-zµÀ-ÖØ-öø-ƺ]+'), split('\\s?[!-/:-~！-／：-～‘-‟　-。]+'), split('\\s+$'),
    split('[一-龥ࠀ-一가-\ud7ff]+'), split('\\p{N}'), bytes()),
  glm: sequence(split(`${short}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${blanks}`), bytes()),
  kimi: sequence(split(kimi), bytes()),
  gpt2: bytes(true),
  digits: sequence({ type: 'Digits', individual_digits: true }, { type: 'Punctuation', behavior: 'Isolated' },
    { type: 'Split', pattern: { String: 'a.' }, behavior: 'Isolated', invert: false }, bytes()),
};
