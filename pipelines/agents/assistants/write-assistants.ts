import { v7 as uuidv7 } from 'uuid';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { requireStorableJson } from '../../../infra/json/json-value.ts';
import { readDatabaseClock } from '../../../infra/postgres/clock.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { createOrFind } from '../../../infra/postgres/database-error.ts';
import { enforceLimit } from '../../tenants/enforce-limit.ts';
import { requestDeletionTimeoutMs } from '../delete-agent-rows.ts';
import { removeRuns } from '../runs/delete-run.ts';
import { updateThreadStatus } from '../runs/lock-thread.ts';
import type { GraphConfig } from '../runs/run.ts';
import { pruneThreads, removeThreads } from '../threads/delete-thread.ts';
import {
  type Assistant,
  assistantColumns,
  computeSystemAssistantId,
  findAssistant,
  insertVersionSql,
  resolveAssistant,
} from './assistant.ts';

export interface SystemAssistantInput {
  readonly graphId: string;
  readonly name: string;
  readonly description: string | null;
  readonly config?: GraphConfig;
  readonly context?: unknown;
}

/**
 * Creates the system assistant of each graph that has none. Does not change existing assistants, which users may edit.
 */
export async function ensureSystemAssistants(
  database: Database,
  deploymentId: string,
  graphs: readonly SystemAssistantInput[],
): Promise<void> {
  for (const graph of graphs) await database.transaction((tx) => ensureSystemAssistant(tx, deploymentId, graph));
}

async function ensureSystemAssistant(
  tx: Sql,
  deploymentId: string,
  { graphId, name, description, config = {}, context }: SystemAssistantInput,
): Promise<void> {
  const id = computeSystemAssistantId(graphId);
  const created = await tx.execute(
    `INSERT INTO agents.assistants (deployment_id, assistant_id, graph_id, name, description, config, context, metadata)
     VALUES ($1, $2, $3, $4, $5, $6, $7, '{"created_by": "system"}') ON CONFLICT DO NOTHING`,
    [deploymentId, id, graphId, name, description, JSON.stringify(config), encodeContext(context)],
  );
  if (created > 0) await tx.execute(insertVersionSql, [deploymentId, id]);
}

/** Returns the context of an assistant as JSON text, as it is stored; an empty object if there is no context. */
function encodeContext(context: unknown): string {
  return JSON.stringify(context ?? {});
}

export interface NewAssistant {
  /** Id of the graph. The caller must have checked that the graph is served. */
  readonly graphId: string;
  /** Id of the new assistant. Default: a new id. */
  readonly assistantId?: string;
  /** Name of the assistant. Default: the id of the graph. */
  readonly name?: string;
  readonly description?: string | null;
  readonly config?: GraphConfig;
  readonly context?: unknown;
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly ifExists: 'raise' | 'do_nothing';
}

const countAssistantsSql = 'SELECT count(*) AS count FROM agents.assistants WHERE deployment_id = $1';

/**
 * Creates an assistant with version 1. With `ifExists: 'do_nothing'` it returns an existing assistant unchanged.
 *
 * @throws ASSISTANT_EXISTS, LIMIT_REACHED, INVALID_REQUEST if Postgres cannot store the metadata.
 */
export async function createAssistant(
  database: Database,
  deploymentId: string,
  assistant: NewAssistant,
  { maxAssistants }: { readonly maxAssistants: number },
): Promise<Assistant> {
  const { graphId, assistantId = uuidv7(), name = graphId, description, config = {}, metadata = {} } = assistant;
  requireStorableJson(metadata, ['body', 'metadata']);
  const insert = async (tx: Sql) => {
    const [row] = await tx.query<Assistant>(
      `INSERT INTO agents.assistants (deployment_id, assistant_id, graph_id, name, description, config, context, metadata)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING ${assistantColumns}`,
      [
        deploymentId,
        assistantId,
        graphId,
        name,
        description ?? null,
        JSON.stringify(config),
        encodeContext(assistant.context),
        metadata,
      ],
    );
    if (row !== undefined) {
      await tx.execute(insertVersionSql, [deploymentId, assistantId]);
      await enforceLimit(tx, 'deployment', deploymentId, {
        max: maxAssistants,
        countSql: countAssistantsSql,
        what: 'assistants',
        hint: 'Delete assistants that are no longer needed',
      });
    }
    return row;
  };
  const created = await createOrFind(
    () => database.transaction(insert),
    // An assistant with an id that the caller has chosen may be older than the request.
    async () => (assistant.assistantId === undefined ? findAssistant(database, deploymentId, assistantId) : undefined),
  );
  if (created !== undefined) return created;
  if (assistant.ifExists === 'raise') throw runlakeError('ASSISTANT_EXISTS', { assistant: assistantId });
  return resolveAssistant(database, deploymentId, assistantId);
}

/** The metadata is merged with that which is stored, key by key. */
type AssistantChange = Partial<Omit<NewAssistant, 'assistantId' | 'ifExists'>>;

/**
 * Stores a changed assistant as a new version and makes it the current one.
 *
 * @throws ASSISTANT_NOT_FOUND, INVALID_REQUEST if Postgres cannot store the metadata.
 */
export async function updateAssistant(
  database: Database,
  deploymentId: string,
  idOrGraphId: string,
  change: AssistantChange,
): Promise<Assistant> {
  requireStorableJson(change.metadata ?? {}, ['body', 'metadata']);
  const { assistant_id: id } = await resolveAssistant(database, deploymentId, idOrGraphId);
  return database.transaction(async (tx) => {
    // Lock the row first, so that concurrent updates get different version numbers.
    await tx.query('SELECT FROM agents.assistants WHERE deployment_id = $1 AND assistant_id = $2 FOR UPDATE', [
      deploymentId,
      id,
    ]);
    const [row] = await tx.query<Assistant>(
      `UPDATE agents.assistants SET
         graph_id = coalesce($3, graph_id),
         name = coalesce($4, name),
         description = CASE WHEN $5::boolean THEN $6::text ELSE description END,
         config = coalesce($7::json, config),
         context = CASE WHEN $8::boolean THEN $9::json ELSE context END,
         metadata = metadata || $10::jsonb,
         updated_at = clock_timestamp(),
         version = 1 + (SELECT max(version) FROM agents.assistant_versions WHERE deployment_id = $1 AND assistant_id = $2)
       WHERE deployment_id = $1 AND assistant_id = $2 RETURNING ${assistantColumns}`,
      [
        deploymentId,
        id,
        change.graphId ?? null,
        change.name ?? null,
        change.description !== undefined,
        change.description ?? null,
        change.config === undefined || change.config === null ? null : JSON.stringify(change.config),
        change.context !== undefined,
        encodeContext(change.context),
        change.metadata ?? {},
      ],
    );
    if (row === undefined) throw runlakeError('ASSISTANT_NOT_FOUND', { assistant: id });
    await tx.execute(insertVersionSql, [deploymentId, id]);
    return row;
  });
}

/** Maximum number of runs whose threads one transaction locks: requests to these threads wait for the commit. */
const maxRunsPerTransaction = 100;
/** Number of times that all runs which were created meanwhile are removed before the assistant. Each round usually takes less time. */
const maxRemovalRounds = 3;

/**
 * Deletes an assistant with its versions and runs. With `deleteThreads` it also deletes the threads whose metadata
 * names the assistant. Most threads and runs are deleted before the assistant, because one transaction for all could take
 * too long.
 *
 * @param served the graph whose system assistant this is, if it is served. Its assistant is created again as it was first,
 *   because runs that name the graph need it.
 * @throws ASSISTANT_NOT_FOUND
 */
export async function deleteAssistant(
  database: Database,
  deploymentId: string,
  assistantId: string,
  {
    deleteThreads = false,
    served,
  }: { readonly deleteThreads?: boolean | undefined; readonly served?: SystemAssistantInput | undefined } = {},
): Promise<void> {
  await resolveAssistant(database, deploymentId, assistantId);
  if (deleteThreads) {
    const threads = await database.query<{ thread_id: string }>(
      'SELECT thread_id FROM agents.threads WHERE deployment_id = $1 AND metadata @> $2',
      [deploymentId, { assistant_id: assistantId }],
    );
    const threadIds = threads.map(({ thread_id }) => thread_id);
    await pruneThreads(database, deploymentId, { threadIds, strategy: 'delete' });
  }
  const options = { timeoutMs: requestDeletionTimeoutMs };
  // The last runs of a busy assistant are removed together with it.
  for (let round = 0; round < maxRemovalRounds; round++) {
    const some = { maxRuns: maxRunsPerTransaction, createdBefore: await readDatabaseClock(database) };
    const removeSomeRuns = (tx: Sql) => removeAssistantRuns(tx, deploymentId, assistantId, some);
    while ((await database.transaction(removeSomeRuns, options)) > 0);
  }
  await database.transaction(async (tx) => {
    const deleted = await tx.execute('DELETE FROM agents.assistants WHERE deployment_id = $1 AND assistant_id = $2', [
      deploymentId,
      assistantId,
    ]);
    if (deleted === 0) throw runlakeError('ASSISTANT_NOT_FOUND', { assistant: assistantId });
    if (deleteThreads) {
      const threadIds = await lockThreads(tx, deploymentId, 'metadata @> $2', { assistant_id: assistantId });
      await removeThreads(tx, deploymentId, threadIds);
    }
    await removeAssistantRuns(tx, deploymentId, assistantId);
    if (served !== undefined) await ensureSystemAssistant(tx, deploymentId, served);
  }, options);
}

/**
 * Removes the runs of an assistant from all its threads, or from the threads of up to `maxRuns` runs that were
 * created before a time. @returns the number of threads.
 */
async function removeAssistantRuns(
  tx: Sql,
  deploymentId: string,
  assistantId: string,
  some?: { readonly maxRuns: number; readonly createdBefore: number },
): Promise<number> {
  const restriction = some && `AND created_at < to_timestamp(${some.createdBefore} / 1000.0) LIMIT ${some.maxRuns}`;
  const used = `thread_id IN (
    SELECT thread_id FROM agents.runs
    WHERE deployment_id = $1 AND assistant_id = $2 AND NOT removed ${restriction ?? ''})`;
  const threadIds = await lockThreads(tx, deploymentId, used, assistantId);
  await removeRuns(tx, deploymentId, threadIds, assistantId);
  for (const threadId of threadIds) await updateThreadStatus(tx, deploymentId, threadId);
  return threadIds.length;
}

async function lockThreads(tx: Sql, deploymentId: string, condition: string, value: unknown): Promise<string[]> {
  const rows = await tx.query<{ thread_id: string }>(
    `SELECT thread_id FROM agents.threads WHERE deployment_id = $1 AND ${condition} ORDER BY thread_id FOR UPDATE`,
    [deploymentId, value],
  );
  return rows.map(({ thread_id }) => thread_id);
}

/**
 * Makes an existing version of an assistant the current one. @throws ASSISTANT_NOT_FOUND if the assistant or version
 * does not exist.
 */
export async function setAssistantVersion(
  database: Sql,
  deploymentId: string,
  assistantId: string,
  version: number,
): Promise<Assistant> {
  const columns = assistantColumns.split(', ').map((column) => `assistants.${column}`);
  const [row] = await database.query<Assistant>(
    `UPDATE agents.assistants SET version = chosen.version, graph_id = chosen.graph_id, name = chosen.name,
       description = chosen.description, config = chosen.config, context = chosen.context, metadata = chosen.metadata,
       updated_at = clock_timestamp()
     FROM agents.assistant_versions chosen
     WHERE assistants.deployment_id = $1 AND assistants.assistant_id = $2 AND chosen.deployment_id = $1
       AND chosen.assistant_id = $2 AND chosen.version = $3
     RETURNING ${columns.join(', ')}`,
    [deploymentId, assistantId, version],
  );
  if (row === undefined)
    throw runlakeError('ASSISTANT_NOT_FOUND', { assistant: `${assistantId} in version ${version}` });
  return row;
}
