import { createChunkMemory, reserveTexts, unreservedTextBytes } from '../../infra/fairness/tenant-context.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { splitIntoChunks } from '../../infra/postgres/page-within.ts';
import { parseTime } from '../ingest/run-event/times.ts';
import type { ExampleRow } from './example.ts';
import { contentBytesSql, type ExampleKey, maxChunkBytes, readContent, sumBytes } from './read-examples.ts';
import { readNewestVersionTime, resolveAsOf } from './versions.ts';

/** Reads the examples of a version. Every call yields the same examples. */
export type ReadVersion = () => AsyncGenerator<ExampleRow>;

export interface VersionReference {
  readonly datasetId: string;
  /** Version: a time, a tag or `latest`. */
  readonly asOf?: string | undefined;
}

/** Conditions on examples. An absent condition does not restrict the selection. */
export interface ExampleSelection {
  readonly ids?: readonly string[] | undefined;
  /** Selects examples that are in at least one of these splits. */
  readonly splits?: readonly string[] | undefined;
  /** Selects examples that were created or changed in this version. */
  readonly changedAt?: string | undefined;
}

/**
 * Returns the SQL conditions for an {@link ExampleSelection}. They use the parameter `$first` and the two that follow
 * it.
 */
export const buildSelectionSql = (first: number) => `($${first}::uuid[] IS NULL OR id = ANY ($${first}))
  AND ($${first + 1}::text[] IS NULL OR searchable -> 'dataset_split' ?| $${first + 1})
  AND ($${first + 2}::timestamptz IS NULL OR valid_from = $${first + 2})`;
export const toSelectionParameters = ({ ids, splits, changedAt }: ExampleSelection) => [
  ids ?? null,
  splits ?? null,
  changedAt ?? null,
];

/**
 * Returns the time of a version. If the given time is after the newest version, returns the time of the newest version:
 * a later time does not identify a version, because another write may still create a version before it.
 *
 * @throws NOT_FOUND
 */
export async function resolveVersion(
  database: Sql,
  workspaceId: string,
  { datasetId, asOf }: VersionReference,
): Promise<string> {
  const time = await resolveAsOf(database, workspaceId, datasetId, asOf);
  const newest = await readNewestVersionTime(database, workspaceId, datasetId);
  return time === undefined || Number(parseTime(time)) > Number(parseTime(newest)) ? newest : time;
}

const keysPerQuery = 1_000;

/**
 * Returns a function that reserves memory of the current request for chunks that are in memory one after the other, as
 * long as the client reads slowly: for the first large one as much as any chunk needs, and more only for a single larger
 * example.
 */
export function createChunkReserver(): (bytes: number) => void {
  const runInChunk = createChunkMemory();
  return (bytes) => {
    if (bytes > unreservedTextBytes) runInChunk(() => reserveTexts(Math.max(bytes, maxChunkBytes)));
  };
}

/**
 * Resolves a version of a dataset and returns a {@link ReadVersion}. It streams the selected examples, ordered by the
 * time of their last change. One chunk of them is in memory at a time.
 *
 * @param reserve called with the size of each chunk before it is read; throws if there is no memory for it.
 * @throws NOT_FOUND
 */
export async function openVersion(
  database: Sql,
  workspaceId: string,
  version: VersionReference,
  choice: ExampleSelection = {},
  reserve: (bytes: number) => void = () => undefined,
): Promise<ReadVersion> {
  const time = await resolveVersion(database, workspaceId, version);
  const { datasetId } = version;
  return async function* () {
    for (let last = { valid_from: '-infinity', id: datasetId }; ; ) {
      const keys = await database.query<ExampleKey>(
        `SELECT dataset_id, id, valid_from, ${contentBytesSql} AS bytes
         FROM examples WHERE dataset_id = $1 AND valid_from <= $2 AND valid_to > $2
           AND (valid_from, id) > ($3::timestamptz, $4::uuid) AND ${buildSelectionSql(5)}
         ORDER BY valid_from, id LIMIT ${keysPerQuery}`,
        [datasetId, time, last.valid_from, last.id, ...toSelectionParameters(choice)],
      );
      for (const chunk of splitIntoChunks(keys, maxChunkBytes)) {
        reserve(sumBytes(chunk));
        yield* await readContent(database, chunk);
      }
      if (keys.length < keysPerQuery) return;
      last = keys.at(-1)!;
    }
  };
}
