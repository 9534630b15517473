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
const configLimit = { max: 10_000, countSql: countInWorkspaces('feedback_configs'), what: 'feedback configs' };

export const configTypes = ['continuous', 'categorical', 'freeform'] as const;

/** Defines the meaning of the scores of a feedback key. */
export interface FeedbackConfig {
  readonly type: (typeof configTypes)[number];
  readonly min: number | null;
  readonly max: number | null;
  readonly categories: readonly FeedbackCategory[] | null;
  /** Whether a reviewer can pick several categories; absent means no, so that earlier configs stay equal. */
  readonly allows_multiple_categories?: true;
}

export interface FeedbackCategory {
  readonly value: number;
  readonly label: string | null;
}

/** A feedback config in the form that the API returns. */
export interface FeedbackConfigRecord {
  readonly id: string;
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
      'id',
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
  readonly isEnforced?: boolean | undefined;
  readonly descending: boolean;
}

/**
 * Lists the configs of a workspace that satisfy all conditions of the query, ordered by the time of their last change.
 */
export async function listConfigs(
  database: Sql,
  workspaceId: string,
  { keys, keyContains, isEnforced, descending, ...page }: ConfigQuery,
): Promise<Page<FeedbackConfigRecord>> {
  const query = selectConfigs(workspaceId).where((config) => {
    const conditions: Expression<SqlBool>[] = [];
    if (keys) conditions.push(isOneOf(config.ref('feedback_key'), keys, 'text'));
    if (keyContains !== undefined) conditions.push(containsText(config.ref('feedback_key'), keyContains));
    if (isEnforced !== undefined) conditions.push(config('is_enforced', '=', isEnforced));
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

interface NewConfigFields {
  readonly config: FeedbackConfig;
  readonly isLowerScoreBetter?: boolean | undefined;
  readonly isEnforced?: boolean | undefined;
}

/**
 * Creates a config. If an identical config already exists, returns it unchanged. Absent flags are not compared; in a new
 * config they are false.
 *
 * @throws CONFLICT if a different config exists; BAD_REQUEST; LIMIT_REACHED.
 */
export async function createConfig(
  database: Database,
  workspaceId: string,
  key: string,
  { config, isLowerScoreBetter, isEnforced }: NewConfigFields,
): Promise<FeedbackConfigRecord> {
  requireConsistentConfig(config);
  const text = JSON.stringify(config);
  return database.transaction(async (tx) => {
    const made = await tx.execute(
      `INSERT INTO feedback_configs (workspace_id, feedback_key, feedback_config, is_lower_score_better, is_enforced)
       VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
      [workspaceId, key, text, isLowerScoreBetter ?? false, isEnforced ?? false],
    );
    const found = await readConfig(tx, workspaceId, { key });
    if (made === 0) {
      const isSame =
        JSON.stringify(found.feedback_config) === text &&
        found.is_lower_score_better === (isLowerScoreBetter ?? found.is_lower_score_better) &&
        found.is_enforced === (isEnforced ?? found.is_enforced);
      if (isSame) return found;
      throw runlakeError('CONFLICT', { reason: `Another config of the feedback key ${key} exists.` });
    }
    await enforceLimit(tx, 'organizationOfWorkspace', workspaceId, configLimit);
    return found;
  });
}

/** A change of the categories of a config, which keeps all others. */
interface CategoryChange {
  readonly add?: readonly FeedbackCategory[] | undefined;
  /** Values of the categories to remove. */
  readonly remove?: readonly number[] | undefined;
}

/** Names a config by its key, by its id, or by both. */
export interface ConfigName {
  readonly key?: string | undefined;
  readonly id?: string | undefined;
}

/** Changes a config. Absent fields stay unchanged. @throws NOT_FOUND; BAD_REQUEST. */
export async function updateConfig(
  database: Database,
  workspaceId: string,
  name: ConfigName,
  {
    config,
    categories,
    isLowerScoreBetter,
    isEnforced,
  }: Partial<ConfigFields> & { readonly categories?: CategoryChange },
): Promise<FeedbackConfigRecord> {
  return database.transaction(async (tx) => {
    const found = await readConfig(tx, workspaceId, name, { lock: true });
    const changed = changeCategories(config ?? found.feedback_config, categories);
    if (config || categories) requireConsistentConfig(changed);
    await tx.execute(
      `UPDATE feedback_configs SET modified_at = now(), feedback_config = $3,
         is_lower_score_better = coalesce($4, is_lower_score_better), is_enforced = coalesce($5, is_enforced)
       WHERE workspace_id = $1 AND id = $2`,
      [workspaceId, found.id, JSON.stringify(changed), isLowerScoreBetter ?? null, isEnforced ?? null],
    );
    return readConfig(tx, workspaceId, { id: found.id });
  });
}

const minCategoriesAfterRemoval = 2;

/** @throws BAD_REQUEST if a category to add exists, or one to remove does not, or too few are left. */
function changeCategories(config: FeedbackConfig, { add = [], remove = [] }: CategoryChange = {}): FeedbackConfig {
  if (add.length === 0 && remove.length === 0) return config;
  const refuse = (reason: string) => runlakeError('BAD_REQUEST', { reason });
  if (config.type !== 'categorical') throw refuse('Only a categorical feedback config has categories.');
  const categories = config.categories ?? [];
  const missing = remove.find((value) => !categories.some((category) => category.value === value));
  if (missing !== undefined) throw refuse(`The feedback config has no category with the value ${missing}.`);
  const kept = categories.filter(({ value }) => !remove.includes(value));
  if (remove.length > 0 && kept.length < minCategoriesAfterRemoval) {
    throw refuse(`At least ${minCategoriesAfterRemoval} categories must remain.`);
  }
  if (kept.length + add.length > maxCategories)
    throw refuse(`A feedback config has at most ${maxCategories} categories.`);
  for (const { value, label } of add) {
    const clash = kept.find((category) => category.value === value || (label !== null && category.label === label));
    if (clash) throw refuse(`The feedback config already has a category with the value ${value} or with its label.`);
    kept.push({ value, label });
  }
  return { ...config, categories: kept };
}

/** Deletes a config. The feedback with its key is kept. @throws NOT_FOUND */
export async function deleteConfig(database: Database, workspaceId: string, { key, id }: ConfigName): Promise<string> {
  const [deleted] = await database.query<{ key: string }>(
    `DELETE FROM feedback_configs
     WHERE workspace_id = $1 AND feedback_key = coalesce($2, feedback_key) AND id = coalesce($3, id)
       AND num_nonnulls($2::text, $3::uuid) > 0
     RETURNING feedback_key AS key`,
    [workspaceId, key ?? null, id ?? null],
  );
  if (deleted === undefined) throw createNotFoundError();
  return deleted.key;
}

const createNotFoundError = () => runlakeError('NOT_FOUND', { what: 'Feedback config' });

async function readConfig(
  database: Sql,
  workspaceId: string,
  { key, id }: ConfigName,
  { lock = false } = {},
): Promise<FeedbackConfigRecord> {
  let query = selectConfigs(workspaceId);
  if (key !== undefined) query = query.where('feedback_key', '=', key);
  if (id !== undefined) query = query.where('id', '=', id);
  const [row] = await fetchRows(database, lock ? query.forUpdate() : query);
  if (!row) throw createNotFoundError();
  return toRecord(row);
}

/** Maximum number of categories of a config. */
export const maxCategories = 1_000;

/** @throws BAD_REQUEST */
export function requireConsistentConfig(config: FeedbackConfig): void {
  const { type, min, max, categories } = config;
  if (min !== null && max !== null && min > max) {
    throw runlakeError('BAD_REQUEST', { reason: 'The minimum of the feedback config is greater than the maximum.' });
  }
  if (type === 'categorical' && (categories ?? []).length === 0) {
    throw runlakeError('BAD_REQUEST', { reason: 'A categorical feedback config needs categories.' });
  }
  if (type !== 'categorical' && config.allows_multiple_categories) {
    throw runlakeError('BAD_REQUEST', { reason: 'Only a categorical feedback config allows several categories.' });
  }
}

/** Reads those configs of the given keys that are enforced, by key. @throws errors of the database. */
export async function readEnforcedConfigs(
  database: Sql,
  workspaceId: string,
  keys: readonly string[],
): Promise<ReadonlyMap<string, FeedbackConfig>> {
  if (keys.length === 0) return new Map();
  const rows = await database.query<{ key: string; config: string }>(
    `SELECT feedback_key AS key, feedback_config AS config FROM feedback_configs
     WHERE workspace_id = $1 AND feedback_key = ANY ($2::text[]) AND is_enforced`,
    [workspaceId, [...new Set(keys)]],
    { name: 'enforced-feedback-configs' },
  );
  return new Map(rows.map(({ key, config }) => [key, JSON.parse(config) as FeedbackConfig]));
}

/** Returns those of the given keys that have a config. @throws errors of the database. */
export async function findConfiguredKeys(
  database: Sql,
  workspaceId: string,
  keys: readonly string[],
): Promise<ReadonlySet<string>> {
  if (keys.length === 0) return new Set();
  const rows = await database.query<{ key: string }>(
    `SELECT feedback_key AS key FROM feedback_configs WHERE workspace_id = $1 AND feedback_key = ANY ($2::text[])`,
    [workspaceId, [...new Set(keys)]],
    { name: 'configured-feedback-keys' },
  );
  return new Set(rows.map(({ key }) => key));
}

/**
 * Checks the score and the value of a feedback entry against the enforced config of its key, if there is one.
 *
 * @throws INVALID_FEEDBACK
 */
export function requireMatch(
  enforced: FeedbackConfig | undefined,
  { id, score, value }: Pick<FeedbackEvent, 'id' | 'score' | 'value'>,
): void {
  if (enforced) requireMatchingValues(enforced, { feedback: id, score: parse(score), value: parse(value) });
}

/** Checks the parsed score and value of a feedback entry against a config. @throws INVALID_FEEDBACK */
export function requireMatchingValues(
  config: FeedbackConfig,
  { feedback, score, value }: { readonly feedback: string; readonly score: unknown; readonly value: unknown },
): void {
  const reason = findMismatch(config, score, value);
  if (reason !== undefined) throw runlakeError('INVALID_FEEDBACK', { feedback, reason });
}

/** Parses a scalar. An object, which may be large, matches every config, as an absent value does. */
const parse = (json: Buffer | undefined): unknown =>
  json === undefined || json[0] === 0x7b ? undefined : JSON.parse(json.toString());

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
