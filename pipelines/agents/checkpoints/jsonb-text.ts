/** Escapes in output of `JSON.stringify`: a backslash, NUL, and a lone surrogate (it does not escape surrogate pairs). */
const escapes = /\\(?:\\|u0000|ud[89a-f][0-9a-f]{2})/g;

/** Makes JSON text acceptable to `jsonb`: removes NUL characters and replaces lone surrogates with U+FFFD. */
export function jsonbText(json: string): string {
  if (!json.includes('\\u')) return json;
  return json.replace(escapes, (found) => (found === '\\\\' ? found : found === '\\u0000' ? '' : '\ufffd'));
}
