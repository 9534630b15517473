/** The text of the JSON string at `start` to `end`, quotes included, in validated JSON. Lone surrogates stay what they are. */
export function textOfString(bytes: Buffer, start: number, end: number): string {
  const text = bytes.toString('utf8', start, end);
  return text.includes('\\') ? (JSON.parse(text) as string) : text.slice(1, -1);
}

/** The value of the validated JSON at `start` to `end`. For small values: everything in it becomes an object. */
export function parseRange(bytes: Buffer, start: number, end: number): unknown {
  return JSON.parse(bytes.toString('utf8', start, end));
}
