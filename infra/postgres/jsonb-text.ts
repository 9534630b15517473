/** Formats JSON that `jsonb` accepts: NUL characters and lone surrogates, which `jsonb` rejects, become U+FFFD. */
export function toJsonb(value: object): string {
  return JSON.stringify(value).replace(/(?<!\\)((?:\\\\)*)\\u(?:0000|d[89a-f][\da-f]{2})/gi, '$1\ufffd');
}
