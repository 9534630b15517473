import { randomUUID } from 'node:crypto';
import { type Expression, type SqlBool, sql } from 'kysely';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { parseNullableJson } from '../../infra/json/json-value.ts';
import { formatMarkedJson, parseNullableMarkedJson } from '../../infra/json/marked-json.ts';
import { buildAssignments } from '../../infra/postgres/assignments.ts';
import type { Sql } from '../../infra/postgres/database.ts';
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
import type { Database } from '../../infra/postgres/pool.ts';
import { countInWorkspaces, enforceLimit } from '../tenants/enforce-limit.ts';
import {
  addFeedbackConfigs,
  checkRubric,
  keepRubricFields,
  type RubricItem,
  type RubricItemWithConfig,
} from './rubric.ts';

/** Limit on the number of annotation queues of an organisation. */
const queueLimit = { max: 1_000, countSql: countInWorkspaces('annotation_queues'), what: 'annotation queues' };

/** Fields of a queue that requests set. */
export interface QueueFields {
  readonly name: string;
  readonly description: string | null;
  readonly default_dataset: string | null;
  readonly rubric_instructions: string | null;
  readonly rubric_items: readonly RubricItem[] | null;
  readonly metadata: Record<string, unknown> | null;
  /** Number of users that must complete a run before the run counts as completed. */
  readonly num_reviewers_per_item: number;
  readonly enable_reservations: boolean;
  readonly reservation_minutes: number;
  /** `assigned`: a run is completed when all reviewers of the queue have completed it. */
  readonly reviewer_access_mode: 'any' | 'assigned';
}

/** A queue as returned in responses. Times are ISO 8601 with microseconds. */
export interface QueueRecord extends QueueFields {
  readonly id: string;
  readonly tenant_id: string;
  readonly assigned_reviewers: readonly { readonly id: string; readonly name: string | null; readonly email: string }[];
  readonly created_at: string;
  readonly updated_at: string;
}

export interface QueueWithConfigs extends QueueRecord {
  readonly rubric_items: readonly RubricItemWithConfig[] | null;
}

type QueueRow = Omit<QueueRecord, 'rubric_items' | 'metadata' | 'assigned_reviewers'> & {
  readonly assigned_reviewers: string;
  readonly rubric_items: string | null;
  readonly metadata: string | null;
};

const toQueueRecord = (row: QueueRow): QueueRecord => ({
  ...row,
  rubric_items: parseNullableJson(row.rubric_items),
  metadata: parseNullableMarkedJson(row.metadata),
  assigned_reviewers: JSON.parse(row.assigned_reviewers),
});

function selectQueues(workspaceId: string) {
  return statements
    .selectFrom('annotation_queues')
    .select([
      'id',
      'workspace_id as tenant_id',
      'name',
      'description',
      'default_dataset',
      'rubric_instructions',
      'rubric_items',
      'metadata',
      'num_reviewers_per_item',
      'enable_reservations',
      'reservation_minutes',
      'reviewer_access_mode',
      sql<string>`(SELECT coalesce(json_agg(json_build_object('id', u.id, 'name', u.full_name, 'email', u.email) ORDER BY w.added_at, u.id), '[]')::text
        FROM annotation_queue_reviewers AS w JOIN users AS u ON u.id = w.user_id
        WHERE w.queue_id = annotation_queues.id AND u.removed_at IS NULL)`.as('assigned_reviewers'),
      'created_at',
      'updated_at',
    ])
    .where('workspace_id', '=', workspaceId);
}

const createNotFoundError = () => runlakeError('NOT_FOUND', { what: 'Annotation queue' });

/** Reads a queue. @throws NOT_FOUND */
export async function readQueue(database: Sql, workspaceId: string, queueId: string): Promise<QueueRecord> {
  const [row] = await fetchRows(database, selectQueues(workspaceId).where('id', '=', queueId));
  if (!row) throw createNotFoundError();
  return toQueueRecord(row as QueueRow);
}

/** As {@link readQueue}, with the configs of the feedback keys of the rubric. @throws NOT_FOUND */
export async function readQueueWithConfigs(
  database: Sql,
  workspaceId: string,
  queueId: string,
): Promise<QueueWithConfigs> {
  const queue = await readQueue(database, workspaceId, queueId);
  const { rubric_items } = queue;
  return {
    ...queue,
    rubric_items: rubric_items && (await addFeedbackConfigs(database, workspaceId, rubric_items)),
  };
}

export const queueOrders = ['name', 'created_at', 'updated_at'] as const;

interface QueueQuery extends PageRequest {
  readonly ids?: readonly string[] | undefined;
  readonly name?: string | undefined;
  /** Text that the name must contain, ignoring case. */
  readonly nameContains?: string | undefined;
  /** Default dataset of the queue. */
  readonly datasetId?: string | undefined;
  /** Only queues that have this user as a reviewer. */
  readonly reviewerId?: string | undefined;
  /** Only queues that contain this run. */
  readonly runId?: string | undefined;
  readonly sortBy: (typeof queueOrders)[number];
  readonly descending: boolean;
}

/** Lists the queues of a workspace that meet every given condition. */
export async function listQueues(
  database: Sql,
  workspaceId: string,
  { ids, name, nameContains, datasetId, reviewerId, runId, sortBy, descending, limit, offset }: QueueQuery,
): Promise<Page<QueueRecord>> {
  const query = selectQueues(workspaceId).where((queue) => {
    const conditions: Expression<SqlBool>[] = [];
    if (ids) conditions.push(isOneOf(queue.ref('id'), ids, 'uuid'));
    if (name !== undefined) conditions.push(queue('name', '=', name));
    if (nameContains !== undefined) conditions.push(containsText(queue.ref('name'), nameContains));
    if (datasetId !== undefined) conditions.push(queue('default_dataset', '=', datasetId));
    if (reviewerId !== undefined) {
      conditions.push(
        sql<SqlBool>`id IN (SELECT queue_id FROM annotation_queue_reviewers WHERE user_id = ${reviewerId}::uuid)`,
      );
    }
    if (runId !== undefined) {
      conditions.push(sql<SqlBool>`id IN (SELECT queue_id FROM annotation_queue_runs WHERE run_id = ${runId}::uuid)`);
    }
    return queue.and(conditions);
  });
  const order = { by: [sql.ref(sortBy), sql.ref('id')], descending };
  const { rows, total } = await listPage(database, query, order, { limit, offset });
  return { rows: rows.map((row) => toQueueRecord(row as QueueRow)), total };
}

/** Returns the values by column; JSON values become text. Absent fields are omitted. */
function toColumns(fields: Partial<QueueFields>): Record<string, unknown> {
  const isJson = (value: unknown) => typeof value === 'object' && value !== null;
  return Object.fromEntries(
    Object.entries(fields)
      .filter(([, value]) => value !== undefined)
      .map(([column, value]) => [column, isJson(value) ? formatMarkedJson(value) : value]),
  );
}

export const createDuplicateError = () =>
  runlakeError('CONFLICT', { reason: 'An annotation queue with this id already exists.' });

/**
 * Creates a queue. A repeated request gets the queue that exists, with `isNew: false`.
 *
 * @throws CONFLICT if the id is taken; LIMIT_REACHED; BAD_REQUEST if a condition of the rubric is invalid.
 */
export async function createQueue(
  database: Database,
  workspaceId: string,
  id: string = randomUUID(),
  fields: QueueFields,
): Promise<{ readonly queue: QueueWithConfigs; readonly isNew: boolean }> {
  checkRubric(fields.rubric_items ?? []);
  const outcome = await database.transaction(async (tx) => {
    const row = { id, workspace_id: workspaceId, ...toColumns(fields) };
    const inserted = await insertOnce(tx, 'annotation_queues', row);
    if (inserted === 'inserted') await enforceLimit(tx, 'organizationOfWorkspace', workspaceId, queueLimit);
    return inserted;
  });
  if (outcome === 'conflict') throw createDuplicateError();
  return { queue: await readQueueWithConfigs(database, workspaceId, id), isNew: outcome === 'inserted' };
}

/**
 * Changes a queue. Absent fields stay unchanged.
 *
 * @throws NOT_FOUND; BAD_REQUEST if a condition of the rubric is invalid.
 */
export async function updateQueue(
  database: Database,
  workspaceId: string,
  queueId: string,
  change: Partial<QueueFields>,
): Promise<QueueWithConfigs> {
  return database.transaction(async (tx) => {
    const [found] = await tx.query<Pick<QueueRow, 'rubric_items'>>(
      'SELECT rubric_items FROM annotation_queues WHERE id = $1 AND workspace_id = $2 FOR UPDATE',
      [queueId, workspaceId],
    );
    if (!found) throw createNotFoundError();
    const stored = parseNullableJson<RubricItem[]>(found.rubric_items) ?? [];
    const rubric = change.rubric_items && { rubric_items: keepRubricFields(change.rubric_items, stored) };
    const { assignments, values } = buildAssignments(toColumns({ ...change, ...rubric }), 3);
    await tx.execute(
      `UPDATE annotation_queues SET updated_at = now()${assignments} WHERE id = $1 AND workspace_id = $2`,
      [queueId, workspaceId, ...values],
    );
    return readQueueWithConfigs(tx, workspaceId, queueId);
  });
}

/** Deletes a queue; its runs stay. @throws NOT_FOUND */
export async function deleteQueue(database: Database, workspaceId: string, queueId: string): Promise<void> {
  const deleted = await database.execute('DELETE FROM annotation_queues WHERE id = $1 AND workspace_id = $2', [
    queueId,
    workspaceId,
  ]);
  if (deleted === 0) throw createNotFoundError();
}
