export type JsonObject = Readonly<Record<string, unknown>>;

/** Returns whether a parsed JSON value is an object, not null or a list. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns a parsed JSON object as it is, and an empty object in place of any other value. */
export function toJsonObject(value: unknown): JsonObject {
  return isJsonObject(value) ? value : {};
}

/** Parses the JSON text of a column; null stays null. */
export function parseNullableJson<T = JsonObject>(text: string | null): T | null {
  return text === null ? null : (JSON.parse(text) as T);
}
