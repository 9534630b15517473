import { runlakeError } from '../../../infra/errors/runlake-error.ts';

/** Matches a JSON escape that `jsonb` refuses. After an escaped backslash, the same characters are plain text. */
const unusable = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/;

/**
 * Checks that a value can be stored as `jsonb`, which accepts neither NUL characters nor lone surrogates.
 *
 * @throws INVALID_REQUEST with `loc` as the location.
 */
export function requireStorableJson(value: unknown, loc: readonly (string | number)[]): void {
  if (!unusable.test(JSON.stringify(value) ?? '')) return;
  const msg = 'text must not contain the character U+0000 or a lone surrogate';
  throw runlakeError('INVALID_REQUEST', {}, { fields: [{ loc, msg, type: 'value_error' }] });
}
