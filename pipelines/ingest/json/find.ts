import { type JsonKind, scanJson } from './scan.ts';

export interface FoundValue {
  readonly kind: JsonKind;
  readonly start: number;
  readonly end: number;
}

/**
 * The value at `path` in valid JSON, going through objects only; of members with one name the last counts, as in
 * `JSON.parse`. `undefined` where there is none.
 */
export function findPath(bytes: Buffer, start: number, end: number, path: readonly string[]): FoundValue | undefined {
  let found: FoundValue | undefined = { kind: 'object', start, end };
  for (const name of path) {
    const from: FoundValue = found;
    found = undefined;
    if (from.kind !== 'object') return undefined;
    const { kind } = scanJson(
      bytes,
      from.start,
      from.end,
      { part: 'stored JSON', maxDepth: 2 ** 30 },
      (kind, at, until, key) => {
        if (key === name) found = { kind, start: at, end: until };
      },
    );
    if (kind !== 'object' || found === undefined) return undefined;
  }
  return found;
}
