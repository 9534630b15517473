/**
 * Encodes inputs or outputs of a run as JSON text like the stock tracers: LangChain objects with their own `toJSON`,
 * maps as objects, sets as arrays, errors with name and message, BigInts as strings. Cycles are replaced by a marker.
 * The result is always an object; any other value becomes its member `name`.
 */
export function traceJson(value: unknown, name: string): string {
  const text = stringifyTraceValue(value) ?? 'null';
  return text.startsWith('{') ? text : `{"${name}":${text}}`;
}

/** Encodes a value as JSON text; undefined if the value has no JSON form, such as a function. Never throws. */
export function stringifyTraceValue(value: unknown): string | undefined {
  try {
    return JSON.stringify(value, toPlain);
  } catch {
    try {
      return JSON.stringify(value, createCycleReplacer());
    } catch (error) {
      return JSON.stringify({ unreadable: error instanceof Error ? error.message : String(error) });
    }
  }
}

function toPlain(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString();
  if (typeof value !== 'object' || value === null) return value;
  if (value instanceof Error) return { name: value.name, message: value.message };
  if (value instanceof Map) return Object.fromEntries(value);
  if (value instanceof Set) return [...value];
  if (value instanceof RegExp) return value.toString();
  return value;
}

/** Returns a replacer that tracks the path from the root: JSON.stringify calls it with the holder as `this`. */
function createCycleReplacer(): (this: unknown, key: string, value: unknown) => unknown {
  const path: unknown[] = [];
  return function (key, value) {
    while (path.length > 0 && path.at(-1) !== this) path.pop();
    const plain = toPlain(key, value);
    if (typeof plain !== 'object' || plain === null) return plain;
    if (path.includes(value) || path.includes(plain)) return { result: '[Circular]' };
    path.push(plain);
    return plain;
  };
}
