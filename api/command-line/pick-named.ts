import Format from 'typebox/format';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import { listWorkspaces } from '../../pipelines/tenants/workspaces.ts';
import { toPrintable } from './print-table.ts';

/** Names and ids of organisations, workspaces, projects and destinations in command arguments. */

export interface NamedRecord {
  readonly id: string;
  readonly name: string;
}

/** Maximum number of names that a message lists. */
const maxListedNames = 10;

/**
 * Finds the object with a name or id.
 *
 * @param what the kind of object, for messages.
 * @throws BAD_REQUEST, which lists the existing names if there is no such object, or the ids if several objects have
 *   the name.
 */
export function pickByNameOrId(what: string, nameOrId: string, all: readonly NamedRecord[]): NamedRecord {
  const found = all.filter(({ id, name }) => name === nameOrId || id === nameOrId.toLowerCase());
  if (found.length === 1) return found[0] as NamedRecord;
  const reason =
    found.length === 0
      ? `No ${what} has the name or id '${nameOrId}'. ${all.length === 0 ? 'There are none' : `Names: ${formatNames(all)}`}.`
      : `${found.length} have that name. Specify an id: ${found.map(({ id }) => id).join(', ')}.`;
  throw runlakeError('BAD_REQUEST', { reason: toPrintable(reason) });
}

/**
 * Returns all workspaces of the operator, oldest first, or only the workspace with the name or id `nameOrId`.
 *
 * @throws BAD_REQUEST if there is none.
 */
export async function findWorkspaces(
  { database, operator }: { readonly database: Database; readonly operator: Caller },
  nameOrId?: string,
): Promise<NamedRecord[]> {
  const all = (await listWorkspaces(database, operator, { includeDeleted: false })).map(
    ({ id, display_name: name }) => ({ id, name }),
  );
  return nameOrId === undefined ? all : [pickByNameOrId('workspace', nameOrId, all)];
}

export function formatNames(all: readonly NamedRecord[]): string {
  const listedNames = all.slice(0, maxListedNames).map(({ name }) => toPrintable(name));
  return all.length > maxListedNames ? `${listedNames.join(', ')}, …` : listedNames.join(', ');
}

export function isId(text: string): boolean {
  return Format.Test('uuid', text);
}
