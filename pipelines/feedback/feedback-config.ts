import { type Expression, type SqlBool, sql } from 'kysely';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
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
import type { FeedbackEvent } from './feedback-event.ts';

/** Limit on the number of feedback configs in an organisation. */
const configLimit = {
  max: 10_000,
  countSql: countInWorkspaces('feedback_configs'),
  what: 'feedback configs',
  hint: 'Delete those that are not needed',
};

export const configTypes = ['continuous', 'categorical', 'freeform'] as const;

/** Defines the meaning of the scores of a feedback key. */
export interface FeedbackConfig {
  readonly type: (typeof configTypes)[number];
  readonly min: number | null;
  readonly max: number | null;
  readonly categories: readonly { readonly value: number; readonly label: string | null }[] | null;
}

/** A feedback config in the form that the API returns. */
export interface FeedbackConfigRecord {
  readonly feedback_key: string;
  readonly feedback_config: FeedbackConfig;
  readonly tenant_id: string;
  readonly is_lower_score_better: boolean;
  /** Whether feedback that does not match the config is refused. */
  readonly is_enforced: boolean;
  readonly modified_at: string;
}

type ConfigRow = Omit<FeedbackConfigRecord, 'feedback_config'> & { readonly feedback_config: string };

const toRecord = (row: ConfigRow): FeedbackConfigRecord => ({
  ...row,
  feedback_config: JSON.parse(row.feedback_config),
});

function selectConfigs(workspaceId: string) {
  return statements
    .selectFrom('feedback_configs')
    .select([
      'feedback_key',
      'feedback_config',
      'workspace_id as tenant_id',
      'is_lower_score_better',
      'is_enforced',
      'modified_at',
    ])
    .where('workspace_id', '=', workspaceId);
}

interface ConfigQuery extends PageRequest {
  readonly keys?: readonly string[] | undefined;
  /** Text that the key must contain, ignoring case. */
  readonly keyContains?: string | undefined;
  readonly descending: boolean;
}

/**
 * Lists the configs of a workspace that satisfy all conditions of the query, ordered by the time of their last change.
 */
export async function listConfigs(
  database: Sql,
  workspaceId: string,
  { keys, keyContains, descending, ...page }: ConfigQuery,
): Promise<Page<FeedbackConfigRecord>> {
  const query = selectConfigs(workspaceId).where((config) => {
    const conditions: Expression<SqlBool>[] = [];
    if (keys) conditions.push(isOneOf(config.ref('feedback_key'), keys, 'text'));
    if (keyContains !== undefined) conditions.push(containsText(config.ref('feedback_key'), keyContains));
    return config.and(conditions);
  });
  const order = { by: [sql.ref('modified_at'), sql.ref('feedback_key')], descending };
  const { rows, total } = await listPage(database, query, order, page);
  return { rows: rows.map(toRecord), total };
}

interface ConfigFields {
  readonly config: FeedbackConfig;
  readonly isLowerScoreBetter: boolean;
  readonly isEnforced: boolean;
}

/**
 * Creates a config. If an identical config already exists, returns it unchanged.
 *
 * @throws CONFLICT if a different config exists; BAD_REQUEST; LIMIT_REACHED.
 */
export async function createConfig(
  database: Database,
  workspaceId: string,
  key: string,
  { config, isLowerScoreBetter, isEnforced }: ConfigFields,
): Promise<FeedbackConfigRecord> {
  requireConsistentConfig(config);
  const text = JSON.stringify(config);
  return database.transaction(async (tx) => {
    const made = await tx.execute(
      `INSERT INTO feedback_configs (workspace_id, feedback_key, feedback_config, is_lower_score_better, is_enforced)
       VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
      [workspaceId, key, text, isLowerScoreBetter, isEnforced],
    );
    const found = await readConfig(tx, workspaceId, key);
    if (made === 0) {
      const isSame =
        JSON.stringify(found.feedback_config) === text &&
        found.is_lower_score_better === isLowerScoreBetter &&
        found.is_enforced === isEnforced;
      if (isSame) return found;
      throw runlakeError('CONFLICT', { reason: `Another config of the feedback key ${key} exists.` });
    }
    await enforceLimit(tx, { workspaceId }, configLimit);
    return found;
  });
}

/**
 * Changes a config. Absent fields stay unchanged.
 *
 * @throws NOT_FOUND; BAD_REQUEST.
 */
export async function updateConfig(
  database: Database,
  workspaceId: string,
  key: string,
  { config, isLowerScoreBetter, isEnforced }: Partial<ConfigFields>,
): Promise<FeedbackConfigRecord> {
  if (config) requireConsistentConfig(config);
  await database.execute(
    `UPDATE feedback_configs SET modified_at = now(), feedback_config = coalesce($3, feedback_config),
       is_lower_score_better = coalesce($4, is_lower_score_better), is_enforced = coalesce($5, is_enforced)
     WHERE workspace_id = $1 AND feedback_key = $2`,
    [workspaceId, key, config ? JSON.stringify(config) : null, isLowerScoreBetter ?? null, isEnforced ?? null],
  );
  return readConfig(database, workspaceId, key);
}

/**
 * Deletes a config. The feedback with its key is kept.
 *
 * @throws NOT_FOUND
 */
export async function deleteConfig(database: Database, workspaceId: string, key: string): Promise<void> {
  const deleted = await database.execute('DELETE FROM feedback_configs WHERE workspace_id = $1 AND feedback_key = $2', [
    workspaceId,
    key,
  ]);
  if (deleted === 0) throw createNotFoundError();
}

const createNotFoundError = () => runlakeError('NOT_FOUND', { what: 'Feedback config' });

async function readConfig(database: Sql, workspaceId: string, key: string): Promise<FeedbackConfigRecord> {
  const [row] = await fetchRows(database, selectConfigs(workspaceId).where('feedback_key', '=', key));
  if (!row) throw createNotFoundError();
  return toRecord(row);
}

function requireConsistentConfig({ type, min, max, categories }: FeedbackConfig): void {
  if (min !== null && max !== null && min > max) {
    throw runlakeError('BAD_REQUEST', { reason: 'The minimum of the feedback config is greater than the maximum.' });
  }
  if (type === 'categorical' && (categories ?? []).length === 0) {
    throw runlakeError('BAD_REQUEST', { reason: 'A categorical feedback config needs categories.' });
  }
}

/**
 * Checks the score and the value of a feedback entry against the config of its key, if that config is enforced.
 *
 * @throws INVALID_FEEDBACK
 */
export async function enforceConfig(
  database: Sql,
  { tenantId, id, key, score, value }: Pick<FeedbackEvent, 'tenantId' | 'id' | 'key' | 'score' | 'value'>,
): Promise<void> {
  const [enforced] = await database.query<{ config: string }>(
    `SELECT feedback_config AS config FROM feedback_configs
     WHERE workspace_id = $1 AND feedback_key = $2 AND is_enforced`,
    [tenantId, key],
    { name: 'enforced-feedback-config' },
  );
  if (!enforced) return;
  const config = JSON.parse(enforced.config) as FeedbackConfig;
  const reason = findMismatch(config, parse(score), parse(value));
  if (reason !== undefined) throw runlakeError('INVALID_FEEDBACK', { feedback: id, reason });
}

const parse = (json: Buffer | undefined): unknown => (json === undefined ? undefined : JSON.parse(json.toString()));

/**
 * Returns the reason why a score or value does not match the config; undefined if both match. A boolean score counts as
 * 0 or 1.
 */
function findMismatch({ type, min, max, categories }: FeedbackConfig, score: unknown, value: unknown) {
  const number = score === undefined ? undefined : Number(score);
  if (type === 'continuous' && number !== undefined) {
    if (min !== null && number < min) return `score must be at least ${min}, as the config of its key says`;
    if (max !== null && number > max) return `score must be at most ${max}, as the config of its key says`;
  }
  if (type !== 'categorical' || categories === null) return undefined;
  if (number !== undefined && !categories.some((category) => category.value === number)) {
    return 'score must be the value of a category of the config of its key';
  }
  const labels = categories.map(({ label }) => label);
  if (typeof value === 'string' && !labels.includes(value)) {
    return 'value must be the label of a category of the config of its key';
  }
  return undefined;
}
