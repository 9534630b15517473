/** Look-ups by name that several tools share. */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { isUuid } from '../../pipelines/ingest/run-event/uuid.ts';
import type { MainApi } from './main-api.ts';

/** Maximum number of items in a page of the main API. Tools reduce larger limits to it. */
export const maxLimit = 100;

/** Describes a reduced limit, for the note of a result. */
export function describeLimit(limit: number): { readonly note?: string } {
  return limit <= maxLimit ? {} : { note: `limit ${limit} was reduced to ${maxLimit}, the maximum.` };
}

/** Returns the id of the project with a name or an id. @throws NOT_FOUND */
export async function findProjectId(api: MainApi, nameOrId: string): Promise<string> {
  const find = async (condition: { readonly name: string } | { readonly id: string }) =>
    ((await api.get('/sessions', { ...condition, limit: 1 })) as { id: string }[])[0]?.id;
  const id = (await find({ name: nameOrId })) ?? (isUuid(nameOrId) ? await find({ id: nameOrId }) : undefined);
  if (id === undefined) throw runlakeError('NOT_FOUND', { what: `Project ${nameOrId}` });
  return id;
}

/** Maximum number of names in a list. Each is one request. */
const maxNames = 100;
const namesAtOnce = 5;

/** Returns the ids of the projects with names or ids, each once. @throws BAD_REQUEST for too many; NOT_FOUND */
export async function findProjectIds(api: MainApi, namesOrIds: readonly string[]): Promise<string[]> {
  const names = [...new Set(namesOrIds)];
  if (names.length > maxNames)
    throw runlakeError('BAD_REQUEST', { reason: `A list of projects can have at most ${maxNames} names.` });
  const ids = new Set<string>();
  for (let at = 0; at < names.length; at += namesAtOnce) {
    const some = names.slice(at, at + namesAtOnce);
    for (const id of await Promise.all(some.map((name) => findProjectId(api, name)))) ids.add(id);
  }
  return [...ids];
}

export type StoredRecord = Readonly<Record<string, unknown>>;

/** Returns the dataset with an id or a name. @throws NOT_FOUND; BAD_REQUEST if there is neither. */
export async function findDataset(
  api: MainApi,
  { id, name }: { readonly id: string | undefined; readonly name: string | undefined },
): Promise<StoredRecord> {
  if (id !== undefined) return (await api.get(`/datasets/${id}`)) as StoredRecord;
  if (name === undefined)
    throw runlakeError('BAD_REQUEST', { reason: 'Either dataset_id or dataset_name must be provided.' });
  const [found] = (await api.get('/datasets', { name, limit: 1 })) as StoredRecord[];
  if (found === undefined) throw runlakeError('NOT_FOUND', { what: `Dataset ${name}` });
  return found;
}

/** Returns the members of `record` with these names; a missing one is null. */
export function pick(record: StoredRecord, names: readonly string[]): StoredRecord {
  return Object.fromEntries(names.map((name) => [name, record[name] ?? null]));
}

export const compareTexts = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
