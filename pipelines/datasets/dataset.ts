import { type Expression, type SqlBool, sql } from 'kysely';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { isJsonObject, type JsonObject, parseNullableJson } from '../../infra/json/json-value.ts';
import { parseNullableMarkedJson } from '../../infra/json/marked-json.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import {
  containsPairs,
  containsText,
  fetchRows,
  isOneOf,
  listPage,
  type Page,
  type PageRequest,
  statements,
} from '../../infra/postgres/list-page.ts';
import type { DatasetTransformation } from './transformations/dataset-transformation.ts';

export const dataTypes = ['kv', 'llm', 'chat'] as const;
export type DataType = (typeof dataTypes)[number];

/** A dataset as the API returns it. Times are ISO 8601 with microseconds. */
export interface DatasetRecord {
  readonly id: string;
  readonly tenant_id: string;
  readonly name: string;
  readonly description: string | null;
  readonly data_type: DataType;
  readonly inputs_schema_definition: Record<string, unknown> | null;
  readonly outputs_schema_definition: Record<string, unknown> | null;
  readonly transformations: DatasetTransformation[] | null;
  readonly metadata: Record<string, unknown> | null;
  readonly baseline_experiment_id: string | null;
  readonly externally_managed: boolean;
  readonly example_count: number;
  /** Number of experiments on the dataset. */
  readonly session_count: number;
  readonly last_session_start_time: string | null;
  readonly created_at: string;
  readonly modified_at: string;
}

type JsonColumn = 'inputs_schema_definition' | 'outputs_schema_definition' | 'transformations' | 'metadata';
type DatasetRow = Omit<DatasetRecord, JsonColumn> & Readonly<Record<JsonColumn, string | null>>;

function toDatasetRecord(row: DatasetRow): DatasetRecord {
  const metadata: unknown = parseNullableMarkedJson(row.metadata);
  return {
    ...row,
    inputs_schema_definition: parseNullableJson(row.inputs_schema_definition),
    outputs_schema_definition: parseNullableJson(row.outputs_schema_definition),
    transformations: parseNullableJson(row.transformations),
    // A dataset that was created before they were checked may have a list.
    metadata: isJsonObject(metadata) ? metadata : null,
  };
}

/**
 * Builds the query for the datasets of a workspace, with the number of their experiments and the start time of the last
 * one.
 */
function selectDatasets(workspaceId: string) {
  return statements
    .selectFrom('datasets')
    .innerJoinLateral(
      (from) =>
        from
          .selectFrom('projects')
          .select((project) => [
            sql<number>`count(*)`.as('session_count'),
            project.fn.max<string | null>('start_time').as('last_session_start_time'),
          ])
          // Another workspace may have named the dataset in an experiment of its own.
          .whereRef('projects.workspace_id', '=', 'datasets.workspace_id')
          .whereRef('reference_dataset_id', '=', 'datasets.id')
          .where('deleted_at', 'is', null)
          .as('experiments'),
      (join) => join.onTrue(),
    )
    .select([
      'id',
      'workspace_id as tenant_id',
      'name',
      'description',
      'data_type',
      'inputs_schema_definition',
      'outputs_schema_definition',
      'transformations',
      'metadata',
      'baseline_experiment_id',
      'externally_managed',
      'example_count',
      'session_count',
      'last_session_start_time',
      'created_at',
      'modified_at',
    ])
    .where('workspace_id', '=', workspaceId);
}

/** Reads a dataset. @throws NOT_FOUND if the workspace has no dataset with this id. */
export async function readDataset(database: Sql, workspaceId: string, datasetId: string): Promise<DatasetRecord> {
  const [row] = await fetchRows<DatasetRow>(database, selectDatasets(workspaceId).where('id', '=', datasetId));
  if (!row) throw runlakeError('NOT_FOUND', { what: 'Dataset' });
  return toDatasetRecord(row);
}

export const datasetOrders = [
  'name',
  'created_at',
  'modified_at',
  'last_session_start_time',
  'example_count',
  'session_count',
] as const;

export interface DatasetQuery extends PageRequest {
  readonly ids?: readonly string[] | undefined;
  readonly name?: string | undefined;
  /** Text that the name must contain, ignoring case. */
  readonly nameContains?: string | undefined;
  readonly dataTypes?: readonly DataType[] | undefined;
  /** Key-value pairs that the metadata must contain. */
  readonly metadata?: JsonObject | undefined;
  readonly sortBy: (typeof datasetOrders)[number];
  readonly descending: boolean;
}

/** Lists the datasets of a workspace that satisfy all conditions of the query. */
export async function listDatasets(
  database: Sql,
  workspaceId: string,
  { ids, name, nameContains, dataTypes, metadata, sortBy, descending, limit, offset }: DatasetQuery,
): Promise<Page<DatasetRecord>> {
  const query = selectDatasets(workspaceId).where((dataset) => {
    const conditions: Expression<SqlBool>[] = [];
    if (ids) conditions.push(isOneOf(dataset.ref('id'), ids, 'uuid'));
    if (name !== undefined) conditions.push(dataset('name', '=', name));
    if (nameContains !== undefined) conditions.push(containsText(dataset.ref('name'), nameContains));
    if (dataTypes) conditions.push(isOneOf(dataset.ref('data_type'), dataTypes, 'text'));
    if (metadata) conditions.push(containsPairs(dataset.ref('searchable'), metadata));
    return dataset.and(conditions);
  });
  // Datasets without experiments come last in both orders, and are sorted by their creation time.
  const by =
    sortBy === 'last_session_start_time'
      ? [
          sql`coalesce(last_session_start_time, ${sql.lit(descending ? '-infinity' : 'infinity')})`,
          sql.ref('created_at'),
        ]
      : [sql.ref(sortBy)];
  const order = { by: [...by, sql.ref('id')], descending };
  const { rows, total } = await listPage<never, never, DatasetRow>(database, query as never, order, { limit, offset });
  return { rows: rows.map(toDatasetRecord), total };
}
