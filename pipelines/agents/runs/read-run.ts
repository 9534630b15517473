import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { PageRequest } from '../../../infra/postgres/list-page.ts';
import { buildSelectList, queryPageWithinLimit } from '../../../infra/postgres/page-within.ts';
import { type AgentUser, removeAddedFields } from '../auth/agent-user.ts';
import { findProject } from '../traces/root-run.ts';
import type { Run, RunKwargs, RunStatus } from './run.ts';
import { runColumns } from './run-row.ts';

interface RunIds {
  readonly threadId: string;
  readonly runId: string;
}

/** Reads a run, even if its thread is hidden. @throws RUN_NOT_FOUND */
export async function readRun(sql: Sql, deploymentId: string, ids: RunIds): Promise<Run> {
  const run = await findRun(sql, deploymentId, ids);
  if (run === undefined) throw runlakeError('RUN_NOT_FOUND', { run: ids.runId });
  return run;
}

/** Like {@link readRun}, but returns undefined if there is no such run. */
export async function findRun(sql: Sql, deploymentId: string, { threadId, runId }: RunIds): Promise<Run | undefined> {
  const [run] = await sql.query<Run>(
    `SELECT ${runColumns} FROM agents.runs
     WHERE deployment_id = $1 AND thread_id = $2 AND run_id = $3 AND NOT removed`,
    [deploymentId, threadId, runId],
    { name: 'agents_read_run' },
  );
  return run;
}

interface RunPage<Field extends keyof Run> extends PageRequest {
  readonly status?: RunStatus;
  /** Fields to return. Default: all fields. */
  readonly select?: readonly Field[] | undefined;
  /** Maximum size of the page as JSON. Default: no limit. */
  readonly limitBytes?: number;
}

/** Lists the runs of a thread, newest first; empty if the thread does not exist. @throws ANSWER_TOO_LARGE */
export async function listRuns<Field extends keyof Run = keyof Run>(
  sql: Sql,
  deploymentId: string,
  threadId: string,
  { limit, offset, status, select, limitBytes }: RunPage<Field>,
): Promise<Pick<Run, Field>[]> {
  return queryPageWithinLimit(
    sql,
    `SELECT ${buildSelectList(runColumns, select)} FROM agents.runs
     WHERE deployment_id = $1 AND thread_id = $2 AND NOT removed AND ($5::text IS NULL OR status = $5)
     ORDER BY queue_position DESC LIMIT $3 OFFSET $4`,
    [deploymentId, threadId, limit, offset, status ?? null],
    limitBytes,
  );
}

/** Returns the thread id of a run. @throws RUN_NOT_FOUND */
export async function findThreadOfRun(sql: Sql, deploymentId: string, runId: string): Promise<string> {
  const [row] = await sql.query<{ thread_id: string }>(
    'SELECT thread_id FROM agents.runs WHERE deployment_id = $1 AND run_id = $2',
    [deploymentId, runId],
  );
  if (row === undefined) throw runlakeError('RUN_NOT_FOUND', { run: runId });
  return row.thread_id;
}

export interface RunResponse extends Run {
  /** Project of the run's trace. */
  readonly langsmith_session_name: string;
}

/** Converts a run to the form that clients receive. */
export function formatRun(run: Run): RunResponse {
  return { ...run, kwargs: formatKwargs(run.kwargs), langsmith_session_name: getRunProject(run) };
}

/** Returns the arguments of a run in the form that clients receive. */
export function formatKwargs(kwargs: RunKwargs): RunKwargs {
  const { configurable } = kwargs.config;
  const user = configurable?.langgraph_auth_user as AgentUser | undefined;
  if (user === undefined) return kwargs;
  const formatted = { ...configurable, langgraph_auth_user: removeAddedFields(user) };
  return { ...kwargs, config: { ...kwargs.config, configurable: formatted } };
}

/** Returns the project of a run's trace. The graph id is in the config of the run, where the server has stored it. */
function getRunProject({ kwargs }: Pick<Run, 'kwargs'>): string {
  return findProject({ kwargs, graphId: String(kwargs.config.configurable?.graph_id) });
}

/**
 * Counts the pending and running runs of all processes. The query has two subqueries, so that each uses the partial
 * index of its status.
 */
export async function countUnfinishedRuns(
  sql: Sql,
  deploymentId: string,
): Promise<{ readonly pending: number; readonly running: number }> {
  const [row] = await sql.query<{ pending: number; running: number }>(
    `SELECT
       (SELECT count(*)::int FROM agents.runs WHERE deployment_id = $1 AND status = 'pending') AS pending,
       (SELECT count(*)::int FROM agents.runs WHERE deployment_id = $1 AND status = 'running') AS running`,
    [deploymentId],
    { name: 'agents_count_unfinished' },
  );
  return row!;
}
