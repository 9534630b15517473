/** A number whose digits a JavaScript number cannot hold; it is shown as it was sent. */
export class ExactNumber {
  readonly source: string;
  constructor(source: string) {
    this.source = source;
  }
  toString(): string {
    return this.source;
  }
}

export type JsonObject = Readonly<Record<string, unknown>>;

/** Returns whether a parsed JSON value is an object, not null, a list or an {@link ExactNumber}. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof ExactNumber);
}

interface ReviverContext {
  readonly source?: string;
}

/** Parses JSON without losing digits if the browser supports access to the source text of numbers. */
export function parseExact(text: string): unknown {
  const revive = (_key: string, value: unknown, context?: ReviverContext): unknown => {
    if (typeof value !== 'number' || context?.source === undefined) return value;
    return JSON.stringify(value) === context.source || isSameNumber(value, context.source)
      ? value
      : new ExactNumber(context.source);
  };
  return JSON.parse(text, revive as (key: string, value: unknown) => unknown);
}

/** The API accepts deeper values, but browsers cannot format or show them. */
const maxShownLevels = 1_000;

/**
 * Parses JSON that is only shown: like {@link parseExact}, but what is nested deeper than {@link maxShownLevels} levels
 * becomes a text. The digits of values that are nested too deep for {@link parseExact} may be lost.
 */
export function parseToShow(text: string): unknown {
  let value: unknown;
  try {
    value = parseExact(text);
  } catch (error) {
    // Browsers have different errors for a recursion that is too deep.
    if (error instanceof SyntaxError) throw error;
    value = JSON.parse(text);
  }
  return cutBelow(value, maxShownLevels);
}

function cutBelow(value: unknown, levels: number): unknown {
  if (typeof value !== 'object' || value === null || value instanceof ExactNumber) return value;
  if (levels === 0) return `… (nested deeper than ${maxShownLevels} levels)`;
  for (const [name, field] of Object.entries(value)) {
    const cut = cutBelow(field, levels - 1);
    // An assignment would not change a field named `__proto__`.
    if (cut !== field) Object.defineProperty(value, name, { value: cut });
  }
  return value;
}

/** Smallest number that a JavaScript number holds with all its digits. */
const minNormal = 2 ** -1022;

/** Whether `source` is another notation of the same number, such as `1.0` or `1e3`. */
function isSameNumber(value: number, source: string): boolean {
  const isZero = !/^[^e]*[1-9]/i.test(source);
  const isNormal = isZero || (Number.isFinite(value) && Math.abs(value) >= minNormal);
  return isNormal && source.replace(/\D/g, '').length <= 15;
}

/** Part of the proposal that also gives revivers the source of a number. */
const { rawJSON } = JSON as { readonly rawJSON?: (text: string) => unknown };

/** Formats a value of {@link parseExact} as JSON; an indent of 0 is one line. */
export function formatExact(value: unknown, indent = 2): string {
  const replace = (_key: string, each: unknown) =>
    each instanceof ExactNumber && rawJSON ? rawJSON(each.source) : each;
  return JSON.stringify(value, replace, indent) ?? 'null';
}
