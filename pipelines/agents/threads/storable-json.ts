import { fault } from '../../../infra/errors/runlake-error.ts';

/** An escape that `jsonb` refuses; behind an escaped backslash the same letters are text. */
const unfit = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/;

/** Searched members are kept as `jsonb`, which cannot hold the NUL character or half of a surrogate pair. @throws INVALID_REQUEST that names the place. */
export function requireStorableJson(value: unknown, loc: readonly (string | number)[]): void {
  if (!unfit.test(JSON.stringify(value) ?? '')) return;
  const msg = 'text here must not hold the character U+0000 or half of a surrogate pair';
  throw fault('INVALID_REQUEST', {}, { fields: [{ loc, msg, type: 'value_error' }] });
}
