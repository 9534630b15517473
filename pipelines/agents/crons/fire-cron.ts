/**
 * Fires crons that are due, by the clock of Postgres.
 *
 * Invariant: a fire time creates at most one run. It creates exactly one run if any process is up at that time, unless
 * the run is refused (for example because its assistant was deleted or its thread is busy). One transaction
 *
 *   1. locks the cron that has been due longest and that no other process has locked (SKIP LOCKED);
 *   2. finds its last fire time up to now and skips earlier fire times, which passed while no process was up;
 *   3. inserts this fire time into `cron_firings`, which keeps it for a day, so that the cron cannot fire twice at this
 *      time even if its next fire time is moved back;
 *   4. creates the run;
 *   5. sets the next fire time of the cron, or null.
 *
 * A crash at any step leaves the cron unchanged and due. If the run is refused with a caller error, a second
 * transaction executes the steps without step 4 and so skips this fire time. A cron whose schedule this version cannot
 * read any more is disabled. After any other error the cron stays due.
 */
import { v7 as uuidv7 } from 'uuid';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { ReadClock } from '../../../infra/postgres/clock.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { type Repeater, startRepeating } from '../../../infra/timeouts/repeat.ts';
import { resolveAssistant } from '../assistants/assistant.ts';
import { type AgentUser, registerEndUser } from '../auth/agent-user.ts';
import { createRun } from '../runs/create-run.ts';
import type { RequestDeps } from '../runs/request-run.ts';
import { type RunRules, readRunRequest } from '../runs/run-request.ts';
import { findThreadHead } from '../threads/thread.ts';
import { readSchedule } from './schedule.ts';
import { type Cron, cronColumns, disableCron } from './write-crons.ts';

export interface FiringDeps {
  readonly database: Database;
  readonly deploymentId: string;
  /** Creates the run of a cron that fires, in the transaction `tx`. Returns the id of the run. */
  readonly createCronRun: (tx: Sql, cron: Cron) => Promise<string>;
  readonly logger: Logger;
  readonly now: ReadClock;
}

const firingRetentionMs = 24 * 3_600_000;

/** Errors of a stored schedule, for example because an update of the library or of the time zones has changed its syntax. */
const scheduleErrors: ReadonlySet<string> = new Set(['CRON_SCHEDULE_INVALID', 'CRON_TIMEZONE_UNKNOWN']);

/**
 * Fires every cron that is due. If a cron fails, its fire time is skipped, the cron is disabled or stays due.
 *
 * @returns how many fired.
 */
export async function fireCrons(deps: FiringDeps): Promise<number> {
  const { database, logger } = deps;
  const failed: string[] = [];
  for (let firedCount = 0; ; ) {
    let cron: Cron | undefined;
    try {
      await database.transaction(async (tx) => {
        const nowMs = await deps.now(tx);
        cron = await lockDueCron(tx, deps, nowMs, 'AND cron_id <> ALL ($3::uuid[])', failed);
        if (cron !== undefined) await fireCron(tx, deps, nowMs, cron, deps.createCronRun);
      });
      if (cron === undefined) return firedCount;
      firedCount += 1;
    } catch (err) {
      if (cron === undefined) throw err;
      const { cron_id: cronId } = cron as Cron;
      failed.push(cronId);
      if (isRunlakeError(err) && scheduleErrors.has(err.code)) {
        logger.error({ err, cronId }, 'schedule of a cron is no longer valid: disabling the cron');
        await disableCron(database, deps.deploymentId, cron).catch((reason) =>
          logger.error({ err: reason, cronId }, 'cron could not be disabled: retrying'),
        );
      } else if (isRunlakeError(err) && err.class === 'caller') {
        logger.warn({ err, cronId }, 'cron run refused: skipping this fire time');
        await skipFireTime(deps, cronId).catch((reason) =>
          logger.error({ err: reason, cronId }, 'fire time of a cron could not be skipped: retrying'),
        );
      } else logger.error({ err, cronId }, 'cron could not fire: retrying');
    }
  }
}

/** Moves a due cron to its next fire time without creating a run. */
async function skipFireTime(deps: FiringDeps, cronId: string): Promise<void> {
  await deps.database.transaction(async (tx) => {
    const nowMs = await deps.now(tx);
    const cron = await lockDueCron(tx, deps, nowMs, 'AND cron_id = $3', cronId);
    if (cron !== undefined) await fireCron(tx, deps, nowMs, cron, async () => null);
  });
}

/**
 * Returns the milliseconds until the next cron is due: 0 if a cron is due now, undefined if no cron has a fire time.
 */
export async function getMsToNextCron(deps: FiringDeps): Promise<number | undefined> {
  const { database, deploymentId } = deps;
  const [row] = await database.query<{ next: string | null }>(
    'SELECT min(next_run_date) AS next FROM agents.crons WHERE deployment_id = $1 AND enabled',
    [deploymentId],
  );
  return row?.next ? Math.max(0, Date.parse(row.next) - (await deps.now(database))) : undefined;
}

/**
 * Locks and returns the cron that has been due longest among those that match `condition`, in which `$3` is `value`.
 */
async function lockDueCron(
  tx: Sql,
  { deploymentId }: FiringDeps,
  nowMs: number,
  condition: string,
  value: string | readonly string[],
): Promise<Cron | undefined> {
  const [cron] = await tx.query<Cron>(
    `SELECT ${cronColumns} FROM agents.crons
     WHERE deployment_id = $1 AND enabled AND next_run_date <= $2 ${condition}
     ORDER BY next_run_date LIMIT 1 FOR UPDATE SKIP LOCKED`,
    [deploymentId, new Date(nowMs).toISOString(), value],
  );
  return cron;
}

async function fireCron(
  tx: Sql,
  { deploymentId }: FiringDeps,
  nowMs: number,
  cron: Cron,
  startRun: (tx: Sql, cron: Cron) => Promise<string | null>,
): Promise<void> {
  const dueMs = Date.parse(cron.next_run_date as string);
  const endMs = cron.end_time === null ? Number.POSITIVE_INFINITY : Date.parse(cron.end_time);
  const schedule = readSchedule(cron.schedule, cron.timezone, dueMs - 1);
  const fireTimeMs = schedule.latest(dueMs, Math.min(nowMs, endMs));
  const firingKey = [deploymentId, cron.cron_id, new Date(fireTimeMs).toISOString()];
  const isFirst = await tx.execute(
    'INSERT INTO agents.cron_firings (deployment_id, cron_id, due_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING',
    firingKey,
  );
  if (isFirst === 1) {
    const runId = await startRun(tx, cron);
    await tx.execute(
      'UPDATE agents.cron_firings SET run_id = $4 WHERE deployment_id = $1 AND cron_id = $2 AND due_at = $3',
      [...firingKey, runId],
    );
  }
  const nextMs = schedule.next(Math.max(fireTimeMs, nowMs));
  await tx.execute('UPDATE agents.crons SET next_run_date = $3 WHERE deployment_id = $1 AND cron_id = $2', [
    deploymentId,
    cron.cron_id,
    nextMs === undefined || nextMs > endMs ? null : new Date(nextMs).toISOString(),
  ]);
  await tx.execute('DELETE FROM agents.cron_firings WHERE deployment_id = $1 AND cron_id = $2 AND due_at < $3', [
    deploymentId,
    cron.cron_id,
    new Date(fireTimeMs - firingRetentionMs).toISOString(),
  ]);
}

/**
 * Creates the run of a cron that fires, as if a client had sent the payload. The metadata of the run contains
 * `cron_id`. Returns the id of the run.
 *
 * @throws ASSISTANT_NOT_FOUND, THREAD_NOT_FOUND, THREAD_BUSY, WEBHOOK_INVALID, FEEDBACK_ADDRESS_UNSET
 */
export async function createCronRun(
  tx: Sql,
  deploymentId: string,
  cron: Cron,
  deps: RunRules & Pick<RequestDeps, 'organizationId' | 'threadTtl'>,
): Promise<string> {
  const assistant = await resolveAssistant(tx, deploymentId, cron.assistant_id);
  const isStateless = cron.thread_id === null;
  // Only the server writes `on_behalf_of`, the user who created the cron under custom authentication. The run is
  // created for this user. The metadata of the cron contains the members that the user's access requires, so a new
  // thread gets this metadata.
  const user = cron.payload.on_behalf_of as AgentUser | undefined;
  const threadAccess = user && { required: undefined, metadata: cron.metadata };
  const thread = cron.thread_id === null ? undefined : await findThreadHead(tx, deploymentId, cron.thread_id);
  const ids = { runId: uuidv7(), threadId: cron.thread_id ?? uuidv7() };
  const { cancelOnDisconnect: _, ...runRequest } = readRunRequest(
    {
      ...cron.payload,
      assistant_id: cron.assistant_id,
      metadata: { ...cron.metadata, cron_id: cron.cron_id },
      on_completion: cron.on_run_completed,
    },
    {
      ...{ assistant, thread, ...ids, stateless: isStateless, userId: cron.user_id ?? 'cron', headers: {}, user },
      rules: deps,
    },
  );
  const endUser = user && { userId: await registerEndUser(tx, deps.organizationId, user.identity) };
  await createRun(tx, deploymentId, {
    assistant,
    ...runRequest,
    ...ids,
    stateless: isStateless,
    threadAccess,
    threadTtl: deps.threadTtl,
    sender: endUser,
    callerId: endUser?.userId,
  });
  return ids.runId;
}

/**
 * Fires crons when they are due. The caller calls `wake` on NOTIFY agent_crons. Several processes can fire crons at
 * the same time: each fire time still creates one run.
 */
export function startCrons(deps: FiringDeps): Repeater {
  return startRepeating(
    async () => {
      await fireCrons(deps);
      const nextMs = await getMsToNextCron(deps);
      // Crons that are still due have failed or are locked by another process, so retry in a second.
      return nextMs === 0 ? 1_000 : nextMs;
    },
    {
      maxPauseMs: 10_000,
      onFailure: (err) => deps.logger.warn({ err }, 'due crons could not be read: retrying'),
    },
  );
}
