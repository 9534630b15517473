import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { formatMarkedJson, parseNullableMarkedJson } from '../../infra/json/marked-json.ts';
import type { Database, Sql } from '../../infra/postgres/database.ts';
import { insertOnce } from '../../infra/postgres/insert-once.ts';
import {
  containsText,
  fetchRows,
  isOneOf,
  listPage,
  type Page,
  type PageRequest,
  statements,
} from '../../infra/postgres/list-page.ts';
import { readFeedbackStatsByComparison } from '../feedback/feedback-stats.ts';
import { toUniqueIds } from '../ingest/run-event/uuid.ts';
import { lockDataset, queueForDatasets } from './lock-dataset.ts';
import { requireDataset } from './versions.ts';

/** A comparative experiment. It compares experiments on one dataset, and feedback can refer to it. */
export interface Comparison {
  readonly id: string;
  readonly tenant_id: string;
  readonly reference_dataset_id: string;
  readonly name: string | null;
  readonly description: string | null;
  readonly extra: Record<string, unknown> | null;
  readonly created_at: string;
  readonly modified_at: string;
}

export interface ListedComparison extends Comparison {
  readonly experiments_info: readonly { readonly id: string; readonly name: string }[];
  readonly feedback_stats: Record<string, unknown>;
}

interface NewComparison {
  readonly id?: string | null | undefined;
  readonly experimentIds: readonly string[];
  readonly datasetId?: string | null | undefined;
  readonly name?: string | null | undefined;
  readonly description?: string | null | undefined;
  readonly extra?: Record<string, unknown> | null | undefined;
  readonly createdAt?: string | null | undefined;
}

const maxComparisons = 10_000;

/**
 * Creates a comparative experiment. A repeated request gets the one that exists.
 *
 * @throws NOT_FOUND for an unknown experiment; BAD_REQUEST if the experiments do not all belong to the dataset;
 *   CONFLICT if the id already exists; LIMIT_REACHED.
 */
export async function createComparison(
  database: Database,
  workspaceId: string,
  { experimentIds, ...comparison }: NewComparison,
): Promise<Comparison> {
  const id = comparison.id?.toLowerCase() ?? randomUUID();
  const ids = toUniqueIds(experimentIds);
  const datasetId = await findDataset(database, workspaceId, ids, comparison.datasetId?.toLowerCase());
  const insert = async (tx: Sql) => {
    await lockDataset(tx, workspaceId, datasetId, 'NO KEY UPDATE');
    const outcome = await insertOnce(tx, 'comparative_experiments', {
      id,
      workspace_id: workspaceId,
      dataset_id: datasetId,
      experiment_ids: ids,
      name: comparison.name ?? null,
      description: comparison.description ?? null,
      extra: comparison.extra == null ? null : formatMarkedJson(comparison.extra),
      ...(comparison.createdAt != null && { created_at: comparison.createdAt }),
    });
    if (outcome === 'conflict') {
      throw runlakeError('CONFLICT', { reason: 'A comparative experiment with this id already exists.' });
    }
    const [found] = await tx.query<{ count: number }>(
      'SELECT count(*) AS count FROM comparative_experiments WHERE dataset_id = $1',
      [datasetId],
    );
    if (found!.count > maxComparisons) {
      const what = 'comparative experiments of the dataset';
      throw runlakeError('LIMIT_REACHED', { limit: maxComparisons, what, hint: 'Delete those that are not needed' });
    }
  };
  await queueForDatasets([datasetId], () => database.transaction(insert));
  const [row] = await fetchRows(database, selectComparisons(workspaceId).where('id', '=', id));
  if (row === undefined) throw runlakeError('NOT_FOUND', { what: 'Comparative experiment' });
  const { experiment_ids: _, ...made } = row;
  return { ...made, extra: parseNullableMarkedJson(row.extra) };
}

/** Returns the dataset to which all the experiments belong. */
async function findDataset(database: Sql, workspaceId: string, ids: readonly string[], expected: string | undefined) {
  const experiments = await database.query<{ dataset: string | null }>(
    `SELECT reference_dataset_id AS dataset FROM projects
     WHERE workspace_id = $1 AND id = ANY ($2::uuid[]) AND deleted_at IS NULL`,
    [workspaceId, ids],
  );
  if (experiments.length < ids.length) throw runlakeError('NOT_FOUND', { what: 'Session' });
  const datasets = new Set(experiments.map(({ dataset }) => dataset));
  const [dataset] = datasets;
  if (datasets.size !== 1 || dataset == null || dataset !== (expected ?? dataset)) {
    throw runlakeError('BAD_REQUEST', {
      reason: 'All experiments must be on the same dataset, the reference dataset.',
    });
  }
  return dataset;
}

function selectComparisons(workspaceId: string) {
  return statements
    .selectFrom('comparative_experiments')
    .select([
      'id',
      'workspace_id as tenant_id',
      'dataset_id as reference_dataset_id',
      'experiment_ids',
      'name',
      'description',
      'extra',
      'created_at',
      'modified_at',
    ])
    .where('workspace_id', '=', workspaceId);
}

export const comparisonOrders = ['name', 'created_at'] as const;

interface ComparisonQuery extends PageRequest {
  readonly datasetId: string;
  readonly ids?: readonly string[] | undefined;
  readonly name?: string | undefined;
  /** Text that the name must contain, ignoring case. */
  readonly nameContains?: string | undefined;
  readonly sortBy: (typeof comparisonOrders)[number];
  readonly descending: boolean;
}

/** Lists the comparative experiments of a dataset. @throws NOT_FOUND; errors of the stores. */
export async function listComparisons(
  { database, clickhouse }: { readonly database: Sql; readonly clickhouse: ClickHouse },
  workspaceId: string,
  { datasetId, ids, name, nameContains, sortBy, descending, ...page }: ComparisonQuery,
): Promise<Page<ListedComparison>> {
  await requireDataset(database, workspaceId, datasetId);
  let query = selectComparisons(workspaceId).where('dataset_id', '=', datasetId);
  if (ids) query = query.where((row) => isOneOf(row.ref('id'), ids, 'uuid'));
  if (name !== undefined) query = query.where('name', '=', name);
  if (nameContains !== undefined) query = query.where(containsText(sql<string>`coalesce(name, '')`, nameContains));
  const by = sortBy === 'name' ? sql`coalesce(name, '')` : sql.ref('created_at');
  const { rows, total } = await listPage(database, query, { by: [by, sql.ref('id')], descending }, page);
  const [names, stats] = await Promise.all([
    readExperimentNames(database, workspaceId, [...new Set(rows.flatMap((row) => row.experiment_ids))]),
    readFeedbackStatsByComparison(
      clickhouse,
      workspaceId,
      rows.map(({ id }) => id),
    ),
  ]);
  return {
    total,
    rows: rows.map(({ experiment_ids, ...row }) => ({
      ...row,
      extra: parseNullableMarkedJson(row.extra),
      experiments_info: experiment_ids.flatMap((id) => {
        const found = names.get(id);
        return found === undefined ? [] : [{ id, name: found }];
      }),
      feedback_stats: JSON.parse(stats.get(row.id) ?? '{}') as Record<string, unknown>,
    })),
  };
}

/** Returns the names of the experiments by id, without deleted experiments. */
async function readExperimentNames(
  database: Sql,
  workspaceId: string,
  ids: readonly string[],
): Promise<Map<string, string>> {
  const rows = await database.query<{ id: string; name: string }>(
    'SELECT id, name FROM projects WHERE workspace_id = $1 AND id = ANY ($2::uuid[]) AND deleted_at IS NULL',
    [workspaceId, ids],
  );
  return new Map(rows.map(({ id, name }) => [id, name]));
}

/** Checks that a comparative experiment exists. @throws NOT_FOUND if the dataset has no such comparative experiment. */
export async function requireComparison(
  database: Sql,
  workspaceId: string,
  { datasetId, id }: { readonly datasetId: string; readonly id: string },
): Promise<void> {
  const [found] = await database.query(
    'SELECT FROM comparative_experiments WHERE id = $1 AND dataset_id = $2 AND workspace_id = $3',
    [id, datasetId, workspaceId],
  );
  if (!found) throw runlakeError('NOT_FOUND', { what: 'Comparative experiment' });
}

/** Deletes a comparative experiment. Its experiments and its feedback are kept. @throws NOT_FOUND */
export async function deleteComparison(database: Sql, workspaceId: string, id: string): Promise<void> {
  const deleted = await database.execute('DELETE FROM comparative_experiments WHERE id = $1 AND workspace_id = $2', [
    id,
    workspaceId,
  ]);
  if (deleted === 0) throw runlakeError('NOT_FOUND', { what: 'Comparative experiment' });
}
