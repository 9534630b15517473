/** The text of the JSON string at `start` to `end`, including its quotes, in validated JSON. Keeps lone surrogates. */
export function decodeStringBytes(bytes: Buffer, start: number, end: number): string {
  const text = bytes.toString('utf8', start, end);
  return text.includes('\\') ? (JSON.parse(text) as string) : text.slice(1, -1);
}

/** Parses the validated JSON at `start` to `end`. Only for small values, because it creates objects for everything in it. */
export function parseRange(bytes: Buffer, start: number, end: number): unknown {
  return JSON.parse(bytes.toString('utf8', start, end));
}
