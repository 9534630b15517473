/**
 * Numbers as Python writes them: with all digits of large integers, and with the fraction of `1.0`, which JavaScript
 * writes as `1`. The original tool server is written in Python, so these characters count towards the lengths of its
 * pages (see `json-size.ts`). What Runlake stores and returns keeps numbers as they were sent; see `marked-json.ts`.
 */
import { markNumbers, numberMark } from '../../infra/json/mark-numbers.ts';

/** A number that JavaScript would write differently from Python. */
export class PythonNumber {
  /** The number as Python writes it. */
  readonly text: string;
  readonly #value: number | string;

  /** @param token the number in JSON. */
  constructor(token: string) {
    const value = Number(token);
    const isInteger = /^-?\d+$/.test(token);
    this.text = isInteger ? token : writeFloat(value);
    this.#value = isInteger ? token : value;
  }

  /** An integer is returned as a text, so that clients see all its digits. */
  toJSON(): number | string {
    return this.#value;
  }
}

/** Writes a float whose value is an integer, or infinite. */
function writeFloat(value: number): string {
  if (!Number.isFinite(value)) return value > 0 ? 'Infinity' : '-Infinity';
  if (Object.is(value, -0)) return '-0.0';
  if (Math.abs(value) < 1e16) return `${value}.0`;
  return value.toExponential();
}

/** Returns whether JavaScript would write the number differently. */
function isWrittenDifferently(token: string): boolean {
  return /[.eE]/.test(token) ? !hasFraction(Number(token)) : !Number.isSafeInteger(Number(token));
}

const hasFraction = (value: number) => Number.isFinite(value) && !Number.isInteger(value);

/**
 * Maximum number of {@link PythonNumber}s of a text, each of which takes as much memory as fifty plain ones. So many do
 * not fit into a page, which then has only a preview.
 */
const maxPythonNumbers = 100_000;

/** Maximum nesting depth. JSON.parse reads more than the functions that walk a value, such as JSON.stringify. */
const maxDepth = 500;
const depthMarker = `… (nested deeper than ${maxDepth} levels)`;

/**
 * Parses JSON. Numbers that JavaScript would write differently from Python become {@link PythonNumber}, the first
 * {@link maxPythonNumbers} of them. Lists and objects below {@link maxDepth} others become a text that says so.
 *
 * @throws SyntaxError
 */
export function parseWithPythonNumbers(text: string): unknown {
  const marked = markNumbers(text, isWrittenDifferently, maxPythonNumbers);
  return replaceMembers(JSON.parse(marked ?? text), marked !== undefined);
}

/** Replaces the lists and objects in `value` that are nested too deeply, and marked texts with their numbers. */
function replaceMembers(value: unknown, hasMarks: boolean, depth = 0): unknown {
  if (typeof value === 'string')
    return hasMarks && value.startsWith(numberMark) ? new PythonNumber(value.slice(numberMark.length)) : value;
  if (typeof value !== 'object' || value === null) return value;
  if (depth >= maxDepth) return depthMarker;
  if (Array.isArray(value)) {
    // Object.keys() would create a text for each index.
    for (let index = 0; index < value.length; index += 1) {
      const member: unknown = value[index];
      if (typeof member === 'number') continue;
      const replaced = replaceMembers(member, hasMarks, depth + 1);
      if (replaced !== member) value[index] = replaced;
    }
    return value;
  }
  const members = value as Record<string, unknown>;
  for (const key in members) {
    const member = members[key];
    const replaced = replaceMembers(member, hasMarks, depth + 1);
    // Assigning to `__proto__` would not replace the member.
    if (replaced !== member) Object.defineProperty(members, key, { value: replaced });
  }
  return value;
}
