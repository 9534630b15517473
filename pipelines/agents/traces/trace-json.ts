/**
 * JSON text of what went into a run or came out, as stock tracers write it: objects of LangChain by their own `toJSON`, maps as objects,
 * sets as lists, errors with name and message, big integers as text. What holds itself says so at that place. An object, always:
 * anything else becomes its member `name`.
 */
export function traceJson(value: unknown, name: string): string {
  const text = textOf(value) ?? 'null';
  return text.startsWith('{') ? text : `{"${name}":${text}}`;
}

/** Undefined where there is no such text, such as of a function. Never throws. */
export function textOf(value: unknown): string | undefined {
  try {
    return JSON.stringify(value, plain);
  } catch {
    try {
      return JSON.stringify(value, withoutCircles());
    } catch (error) {
      return JSON.stringify({ unreadable: error instanceof Error ? error.message : String(error) });
    }
  }
}

function plain(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString();
  if (typeof value !== 'object' || value === null) return value;
  if (value instanceof Error) return { name: value.name, message: value.message };
  if (value instanceof Map) return Object.fromEntries(value);
  if (value instanceof Set) return [...value];
  if (value instanceof RegExp) return value.toString();
  return value;
}

/** JSON.stringify calls it with the holder as `this`, so that the way from the root down is known. */
function withoutCircles(): (this: unknown, key: string, value: unknown) => unknown {
  const way: unknown[] = [];
  return function (key, value) {
    while (way.length > 0 && way.at(-1) !== this) way.pop();
    const simple = plain(key, value);
    if (typeof simple !== 'object' || simple === null) return simple;
    if (way.includes(value) || way.includes(simple)) return { result: '[Circular]' };
    way.push(simple);
    return simple;
  };
}
