import { runlakeError } from '../errors/runlake-error.ts';

export type JsonObject = Readonly<Record<string, unknown>>;

/** Returns whether a parsed JSON value is an object, not null or a list. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns a parsed JSON object as it is, and an empty object in place of any other value. */
export function toJsonObject(value: unknown): JsonObject {
  return isJsonObject(value) ? value : {};
}

/** Replaces lone surrogates with U+FFFD in the output of `JSON.stringify`, which escapes them, and no pairs. */
export function replaceLoneSurrogates(json: string): string {
  if (!json.includes('\\ud')) return json;
  return json.replace(/\\(?:\\|ud[89a-f][0-9a-f]{2})/g, (found) => (found === '\\\\' ? found : '\ufffd'));
}

/** Parses the JSON text of a column; null stays null. */
export function parseNullableJson<T = JsonObject>(text: string | null): T | null {
  return text === null ? null : (JSON.parse(text) as T);
}

/**
 * Matches a JSON escape that `jsonb` rejects. After an escaped backslash, the same characters are not an escape but
 * plain text.
 */
const unstorableEscapes = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/;

/**
 * Checks that a value can be stored as `jsonb`, which accepts neither NUL characters nor lone surrogates.
 *
 * @throws INVALID_REQUEST with `loc` as the location.
 */
export function requireStorableJson(value: unknown, loc: readonly (string | number)[]): void {
  if (!unstorableEscapes.test(JSON.stringify(value) ?? '')) return;
  const msg = 'text must not contain the character U+0000 or a lone surrogate';
  throw runlakeError('INVALID_REQUEST', {}, { fields: [{ loc, msg, type: 'value_error' }] });
}
