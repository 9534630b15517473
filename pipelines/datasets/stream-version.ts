import type { Sql } from '../../infra/postgres/database.ts';
import { parseTime } from '../ingest/run-event/times.ts';
import type { ExampleRow } from './example.ts';
import { type ExampleKey, readContent, splitIntoChunks } from './read-examples.ts';
import { readNewestTime, resolveAsOf } from './versions.ts';

/** Reads the same examples each time that it is called. */
export type ReadVersion = () => AsyncGenerator<ExampleRow>;

export interface VersionReference {
  readonly datasetId: string;
  /** A time, a tag or `latest`. */
  readonly asOf?: string | undefined;
}

/** Conditions on examples; absent ones are always true. */
export interface ExampleSelection {
  readonly ids?: readonly string[] | undefined;
  /** Examples that are in one of these splits. */
  readonly splits?: readonly string[] | undefined;
  /** Examples that this version created or changed. */
  readonly changedAt?: string | undefined;
}

/** The conditions of a {@link ExampleSelection} for the parameters `$first` and the following two. */
export const buildSelectionSql = (first: number) => `($${first}::uuid[] IS NULL OR id = ANY ($${first}))
  AND ($${first + 1}::text[] IS NULL OR searchable -> 'dataset_split' ?| $${first + 1})
  AND ($${first + 2}::timestamptz IS NULL OR valid_from = $${first + 2})`;
export const toSelectionParameters = ({ ids, splits, changedAt }: ExampleSelection) => [
  ids ?? null,
  splits ?? null,
  changedAt ?? null,
];

/**
 * Returns the time of a version. For a time after the newest version it is that of the newest, because a time in the
 * future is not a version: a later write may come before it.
 *
 * @throws NOT_FOUND
 */
export async function resolveVersion(
  database: Sql,
  workspaceId: string,
  { datasetId, asOf }: VersionReference,
): Promise<string> {
  const time = await resolveAsOf(database, workspaceId, datasetId, asOf);
  const newest = await readNewestTime(database, workspaceId, datasetId);
  return time === undefined || Number(parseTime(time)) > Number(parseTime(newest)) ? newest : time;
}

const keysPerQuery = 1_000;

/**
 * Resolves a version of a dataset, and returns a {@link ReadVersion} that streams the selected examples in the order of
 * their last change.
 *
 * @throws NOT_FOUND
 */
export async function openVersion(
  database: Sql,
  workspaceId: string,
  version: VersionReference,
  choice: ExampleSelection = {},
): Promise<ReadVersion> {
  const time = await resolveVersion(database, workspaceId, version);
  const { datasetId } = version;
  return async function* () {
    for (let last = { valid_from: '-infinity', id: datasetId }; ; ) {
      const keys = await database.query<ExampleKey>(
        `SELECT dataset_id, id, valid_from,
           octet_length(inputs) + coalesce(octet_length(outputs), 0) + octet_length(metadata) AS bytes
         FROM examples WHERE dataset_id = $1 AND valid_from <= $2 AND valid_to > $2
           AND (valid_from, id) > ($3::timestamptz, $4::uuid) AND ${buildSelectionSql(5)}
         ORDER BY valid_from, id LIMIT ${keysPerQuery}`,
        [datasetId, time, last.valid_from, last.id, ...toSelectionParameters(choice)],
      );
      for (const chunk of splitIntoChunks(keys)) yield* await readContent(database, chunk);
      if (keys.length < keysPerQuery) return;
      last = keys.at(-1)!;
    }
  };
}
