/**
 * Encodes a value of a graph as JSON text in the form that clients expect: messages are flat objects with a `type`,
 * errors have name and message, BigInts are strings, sets are arrays and maps are objects.
 *
 * @throws TypeError if the value is cyclic.
 */
export function toGraphJson(value: unknown): string {
  return JSON.stringify(value, toPlain) ?? 'null';
}

/**
 * Replacer for JSON.stringify. `value` is the result of `toJSON`; the holder (`this`) still contains the original
 * value.
 */
function toPlain(this: unknown, key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return typeof value === 'bigint' ? value.toString() : value;
  const before = (this as Record<string, unknown>)[key];
  if (isMessage(before)) return flattenMessage(before);
  if (before instanceof Error) return { name: before.name, message: before.message };
  if (before instanceof Map) return Object.fromEntries(before);
  if (before instanceof Set) return [...before];
  return value;
}

interface Message {
  getType(): string;
  toDict(): { readonly type: string; readonly data: object };
}

function isMessage(value: unknown): value is Message {
  return (
    typeof value === 'object' &&
    value !== null &&
    'toDict' in value &&
    typeof value.toDict === 'function' &&
    'getType' in value &&
    typeof value.getType === 'function'
  );
}

function flattenMessage(message: Message): object {
  const { type, data } = message.toDict();
  return { ...data, type };
}
