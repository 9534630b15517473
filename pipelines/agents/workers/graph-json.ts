/**
 * JSON text as clients expect it from a graph: messages are flat dictionaries with their `type`, errors have name and message, big
 * integers are text, sets and maps are lists and objects.
 *
 * @throws TypeError where a value holds itself.
 */
export function graphJson(value: unknown): string {
  return JSON.stringify(value, plain) ?? 'null';
}

/** Called by JSON.stringify with the value after its own `toJSON`; what it was before stands in the holder. */
function plain(this: unknown, key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return typeof value === 'bigint' ? value.toString() : value;
  const before = (this as Record<string, unknown>)[key];
  if (isMessage(before)) return flattened(before);
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

function flattened(message: Message): object {
  const { type, data } = message.toDict();
  return { ...data, type };
}
