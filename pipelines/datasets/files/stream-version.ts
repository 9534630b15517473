import type { Sql } from '../../../infra/postgres/database.ts';
import type { ExampleRow } from '../example.ts';
import { type ExampleKey, readContent, splitIntoChunks } from '../read-examples.ts';
import { readNewestTime, resolveAsOf } from '../versions.ts';

/** Reads the same examples each time that it is called. */
export type ReadVersion = () => AsyncGenerator<ExampleRow>;

const keysPerQuery = 1_000;

/**
 * Finds a version of a dataset, of which {@link ReadVersion} reads all examples in the order of their last change,
 * without having them in memory at once.
 *
 * @param asOf A time, a tag or `latest`.
 * @throws NOT_FOUND
 */
export async function openVersion(
  database: Sql,
  workspaceId: string,
  datasetId: string,
  asOf: string | undefined,
): Promise<ReadVersion> {
  const time =
    (await resolveAsOf(database, workspaceId, datasetId, asOf)) ??
    (await readNewestTime(database, workspaceId, datasetId));
  return async function* () {
    for (let last = { valid_from: '-infinity', id: datasetId }; ; ) {
      const keys = await database.query<ExampleKey>(
        `SELECT dataset_id, id, valid_from,
           octet_length(inputs) + coalesce(octet_length(outputs), 0) + octet_length(metadata) AS bytes
         FROM examples WHERE dataset_id = $1 AND valid_from <= $2 AND valid_to > $2
           AND (valid_from, id) > ($3::timestamptz, $4::uuid)
         ORDER BY valid_from, id LIMIT ${keysPerQuery}`,
        [datasetId, time, last.valid_from, last.id],
      );
      for (const chunk of splitIntoChunks(keys)) yield* await readContent(database, chunk);
      if (keys.length < keysPerQuery) return;
      last = keys.at(-1)!;
    }
  };
}
