import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { JsonObject } from '../../infra/json/json-value.ts';
import { formatMarkedJson } from '../../infra/json/marked-json.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { runInTimeSlices } from '../../infra/timeouts/time-slices.ts';
import { toUniqueIds } from '../ingest/run-event/uuid.ts';
import { addSplits, defaultSplit, requireWriteSize, splitKey } from './example.ts';
import { findCurrentExamples, replaceExampleRows } from './example-rows.ts';
import { requireDataset, writeVersion } from './versions.ts';

export const metadataOperations = ['SET', 'ARRAY_ADD', 'ARRAY_REMOVE'] as const;

export interface MetadataChange {
  /** Key at the top level of the metadata. */
  readonly key: string;
  readonly operation: (typeof metadataOperations)[number];
  /** New value. Used only with `SET`. */
  readonly value?: unknown;
  /** Items to add or remove. Used only with `ARRAY_ADD` and `ARRAY_REMOVE`. */
  readonly values?: readonly string[] | null | undefined;
}

/**
 * Applies the given changes in order to the metadata of each example and creates one new version. Ids of examples that
 * are not in the dataset are skipped. If all are skipped, no version is created.
 *
 * @returns the ids of the changed examples.
 * @throws NOT_FOUND for an unknown dataset; EXAMPLE_TOO_LARGE; BAD_REQUEST if the metadata of all examples together is
 *   too large; DATASET_FULL.
 */
export async function changeMetadata(
  { database, config }: { readonly database: Database; readonly config: Pick<Config, 'maxRunBytes' | 'maxBodyBytes'> },
  workspaceId: string,
  datasetId: string,
  { exampleIds, changes }: { readonly exampleIds: readonly string[]; readonly changes: readonly MetadataChange[] },
): Promise<ReadonlySet<string>> {
  const ids = toUniqueIds(exampleIds);
  const [found] = await database.query(
    `SELECT FROM examples WHERE workspace_id = $1 AND dataset_id = $2 AND id = ANY ($3::uuid[]) AND valid_to = 'infinity'
     LIMIT 1`,
    [workspaceId, datasetId, ids],
  );
  if (!found) {
    // Distinguish an unknown dataset, which is an error, from a dataset that does not contain these examples.
    await requireDataset(database, workspaceId, datasetId);
    return new Set();
  }
  const changed = new Set<string>();
  await writeVersion(database, workspaceId, datasetId, async (tx, locked) => {
    const former = await findCurrentExamples({ tx, config }, locked, ids);
    const rows = await runInTimeSlices(changeRows(former, changes, config));
    for (const { id } of rows) changed.add(id);
    await replaceExampleRows(tx, locked, rows);
    return 0;
  });
  return changed;
}

function* changeRows(
  former: Awaited<ReturnType<typeof findCurrentExamples>>,
  sent: readonly MetadataChange[],
  config: Pick<Config, 'maxRunBytes' | 'maxBodyBytes'>,
) {
  const changes = sent.map((change) => ({ ...change, values: new Set<unknown>(change.values ?? []) }));
  const rows = [];
  let totalBytes = 0;
  for (const [id, { metadata, attachments }] of former) {
    let changed: JsonObject = metadata;
    for (const change of changes) {
      changed = applyChange(changed, change);
      yield;
    }
    const result = addSplits(changed, undefined);
    const bytes = Buffer.byteLength(formatMarkedJson(result));
    if (bytes > config.maxRunBytes) {
      const limits = { limitBytes: config.maxRunBytes, limit: 'RUNLAKE_MAX_RUN_BYTES' };
      throw runlakeError('EXAMPLE_TOO_LARGE', { example: id, ...limits });
    }
    totalBytes += bytes;
    requireWriteSize(totalBytes, config);
    rows.push({ id, attachments, metadata: result });
    yield;
  }
  return rows;
}

interface PreparedChange extends Omit<MetadataChange, 'values'> {
  readonly values: ReadonlySet<unknown>;
}

function applyChange(metadata: JsonObject, { key, operation, value, values }: PreparedChange): JsonObject {
  if (operation === 'SET') return copyWithMember(metadata, key, value ?? null);
  const former = Object.hasOwn(metadata, key) ? metadata[key] : undefined;
  const list: unknown[] = Array.isArray(former) ? former : key === splitKey ? [defaultSplit] : [];
  if (operation === 'ARRAY_ADD') return copyWithMember(metadata, key, [...new Set([...list, ...values])]);
  return copyWithMember(
    metadata,
    key,
    list.filter((item) => !values.has(item)),
  );
}

/**
 * Returns a copy of the metadata in which `key` has the value. Uses `Object.fromEntries`, because an assignment to the
 * key `__proto__` would set the prototype.
 */
const copyWithMember = (metadata: JsonObject, key: string, value: unknown): JsonObject =>
  Object.fromEntries([...Object.entries(metadata).filter(([name]) => name !== key), [key, value]]);
