import { runlakeError } from '../../infra/errors/runlake-error.ts';

/** Project of runs that name none. */
export const DEFAULT_PROJECT = 'default';

/** Longer names could exceed the maximum size of an index entry in Postgres. */
export const maxNameLength = 512;

/**
 * Returns a valid name. @throws BAD_REQUEST if the name is empty, too long, or contains characters that Postgres cannot
 * store.
 */
export function checkProjectName(name: string): string {
  const reason =
    name.length === 0
      ? 'is empty'
      : name.length > maxNameLength
        ? `is longer than ${maxNameLength} characters`
        : /[\0\p{Surrogate}]/u.test(name)
          ? 'contains NUL characters or lone surrogates'
          : undefined;
  if (reason !== undefined) throw runlakeError('BAD_REQUEST', { reason: `The name of the project ${reason}.` });
  return name;
}
