/** Escapes in text that `JSON.stringify` wrote: an escaped backslash, NUL, and half of a surrogate pair, which it escapes only when alone. */
const escapes = /\\(?:\\|u0000|ud[89a-f][0-9a-f]{2})/g;

/** JSON that `jsonb` takes: it refuses NUL characters, which are left out, and lone surrogates, which become U+FFFD. */
export function jsonbText(json: string): string {
  if (!json.includes('\\u')) return json;
  return json.replace(escapes, (found) => (found === '\\\\' ? found : found === '\\u0000' ? '' : '\ufffd'));
}
