import { randomUUID } from 'node:crypto';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { JsonObject } from '../../infra/json/json-value.ts';
import { formatMarkedJson } from '../../infra/json/marked-json.ts';
import { buildAssignments } from '../../infra/postgres/assignments.ts';
import type { Database, Sql } from '../../infra/postgres/database.ts';
import { createOrFind, getViolatedConstraint } from '../../infra/postgres/database-error.ts';
import { insertOnce } from '../../infra/postgres/insert-once.ts';
import { toJsonb } from '../../infra/postgres/value-types.ts';
import { deleteAttachmentSets } from '../attachments/attachment-sets.ts';
import { deleteShares } from '../shares/share-tokens.ts';
import { addTaggings, hasTaggings } from '../tags/taggings.ts';
import { countInWorkspaces, enforceLimit } from '../tenants/enforce-limit.ts';
import { type DatasetRecord, type DataType, readDataset } from './dataset.ts';
import { lockDataset, queueForDatasets } from './lock-dataset.ts';
import { checkTransformations } from './transformations/dataset-transformation.ts';
import { validateDocuments } from './validation-thread.ts';
import { writeTimeoutMs } from './versions.ts';

/** Limit on the number of datasets in an organisation. */
const datasetLimit = {
  max: 10_000,
  countSql: countInWorkspaces('datasets'),
  what: 'datasets',
  hint: 'Use an existing dataset, or delete those that are not needed',
};

export interface NewDataset {
  readonly id?: string | null | undefined;
  readonly name: string;
  readonly description?: string | null | undefined;
  readonly dataType: DataType;
  readonly inputsSchema?: JsonObject | null | undefined;
  readonly outputsSchema?: JsonObject | null | undefined;
  readonly transformations?: SentTransformations | undefined;
  readonly metadata?: JsonObject | null | undefined;
  readonly externallyManaged?: boolean | null | undefined;
  readonly createdAt?: string | null | undefined;
  readonly tagValueIds?: readonly string[] | null | undefined;
}

type SentTransformations = Parameters<typeof checkTransformations>[0] | null;

const toText = (value: JsonObject | null | undefined) => (value == null ? null : formatMarkedJson(value));

/** The examples of a new dataset. */
interface DatasetContent {
  readonly insert: (tx: Sql, datasetId: string) => Promise<unknown>;
  /** Returns whether the dataset, which exists, has exactly these examples. */
  readonly isStored: (tx: Sql, datasetId: string) => Promise<boolean>;
}

/**
 * Creates a dataset with its content in one transaction. A repeated request with an id gets the dataset that exists.
 *
 * @throws CONFLICT if the name or the id already exists; INVALID_SCHEMA; BAD_REQUEST for transformations; LIMIT_REACHED; NOT_FOUND for an unknown tag value;
 *   errors of `content`.
 */
export async function createDataset(
  database: Database,
  workspaceId: string,
  dataset: NewDataset,
  content?: DatasetContent,
): Promise<DatasetRecord> {
  await requireValidSchemas(dataset);
  const id = dataset.id?.toLowerCase() ?? randomUUID();
  const tagValueIds = dataset.tagValueIds ?? [];
  const row = {
    id,
    workspace_id: workspaceId,
    name: dataset.name,
    description: dataset.description ?? null,
    data_type: dataset.dataType,
    inputs_schema_definition: toText(dataset.inputsSchema),
    outputs_schema_definition: toText(dataset.outputsSchema),
    transformations: toTransformationText(dataset.transformations),
    metadata: toText(dataset.metadata),
    searchable: toJsonb(dataset.metadata ?? {}),
    externally_managed: dataset.externallyManaged ?? false,
    ...(dataset.createdAt != null && { created_at: dataset.createdAt }),
  };
  const insert = async (tx: Sql) => {
    const outcome = await insertOnce(tx, 'datasets', row);
    if (outcome !== 'inserted') {
      const isRepeated = outcome === 'repeated' && (await hasTaggings(tx, id, tagValueIds));
      if (isRepeated && (!content || (await content.isStored(tx, id)))) return;
      throw await createDuplicateError(tx, id);
    }
    await addTaggings(tx, workspaceId, { type: 'dataset', id }, tagValueIds);
    await content?.insert(tx, id);
    await enforceLimit(tx, 'organizationOfWorkspace', workspaceId, datasetLimit);
  };
  const create = async () => {
    await database.transaction(insert, content && { timeoutMs: writeTimeoutMs });
    return readDataset(database, workspaceId, id);
  };
  // With an id of the client, the dataset may have existed before.
  if (dataset.id != null || content !== undefined) return create();
  return createOrFind(create, () => readDataset(database, workspaceId, id));
}

/** Changes to a dataset. Absent fields stay unchanged; null clears a field, except for the name. */
interface DatasetChange
  extends Pick<NewDataset, 'description' | 'inputsSchema' | 'outputsSchema' | 'transformations' | 'metadata'> {
  readonly name?: string | null | undefined;
  readonly baselineExperimentId?: string | null | undefined;
}

/**
 * Changes a dataset. Changed schemas and transformations apply to later writes; stored examples stay unchanged.
 *
 * @throws NOT_FOUND; CONFLICT if the new name already exists; INVALID_SCHEMA; BAD_REQUEST for transformations.
 */
export async function updateDataset(
  database: Database,
  workspaceId: string,
  datasetId: string,
  change: DatasetChange,
): Promise<DatasetRecord> {
  await requireValidSchemas(change);
  const columns = {
    name: change.name ?? undefined,
    description: change.description,
    inputs_schema_definition: change.inputsSchema === undefined ? undefined : toText(change.inputsSchema),
    outputs_schema_definition: change.outputsSchema === undefined ? undefined : toText(change.outputsSchema),
    transformations: change.transformations === undefined ? undefined : toTransformationText(change.transformations),
    metadata: change.metadata === undefined ? undefined : toText(change.metadata),
    searchable: change.metadata === undefined ? undefined : toJsonb(change.metadata ?? {}),
    baseline_experiment_id: change.baselineExperimentId,
  };
  const { assignments, values } = buildAssignments(columns, 3);
  await queueForDatasets([datasetId], () =>
    database.execute(`UPDATE datasets SET modified_at = now()${assignments} WHERE id = $1 AND workspace_id = $2`, [
      datasetId,
      workspaceId,
      ...values,
    ]),
  ).catch((error: unknown) => {
    throw getViolatedConstraint(error) === undefined ? error : createNameError();
  });
  return readDataset(database, workspaceId, datasetId);
}

/**
 * Deletes a dataset with all versions of its examples. Its experiments are kept. The attachments are deleted first, so
 * that a crash leaves no content without a dataset; a repeated call deletes what remains.
 *
 * @throws NOT_FOUND; errors of the stores.
 */
export async function deleteDataset(
  { database, clickhouse }: { readonly database: Database; readonly clickhouse: ClickHouse },
  workspaceId: string,
  datasetId: string,
): Promise<void> {
  const remove = async (tx: Sql) => {
    await lockDataset(tx, workspaceId, datasetId, 'UPDATE');
    const sets = await tx.query<{ id: string }>(
      `SELECT DISTINCT entry.value ->> 'set' AS id FROM examples, jsonb_each(attachments) AS entry
       WHERE dataset_id = $1`,
      [datasetId],
    );
    await deleteAttachmentSets(
      clickhouse,
      workspaceId,
      sets.map(({ id }) => id),
    );
    await deleteShares(tx, { kind: 'dataset', workspaceId }, [datasetId]);
    await tx.execute('DELETE FROM datasets WHERE id = $1', [datasetId]);
  };
  await queueForDatasets([datasetId], () => database.transaction(remove, { timeoutMs: deletionTimeoutMs }));
}

/** Timeout of each statement of the deletion. Two million rows of examples take ten seconds. */
const deletionTimeoutMs = 600_000;

/** @throws INVALID_SCHEMA */
async function requireValidSchemas({
  inputsSchema,
  outputsSchema,
}: Pick<NewDataset, 'inputsSchema' | 'outputsSchema'>): Promise<void> {
  const schemas = { inputs: toText(inputsSchema), outputs: toText(outputsSchema) };
  if (inputsSchema || outputsSchema) await validateDocuments({ schemas, documents: [], slowMs: 0 });
}

function toTransformationText(transformations: SentTransformations | undefined): string | null {
  return transformations == null ? null : JSON.stringify(checkTransformations(transformations));
}

const createNameError = () => runlakeError('CONFLICT', { reason: 'Dataset with this name already exists.' });

/** Returns the error for a dataset whose id or name is taken. */
async function createDuplicateError(tx: Sql, id: string): Promise<Error> {
  const [taken] = await tx.query('SELECT FROM datasets WHERE id = $1', [id]);
  return taken ? runlakeError('CONFLICT', { reason: 'A dataset with this id already exists.' }) : createNameError();
}
