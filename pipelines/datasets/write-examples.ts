/**
 * Writes to examples. Each write creates one version of its dataset; see `versions.ts`.
 *
 *   1. Transform and validate the examples.
 *   2. Store the content of new attachments in ClickHouse, under new ids; see `pending-attachments.ts`.
 *   3. Write the rows in one transaction.
 */
import { createHash, randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { Config } from '../../infra/config/settings.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { requireStored } from '../../infra/event-log/find-accepted.ts';
import { formatMarkedJson } from '../../infra/json/marked-json.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { getViolatedConstraint } from '../../infra/postgres/database-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { runInTimeSlices } from '../../infra/timeouts/time-slices.ts';
import { attachmentEvents } from '../../schemas/topics.ts';
import {
  type AttachmentLocation,
  copyAttachments,
  hashAttachmentSets,
  type NewSetAttachment,
  storeAttachmentSets,
} from '../attachments/attachment-sets.ts';
import { listAttachments } from '../attachments/attachment-urls.ts';
import { normaliseMimeType, validateAttachmentName } from '../attachments/read-attachment.ts';
import { addSplits, createExampleError, splitKey } from './example.ts';
import {
  type ChangedRow,
  type CurrentExample,
  type ExampleFields,
  insertExampleRows,
  readCurrentExamples,
  replaceExampleRows,
} from './example-rows.ts';
import { confirmAttachmentSets, reserveAttachmentSets } from './pending-attachments.ts';
import { areRecent, type ExampleWithSource, type SourceRunDeps } from './source-runs.ts';
import { createExamplePreparer, prepareExamples, readExampleRules, requireInputs } from './validate-examples.ts';
import { type LockedDataset, writeVersion } from './versions.ts';

export interface ExampleDeps {
  readonly database: Database;
  readonly clickhouse: ClickHouse;
  readonly config: Pick<Config, 'maxRunBytes' | 'maxPageBytes' | 'maxBodyBytes'>;
  readonly accept: SourceRunDeps['accept'];
}

interface NewAttachment {
  readonly name: string;
  readonly mimeType: string;
  readonly content: Buffer;
}

export interface NewExample extends ExampleFields {
  /** Inputs as the JSON text of an object that the client sent. */
  readonly inputs?: string | undefined;
  /** Whether to copy inputs, outputs and all attachments from the source run. */
  readonly useSourceRunIo?: boolean | null | undefined;
  /** Names of attachments that the source run must have, and that are copied. */
  readonly useSourceRunAttachments?: readonly string[] | null | undefined;
  readonly attachments?: readonly NewAttachment[] | undefined;
}

export interface WrittenExamples {
  readonly asOf: string;
  readonly ids: readonly string[];
}

/**
 * Creates examples in a dataset. A repeated request, which SDKs send if they lose the response, creates nothing and returns
 * the version that the first request created.
 *
 * @throws NOT_FOUND; CONFLICT if an id already exists; INVALID_EXAMPLE; EXAMPLE_TOO_LARGE; BAD_REQUEST if the source runs
 *   are too large; DATASET_FULL; errors of the stores.
 */
export async function createExamples(
  deps: ExampleDeps,
  workspaceId: string,
  datasetId: string,
  sent: readonly NewExample[],
): Promise<WrittenExamples> {
  requireDistinctIds(sent);
  const prepared = await prepareExamples(deps, { workspaceId, datasetId }, sent);
  const examples = prepared.map(requireInputs);
  const attachments = await storeAttachments(deps, workspaceId, examples);
  const write = async (tx: Sql, dataset: LockedDataset) => {
    await requireFreeIds(tx, workspaceId, examples);
    await confirmAttachmentSets(tx, attachments.sets);
    await insertExampleRows(
      tx,
      dataset,
      examples.map((example) => ({ ...example, attachments: attachments.byExample.get(example.id) })),
    );
    return examples.length;
  };
  const asOf = await writeVersion(deps.database, workspaceId, datasetId, write)
    .catch(toIdConflict)
    .catch(async (error: unknown) => {
      if (!isRunlakeError(error) || error.code !== 'CONFLICT') throw error;
      const repeated = await findRepeatedVersion(deps, { workspaceId, datasetId }, examples, attachments.byExample);
      if (repeated === undefined) throw error;
      return repeated;
    });
  return { asOf, ids: sent.map(({ id }) => id) };
}

type CompleteExample = NewExample & { readonly inputs: string };

/** Returns the newest version of the examples if one write created them all with the same content. */
async function findRepeatedVersion(
  { database, clickhouse }: Pick<ExampleDeps, 'database' | 'clickhouse'>,
  { workspaceId, datasetId }: { readonly workspaceId: string; readonly datasetId: string },
  examples: readonly CompleteExample[],
  attachments: StoredAttachments['byExample'],
): Promise<string | undefined> {
  const hashes = await runInTimeSlices(hashContents(examples));
  const found = await database.query<Pick<CurrentExample, 'attachments'> & { id: string; as_of: string }>(
    `SELECT id, valid_from AS as_of, attachments
     FROM examples JOIN unnest($3::uuid[], $4::text[], $5::uuid[], $6::timestamptz[]) AS sent (id, hash, source, created) USING (id)
     WHERE workspace_id = $1 AND dataset_id = $2 AND valid_to = 'infinity'
       AND ${contentHashSql} = hash
       AND source_run_id IS NOT DISTINCT FROM source AND created_at = coalesce(created, created_at)`,
    [
      ...[workspaceId, datasetId, examples.map(({ id }) => id), hashes],
      examples.map(({ sourceRunId }) => sourceRunId ?? null),
      examples.map(({ createdAt }) => createdAt ?? null),
    ],
  );
  const versions = new Set(found.map(({ as_of }) => as_of));
  if (found.length < examples.length || versions.size > 1) return undefined;
  const pairs = found.map((row) => [row.attachments, attachments.get(row.id) ?? {}] as const);
  return (await haveEqualContent(clickhouse, workspaceId, pairs)) ? found[0]?.as_of : undefined;
}

type Locations = Readonly<Record<string, AttachmentLocation>>;

/** Returns whether both attachments of each pair have the same names, types and content. */
async function haveEqualContent(
  clickhouse: ClickHouse,
  workspaceId: string,
  pairs: readonly (readonly [stored: Locations, sent: Locations])[],
): Promise<boolean> {
  const listSets = (locations: Locations) => [...new Set(Object.values(locations).map(({ set }) => set))];
  const hashes = await hashAttachmentSets(clickhouse, workspaceId, pairs.flat().flatMap(listSets));
  const describe = (locations: Locations) =>
    Object.fromEntries(Object.entries(locations).map(([key, { set, name }]) => [key, { name, hash: hashes.get(set) }]));
  return pairs.every(([stored, sent]) => isDeepStrictEqual(describe(stored), describe(sent)));
}

/** SQL: what {@link hashContents} computes. */
export const contentHashSql = `md5(concat_ws(E'\\n', inputs, coalesce(outputs, 'null'), metadata))`;

/** Returns a hash of the inputs, outputs and metadata of each example, as they are stored. */
export function* hashContents(examples: readonly Omit<CompleteExample, 'id'>[]) {
  const hashes: string[] = [];
  for (const { inputs, outputs, metadata, split } of examples) {
    const content = [inputs, outputs ?? 'null', formatMarkedJson(addSplits(metadata ?? {}, split))];
    hashes.push(createHash('md5').update(content.join('\n')).digest('hex'));
    yield;
  }
  return hashes;
}

/** @throws CONFLICT if one of the examples is in any dataset of the workspace. */
export async function requireFreeIds(
  tx: Sql,
  workspaceId: string,
  examples: readonly { readonly id: string }[],
): Promise<void> {
  const [taken] = await tx.query<{ id: string }>(
    `SELECT id FROM examples WHERE workspace_id = $1 AND id = ANY ($2::uuid[]) AND valid_to = 'infinity' LIMIT 1`,
    [workspaceId, examples.map(({ id }) => id)],
  );
  if (taken) throw runlakeError('CONFLICT', { reason: `Example ${taken.id} already exists.` });
}

/** Converts the error of a write that added an id at the same time as another write. @throws CONFLICT or the error. */
export function toIdConflict(error: unknown): never {
  const isIdTaken = getViolatedConstraint(error) === 'examples_by_id';
  throw isIdTaken ? runlakeError('CONFLICT', { reason: 'An example with this id already exists.' }) : error;
}

/** Changes to an example. Absent fields stay unchanged. */
export interface ExampleChange extends Pick<NewExample, 'id' | 'inputs' | 'outputs' | 'metadata' | 'split'> {
  /** New attachments. Without `attachmentsOperations`, they replace all former attachments. */
  readonly attachments?: readonly NewAttachment[] | undefined;
  readonly attachmentsOperations?: AttachmentsOperations | null | undefined;
}

/** Changes to the existing attachments of an example. Attachments that are neither renamed nor retained are removed. */
export interface AttachmentsOperations {
  readonly rename?: Readonly<Record<string, string>> | null | undefined;
  readonly retain?: readonly string[] | null | undefined;
}

/**
 * Changes examples of a dataset.
 *
 * @throws NOT_FOUND; CONFLICT if an example belongs to another dataset; INVALID_EXAMPLE; EXAMPLE_TOO_LARGE; BAD_REQUEST
 *   if the stored metadata is too large; errors of the stores.
 */
export async function updateExamples(
  deps: ExampleDeps,
  workspaceId: string,
  datasetId: string,
  sent: readonly ExampleChange[],
): Promise<WrittenExamples> {
  requireDistinctIds(sent);
  const rules = await readExampleRules(deps.database, { workspaceId, datasetId });
  const changes = await createExamplePreparer(rules, deps.config)(sent);
  const added = await storeAttachments(deps, workspaceId, changes);
  const asOf = await writeVersion(deps.database, workspaceId, datasetId, async (tx, dataset) => {
    const ids = changes.map(({ id }) => id);
    const former = await readCurrentExamples({ tx, config: deps.config }, dataset, ids);
    await confirmAttachmentSets(tx, added.sets);
    await replaceExampleRows(tx, dataset, buildChangedRows(changes, former, added.byExample));
    return 0;
  });
  return { asOf, ids: changes.map(({ id }) => id) };
}

/** Returns the rows that replace the newest state `former` of examples. @throws INVALID_EXAMPLE */
export function buildChangedRows(
  changes: readonly ExampleChange[],
  former: ReadonlyMap<string, CurrentExample>,
  added: StoredAttachments['byExample'],
): ChangedRow[] {
  return changes.map((change) => {
    const { metadata, attachments } = former.get(change.id)!;
    const changed =
      change.metadata == null && change.split == null
        ? metadata
        : addSplits(change.metadata ?? metadata, change.split, metadata[splitKey]);
    return {
      id: change.id,
      inputs: change.inputs,
      outputs: change.outputs,
      metadata: changed,
      attachments: changeAttachments(change, attachments, added.get(change.id) ?? {}),
    };
  });
}

function changeAttachments(
  { id, attachmentsOperations: operations }: ExampleChange,
  former: Readonly<Record<string, AttachmentLocation>>,
  added: Readonly<Record<string, AttachmentLocation>>,
): Record<string, AttachmentLocation> {
  if (operations == null) return Object.keys(added).length > 0 ? { ...added } : { ...former };
  const kept: [string, string][] = [
    ...(operations.retain ?? []).map((name): [string, string] => [name, name]),
    ...Object.entries(operations.rename ?? {}),
  ];
  // A repeated request, which SDKs send if they lose the response, finds the new names only. A new name may also be a former
  // name of another attachment, so all of them are read by their new names.
  const names = new Set([...kept.map(([, to]) => to), ...Object.keys(added)]);
  const isRepeated =
    isDeepStrictEqual(names, new Set(Object.keys(former))) && kept.some(([from]) => !Object.hasOwn(former, from));
  const result = new Map<string, AttachmentLocation>();
  for (const [from, to] of kept) {
    const name = isRepeated ? to : from;
    const location = Object.hasOwn(former, name) ? former[name] : undefined;
    if (location === undefined) throw createExampleError(id, `it has no attachment ${JSON.stringify(from)}`);
    const reason = validateAttachmentName(to);
    if (reason !== undefined) throw createExampleError(id, `attachment ${JSON.stringify(from)}: ${reason}`);
    if (result.has(to)) throw createExampleError(id, `two attachments would be named ${JSON.stringify(to)}`);
    result.set(to, location);
  }
  const changed = { ...Object.fromEntries(result), ...added };
  requireAttachmentCount(id, Object.keys(changed).length);
  return changed;
}

/** Each response with links to the attachments of an example signs all of them. */
const maxAttachments = 1_000;

/** @throws INVALID_EXAMPLE */
function requireAttachmentCount(id: string, count: number): void {
  if (count > maxAttachments) throw createExampleError(id, `it would have more than ${maxAttachments} attachments`);
}

interface StoredAttachments {
  /** Ids of the new attachment sets; see `pending-attachments.ts`. */
  readonly sets: readonly string[];
  /** For each example, the locations of its attachments by name. */
  readonly byExample: ReadonlyMap<string, Locations>;
}

/**
 * Stores new attachments, and copies attachments from source runs.
 *
 * @throws INVALID_EXAMPLE; NOT_STORED_YET if attachments of the runs may be among the events that are not stored yet; errors
 *   of the stores and the log.
 */
export async function storeAttachments(
  { database, clickhouse, accept }: ExampleDeps,
  workspaceId: string,
  examples: readonly Pick<NewExample, 'id' | 'attachments' | keyof ExampleWithSource | 'useSourceRunAttachments'>[],
): Promise<StoredAttachments> {
  const copiedRunIds = examples.flatMap(
    ({ sourceRunId, useSourceRunIo, useSourceRunAttachments }) =>
      ((useSourceRunIo || (useSourceRunAttachments ?? []).length > 0) && sourceRunId) || [],
  );
  if (await areRecent(clickhouse, workspaceId, copiedRunIds))
    await requireStored({ log: accept.log, topic: attachmentEvents, storeWaitMs: accept.config.patchWaitMs });
  const sourceRunIds = examples.flatMap(({ useSourceRunIo, sourceRunId }) => (useSourceRunIo && sourceRunId) || []);
  const attachmentsByRun = await listAttachments(clickhouse, workspaceId, sourceRunIds);
  const examplesWithAttachments = examples
    .map(({ id, attachments = [], sourceRunId, useSourceRunIo, useSourceRunAttachments }) => {
      const ofRun = (useSourceRunIo && sourceRunId && attachmentsByRun.get(sourceRunId)) || [];
      const names = new Set([...ofRun.map(({ name }) => name), ...(useSourceRunAttachments ?? [])]);
      // Both would be in the same set under the same name.
      for (const { name } of attachments) names.delete(name);
      requireAttachmentCount(id, attachments.length + names.size);
      return { id, attachments, sourceRunId, names: [...names] };
    })
    .filter(({ attachments, names }) => attachments.length + names.length > 0);
  const byExample = new Map<string, Record<string, AttachmentLocation>>();
  const sets = examplesWithAttachments.map(() => randomUUID());
  await reserveAttachmentSets({ database, clickhouse }, workspaceId, sets);
  const copies = examplesWithAttachments.flatMap(({ sourceRunId, names }, index) =>
    sourceRunId && names.length > 0 ? [{ from: sourceRunId, to: sets[index]!, names }] : [],
  );
  const copiedBySet = await copyAttachments(clickhouse, workspaceId, copies);
  const attachmentsToStore: NewSetAttachment[] = [];
  for (const [index, example] of examplesWithAttachments.entries()) {
    const { id, attachments, names } = example;
    const set = sets[index]!;
    const copied = copiedBySet.get(set) ?? {};
    const missing = names.find((name) => !Object.hasOwn(copied, name));
    if (missing !== undefined)
      throw createExampleError(id, `its source run has no attachment ${JSON.stringify(missing)}`);
    const own = attachments.map((attachment) => {
      const mimeType = normaliseMimeType(attachment.mimeType);
      attachmentsToStore.push({ ...attachment, set, mimeType });
      return [attachment.name, { set, name: attachment.name, mime_type: mimeType }] as const;
    });
    byExample.set(id, { ...copied, ...Object.fromEntries(own) });
  }
  await storeAttachmentSets(clickhouse, workspaceId, attachmentsToStore);
  return { sets, byExample };
}

/** @throws INVALID_EXAMPLE */
export function requireDistinctIds(examples: readonly { readonly id: string }[]): void {
  const seen = new Set<string>();
  for (const { id } of examples) {
    if (seen.has(id)) throw createExampleError(id, 'the request contains it twice');
    seen.add(id);
  }
}
