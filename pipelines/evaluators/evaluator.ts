import { randomUUID } from 'node:crypto';
import { type Expression, type SqlBool, sql } from 'kysely';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { JsonObject } from '../../infra/json/json-value.ts';
import { formatMarkedJson, parseNullableMarkedJson } from '../../infra/json/marked-json.ts';
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
import type { Database } from '../../infra/postgres/pool.ts';
import { toJsonb } from '../../infra/postgres/value-types.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { countInWorkspaces, enforceLimit } from '../tenants/enforce-limit.ts';

/** Limit on the number of evaluators in an organisation. */
const evaluatorLimit = { max: 1_000, countSql: countInWorkspaces('evaluators'), what: 'evaluators' };

export const evaluatorTypes = ['llm', 'code'] as const;
export type EvaluatorType = (typeof evaluatorTypes)[number];

/** Definition of an evaluator: its code, or its prompt with the variables of the prompt. */
type Definition = Readonly<Record<string, unknown>>;

export interface EvaluatorRecord {
  readonly id: string;
  readonly tenant_id: string;
  readonly name: string;
  readonly type: EvaluatorType;
  readonly definition: Definition;
  readonly metadata: Readonly<JsonObject> | null;
  readonly created_by: string;
  readonly created_at: string;
  readonly updated_at: string;
}

type EvaluatorRow = Omit<EvaluatorRecord, 'definition' | 'metadata'> & {
  readonly definition: string;
  readonly metadata: string | null;
};

const toRecord = (row: EvaluatorRow): EvaluatorRecord => ({
  ...row,
  definition: JSON.parse(row.definition),
  metadata: parseNullableMarkedJson(row.metadata),
});

function selectEvaluators(workspaceId: string) {
  return statements
    .selectFrom('evaluators')
    .select([
      'id',
      'workspace_id as tenant_id',
      'name',
      'type',
      'definition',
      'metadata',
      'created_by',
      'created_at',
      'updated_at',
    ])
    .where('workspace_id', '=', workspaceId);
}

const createNotFoundError = () => runlakeError('NOT_FOUND', { what: 'Evaluator' });

/** Reads an evaluator. @throws NOT_FOUND */
export async function readEvaluator(database: Sql, workspaceId: string, id: string): Promise<EvaluatorRecord> {
  const [row] = await fetchRows(database, selectEvaluators(workspaceId).where('id', '=', id));
  if (!row) throw createNotFoundError();
  return toRecord(row as EvaluatorRow);
}

export const evaluatorOrders = ['name', 'created_at', 'updated_at'] as const;

interface EvaluatorQuery extends PageRequest {
  readonly ids?: readonly string[] | undefined;
  readonly type?: EvaluatorType | undefined;
  /** Text that the name must contain, ignoring case. */
  readonly nameContains?: string | undefined;
  /** Key-value pairs that the metadata must contain. */
  readonly metadata?: Readonly<JsonObject> | undefined;
  readonly sortBy: (typeof evaluatorOrders)[number];
  readonly descending: boolean;
}

/** Lists the evaluators of a workspace that satisfy all conditions of the query. */
export async function listEvaluators(
  database: Sql,
  workspaceId: string,
  { ids, type, nameContains, metadata, sortBy, descending, ...page }: EvaluatorQuery,
): Promise<Page<EvaluatorRecord>> {
  const query = selectEvaluators(workspaceId).where((evaluator) => {
    const conditions: Expression<SqlBool>[] = [];
    if (ids) conditions.push(isOneOf(evaluator.ref('id'), ids, 'uuid'));
    if (type !== undefined) conditions.push(evaluator('type', '=', type));
    if (nameContains !== undefined) conditions.push(containsText(evaluator.ref('name'), nameContains));
    if (metadata) conditions.push(containsPairs(evaluator.ref('searchable'), metadata));
    return evaluator.and(conditions);
  });
  const order = { by: [sql.ref(sortBy), sql.ref('id')], descending };
  const { rows, total } = await listPage(database, query, order, page);
  return { rows: rows.map((row) => toRecord(row as EvaluatorRow)), total };
}

/** Returns the values of the columns `metadata` and `searchable`. */
const toMetadataColumns = (metadata: Readonly<JsonObject> | null): [string | null, string] => [
  metadata && formatMarkedJson(metadata),
  toJsonb(metadata ?? {}),
];

/** Creates an evaluator. @throws LIMIT_REACHED */
export async function createEvaluator(
  database: Database,
  { workspaceId, userId }: WorkspaceCaller,
  { name, type, definition, metadata }: Pick<EvaluatorRecord, 'name' | 'type' | 'definition' | 'metadata'>,
): Promise<EvaluatorRecord> {
  const id = randomUUID();
  await database.transaction(async (tx) => {
    await tx.execute(
      `INSERT INTO evaluators (id, workspace_id, name, type, definition, metadata, searchable, created_by)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
      [id, workspaceId, name, type, JSON.stringify(definition), ...toMetadataColumns(metadata), userId],
    );
    await enforceLimit(tx, 'organizationOfWorkspace', workspaceId, evaluatorLimit);
  });
  return readEvaluator(database, workspaceId, id);
}

interface EvaluatorChange {
  readonly name?: string | undefined;
  /** Fields of the definition to change. The evaluator must have the type `type`. */
  readonly definition?: { readonly type: EvaluatorType; readonly fields: Definition } | undefined;
  /** Replaces the metadata; null removes it. */
  readonly metadata?: Readonly<JsonObject> | null | undefined;
}

/**
 * Changes an evaluator. Absent fields stay unchanged.
 *
 * @throws NOT_FOUND; BAD_REQUEST if the evaluator has another type.
 */
export async function updateEvaluator(
  database: Database,
  workspaceId: string,
  id: string,
  { name, definition, metadata }: EvaluatorChange,
): Promise<EvaluatorRecord> {
  await database.transaction(async (tx) => {
    const [found] = await tx.query<Pick<EvaluatorRow, 'type' | 'definition' | 'metadata'>>(
      'SELECT type, definition, metadata FROM evaluators WHERE id = $1 AND workspace_id = $2 FOR UPDATE',
      [id, workspaceId],
    );
    if (!found) throw createNotFoundError();
    if (definition && definition.type !== found.type) {
      throw runlakeError('BAD_REQUEST', { reason: `The evaluator has the type ${found.type}.` });
    }
    const changed = { ...JSON.parse(found.definition), ...definition?.fields };
    const columns = toMetadataColumns(metadata === undefined ? parseNullableMarkedJson(found.metadata) : metadata);
    await tx.execute(
      `UPDATE evaluators SET updated_at = now(), name = coalesce($2, name), definition = $3, metadata = $4, searchable = $5
       WHERE id = $1`,
      [id, name ?? null, JSON.stringify(changed), ...columns],
    );
  });
  return readEvaluator(database, workspaceId, id);
}

/** Deletes evaluators and returns the ids of those that existed. */
export async function deleteEvaluators(
  database: Database,
  workspaceId: string,
  ids: readonly string[],
): Promise<string[]> {
  const rows = await database.query<{ id: string }>(
    'DELETE FROM evaluators WHERE workspace_id = $1 AND id = ANY ($2::uuid[]) RETURNING id',
    [workspaceId, ids],
  );
  return rows.map(({ id }) => id);
}
