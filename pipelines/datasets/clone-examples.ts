/**
 * Copies examples to another dataset.
 *
 * Invariant: every copied attachment belongs to a copied example. The source examples may be permanently deleted during
 * the copy.
 *
 *   1. Validate the examples, and copy the content of their attachments into new sets; see `pending-attachments.ts`.
 *   2. Lock both datasets. Any deletion of source examples is now either committed, or waits until the copy is done.
 *   3. Copy the rows that still exist. Before the commit, delete the new sets that no copied row refers to.
 */
import { randomUUID } from 'node:crypto';
import type { Readable } from 'node:stream';
import { streamJsonArray } from '../../infra/json/stream-array.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { copyAttachmentSets, deleteAttachmentSets } from '../attachments/attachment-sets.ts';
import { allExampleFields, type ExampleLinkDeps, formatExample } from './example.ts';
import { lockDataset, queueForDatasets } from './lock-dataset.ts';
import { confirmAttachmentSets, reserveAttachmentSets } from './pending-attachments.ts';
import {
  buildSelectionSql,
  createChunkReserver,
  openVersion,
  resolveVersion,
  toSelectionParameters,
} from './stream-version.ts';
import { createExamplePreparer, readExampleRules } from './validate-examples.ts';
import { writeTimeoutMs, writeVersionInTransaction } from './versions.ts';
import type { ExampleDeps } from './write-examples.ts';

/** Number of examples that are validated together, and of their characters. */
const examplesPerBatch = 2_000;
const charactersPerBatch = 1024 * 1024;

interface CloneRequest {
  readonly sourceId: string;
  readonly targetId: string;
  /** Version of the source dataset: a time, a tag or `latest`. */
  readonly asOf?: string | undefined;
  readonly exampleIds?: readonly string[] | undefined;
  readonly splits?: readonly string[] | undefined;
}

/**
 * Copies the examples of one version of a dataset into another dataset of the workspace, and creates one new version of
 * that dataset. The copies have new ids and their own attachments; transformations of the target do not apply to them.
 *
 * @returns the copies as a JSON array.
 * @throws NOT_FOUND; INVALID_EXAMPLE if an example does not match the schemas of the target dataset; DATASET_FULL;
 *   OVERLOADED if there is no memory for the response; errors of the stores.
 */
export async function cloneExamples(
  deps: ExampleDeps,
  workspaceId: string,
  { sourceId, targetId, asOf, exampleIds, splits }: CloneRequest,
  links: ExampleLinkDeps,
): Promise<Readable> {
  const { database } = deps;
  const time = await resolveVersion(database, workspaceId, { datasetId: sourceId, asOf });
  const rules = await readExampleRules(database, { workspaceId, datasetId: targetId });
  const validate = createExamplePreparer({ ...rules, transformations: [] }, deps.config);
  const choice = { ids: exampleIds, splits };
  const source = { datasetId: sourceId, asOf: time };
  let batch: { id: string; inputs: string; outputs: string | null }[] = [];
  let characters = 0;
  const flush = async () => {
    await validate(batch);
    batch = [];
    characters = 0;
  };
  let largestChunkBytes = 0;
  const reserve = createChunkReserver();
  const readSource = await openVersion(database, workspaceId, source, choice, (bytes) => {
    largestChunkBytes = Math.max(largestChunkBytes, bytes);
  });
  for await (const { id, inputs, outputs } of readSource()) {
    batch.push({ id, inputs, outputs });
    characters += inputs.length + (outputs?.length ?? 0);
    if (batch.length >= examplesPerBatch || characters >= charactersPerBatch) await flush();
  }
  if (batch.length > 0) await flush();
  const rows = await database.query<{ id: string }>(
    `SELECT DISTINCT entry.value ->> 'set' AS id FROM examples, jsonb_each(attachments) AS entry
     WHERE dataset_id = $1 AND valid_from <= $2 AND valid_to > $2 AND ${buildSelectionSql(3)}`,
    [sourceId, time, ...toSelectionParameters(choice)],
  );
  const copies = Object.fromEntries(rows.map(({ id }) => [id, randomUUID()]));
  const sets = Object.values(copies);
  await reserveAttachmentSets(deps, workspaceId, sets);
  await copyAttachmentSets(deps.clickhouse, workspaceId, copies);
  const writeCopies = (tx: Sql, as_of: string) =>
    tx.execute(
      `INSERT INTO examples (workspace_id, dataset_id, valid_from, id, created_at, inputs, outputs, metadata, searchable,
         source_run_id, attachments)
       SELECT workspace_id, $3, $4, gen_random_uuid(), created_at, inputs, outputs, metadata, searchable, source_run_id,
         coalesce((SELECT jsonb_object_agg(entry.key, jsonb_set(entry.value, '{set}', $5::jsonb -> (entry.value ->> 'set')))
           FROM jsonb_each(attachments) AS entry), '{}')
       FROM examples WHERE dataset_id = $1 AND valid_from <= $2 AND valid_to > $2 AND ${buildSelectionSql(6)}`,
      [sourceId, time, targetId, as_of, JSON.stringify(copies), ...toSelectionParameters(choice)],
    );
  const lockSource = (tx: Sql) => lockDataset(tx, workspaceId, sourceId, 'SHARE');
  const write = async (tx: Sql) => {
    // Lock the datasets in the same order as all other writes.
    if (sourceId < targetId) await lockSource(tx);
    return writeVersionInTransaction(tx, workspaceId, targetId, async (_, target) => {
      if (sourceId > targetId) await lockSource(tx);
      const copied = await writeCopies(tx, target.asOf);
      await deleteAttachmentSets(deps.clickhouse, workspaceId, await findUnusedSets(tx, target, sets));
      await confirmAttachmentSets(tx, sets);
      return copied;
    });
  };
  const made = await queueForDatasets([sourceId, targetId], () => {
    // The chunks of the response are about as large. Reserve memory for them before the commit: a later refusal would be wrong.
    reserve(largestChunkBytes);
    return database.transaction(write, { timeoutMs: writeTimeoutMs });
  });
  const target = { datasetId: targetId, asOf: made };
  const readCopies = await openVersion(database, workspaceId, target, { changedAt: made });
  async function* generateTexts() {
    for await (const row of readCopies()) yield formatExample(workspaceId, row, allExampleFields, links);
  }
  return streamJsonArray(generateTexts());
}

/** Returns those of the attachment sets to which no example that the version `asOf` added refers. */
async function findUnusedSets(
  tx: Sql,
  { id, asOf }: { readonly id: string; readonly asOf: string },
  sets: readonly string[],
): Promise<string[]> {
  if (sets.length === 0) return [];
  const rows = await tx.query<{ id: string }>(
    `SELECT id FROM unnest($3::text[]) AS new (id) EXCEPT
     SELECT entry.value ->> 'set' FROM examples, jsonb_each(attachments) AS entry WHERE dataset_id = $1 AND valid_from = $2`,
    [id, asOf, sets],
  );
  return rows.map((row) => row.id);
}
