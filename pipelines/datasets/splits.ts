import type { Config } from '../../infra/config/settings.ts';
import type { Database, Sql } from '../../infra/postgres/database.ts';
import { toUniqueIds } from '../ingest/run-event/uuid.ts';
import { addSplits, splitKey } from './example.ts';
import { readCurrentExamples, replaceExampleRows } from './example-rows.ts';
import { resolveAsOf, writeVersion } from './versions.ts';

/** Returns the names of the splits that a dataset has in a version. @throws NOT_FOUND */
export async function listSplits(
  database: Sql,
  workspaceId: string,
  datasetId: string,
  asOf: string | undefined,
): Promise<string[]> {
  const time = await resolveAsOf(database, workspaceId, datasetId, asOf);
  const rows = await database.query<{ name: string }>(
    `SELECT DISTINCT jsonb_array_elements_text(searchable -> '${splitKey}') AS name FROM examples
     WHERE dataset_id = $1 AND CASE WHEN $2::timestamptz IS NULL THEN valid_to = 'infinity'
       ELSE valid_from <= $2 AND valid_to > $2 END ORDER BY 1`,
    [datasetId, time ?? null],
  );
  return rows.map(({ name }) => name);
}

/**
 * Adds examples to a split or removes them from it, and creates one new version.
 *
 * @throws NOT_FOUND; CONFLICT if an example belongs to another dataset; BAD_REQUEST if the metadata of all examples
 *   together is too large; DATASET_FULL.
 */
export async function changeSplit(
  { database, config }: { readonly database: Database; readonly config: Pick<Config, 'maxBodyBytes'> },
  workspaceId: string,
  datasetId: string,
  {
    name,
    exampleIds,
    remove,
  }: { readonly name: string; readonly exampleIds: readonly string[]; readonly remove: boolean },
): Promise<string[]> {
  const ids = toUniqueIds(exampleIds);
  await writeVersion(database, workspaceId, datasetId, async (tx, dataset) => {
    const current = await readCurrentExamples({ tx, config }, dataset, ids);
    function* changeRows() {
      for (const [id, { metadata, attachments }] of current) {
        const splits = [metadata[splitKey] ?? []].flat().filter((split) => split !== name) as string[];
        yield { id, attachments, metadata: addSplits(metadata, remove ? splits : [...splits, name]) };
      }
    }
    await replaceExampleRows(tx, dataset, changeRows());
    return 0;
  });
  return ids;
}
