// Writes unicode_ranges.c: the general category of every code point, by the Unicode data of the node that runs this.
//   node engine/text/unicode_ranges.mjs >engine/text/unicode_ranges.c, then clang-format
// The order of the names is that of category_names in unicode_sets.c.
const names = ['Lu', 'Ll', 'Lt', 'Lm', 'Lo', 'Mn', 'Mc', 'Me', 'Nd', 'Nl', 'No', 'Pc', 'Pd', 'Ps', 'Pe', 'Pi', 'Pf', 'Po',
  'Sm', 'Sc', 'Sk', 'So', 'Zs', 'Zl', 'Zp', 'Cc', 'Cf', 'Cs', 'Co', 'Cn'];
const tests = names.map((name) => new RegExp(`^\\p{${name}}$`, 'u'));
const han = new RegExp('^\\p{Script=Han}$', 'u');
const rows = [], bounds = [];
for (let code = 0, before = -1, inside = false; code < 0x110000; code++) {
  const text = String.fromCodePoint(code);
  const category = tests.findIndex((t) => t.test(text));
  if (category !== before) rows.push(code * 32 + category);
  before = category;
  if (han.test(text) !== inside) bounds.push(code);
  inside = han.test(text);
}
const list = (values) => {
  const out = [];
  for (let i = 0; i < values.length; i += 10) out.push('    ' + values.slice(i, i + 10).map((v) => `0x${v.toString(16)}`).join(', ') + ',');
  return out.join('\n');
};
console.log(`/* General categories and the script Han of Unicode ${process.versions.unicode}. Written by unicode_ranges.mjs. */
#include "engine/text/unicode_sets.h"

/* First code point * 32 + category, up to the next row's first code point. */
const uint32_t lar_unicode_categories[] = {
${list(rows)}
};
const uint32_t lar_unicode_category_rows = ${rows.length};

/* Bounds: the first code point inside, the first behind, and so on. */
const uint32_t lar_unicode_han[] = {
${list(bounds)}
};
const uint32_t lar_unicode_han_bounds = ${bounds.length};`);
