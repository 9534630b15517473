import Format from 'typebox/format';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { printable } from './print-table.ts';

/** Organisations, workspaces, projects and destinations as arguments of commands. */

export interface Named {
  readonly id: string;
  readonly name: string;
}

/** Maximum number of names in a message. */
const maxListedNames = 10;

/**
 * Finds what a name or id means.
 *
 * @param what names the kind of object in messages.
 * @throws BAD_REQUEST with the names if there is none; with the ids if several have the name.
 */
export function pickNamed(what: string, nameOrId: string, all: readonly Named[]): Named {
  const found = all.filter(({ id, name }) => name === nameOrId || id === nameOrId.toLowerCase());
  if (found.length === 1) return found[0] as Named;
  const reason =
    found.length === 0
      ? `No ${what} has the name or id '${nameOrId}'. ${all.length === 0 ? 'There are none' : `Names: ${formatNames(all)}`}.`
      : `${found.length} have that name. Specify an id: ${found.map(({ id }) => id).join(', ')}.`;
  throw runlakeError('BAD_REQUEST', { reason: printable(reason) });
}

export function formatNames(all: readonly Named[]): string {
  const listed = all.slice(0, maxListedNames).map(({ name }) => printable(name));
  return all.length > maxListedNames ? `${listed.join(', ')}, …` : listed.join(', ');
}

export function isId(text: string): boolean {
  return Format.Test('uuid', text);
}
