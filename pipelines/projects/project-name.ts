import { fault } from '../../infra/errors/runlake-error.ts';

/** Where a run names no project. */
export const DEFAULT_PROJECT = 'default';

/** Longer names would not fit into an index of Postgres, whatever their characters. */
export const maxNameLength = 512;

/** @throws BAD_REQUEST where a name is empty, too long, or holds what Postgres cannot. */
export function checkProjectName(name: string): string {
  const reason =
    name.length === 0
      ? 'is empty'
      : name.length > maxNameLength
        ? `is longer than ${maxNameLength} characters`
        : /[\0\p{Surrogate}]/u.test(name)
          ? 'holds NUL characters or lone surrogates'
          : undefined;
  if (reason !== undefined) throw fault('BAD_REQUEST', { reason: `The name of the project ${reason}.` });
  return name;
}
