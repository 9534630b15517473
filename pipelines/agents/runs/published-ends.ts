import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { buildThreadKey, deleteCheckpoints } from '../checkpoints/copy-checkpoints.ts';
import type { NewestState } from '../threads/newest-state.ts';
import { type Interrupt, toSearchableText } from '../threads/thread.ts';
import type { RunStatus } from './run.ts';
import { type EndedRow, type EndedRun, endedColumns, toEndedRun } from './run-row.ts';

/** SQL condition: the row `run` is the last run of its thread, the row `thread`, and left it waiting for input. */
const isLastAndWaiting = `run.status = 'success' AND thread.starts = run.thread_start AND thread.rest_status = 'interrupted'`;

/** Maximum number of ends that a process claims at once. */
export const maxClaimedEnds = 100;

/**
 * Claims up to {@link maxClaimedEnds} ended runs whose end is not in the event log, so that this process publishes the
 * ends. A run that ended without a lease can be claimed at once. Any other run can be claimed `claimMs` after its end,
 * because the process that ended it has then probably died. A claim also expires after `claimMs`. Returns values and
 * interrupts only if no later run has changed the thread.
 */
export async function claimUnpublishedEnds(database: Sql, deploymentId: string, claimMs: number): Promise<EndedRun[]> {
  const rows = await database.query<
    EndedRow & {
      values_text: string | null;
      interrupts: NonNullable<EndedRun['interrupts']> | null;
      has_unread_state: boolean;
    }
  >(
    `WITH claimed AS MATERIALIZED (
       SELECT run_id FROM agents.runs
       WHERE deployment_id = $1 AND end_published = false
         AND (lease_token IS NULL OR ended_at < clock_timestamp() - $2 * interval '1 millisecond')
         AND (end_claimed_until IS NULL OR end_claimed_until <= clock_timestamp())
       ORDER BY ended_at LIMIT ${maxClaimedEnds}
       FOR UPDATE SKIP LOCKED
     ),
     run AS (
       UPDATE agents.runs SET end_claimed_until = clock_timestamp() + $2 * interval '1 millisecond'
       WHERE deployment_id = $1 AND run_id IN (SELECT run_id FROM claimed)
       RETURNING *
     )
     SELECT ${endedColumns},
       CASE WHEN thread.starts = run.thread_start AND NOT run.removed THEN thread.values::text END AS values_text,
       CASE WHEN ${isLastAndWaiting} AND NOT run.removed THEN thread.interrupts END AS interrupts,
       coalesce(run.attempt > 0 AND run.lease_token IS NULL AND NOT run.removed AND NOT run.temporary
         AND thread.starts = run.thread_start, false) AS has_unread_state
     FROM run LEFT JOIN agents.threads thread USING (deployment_id, thread_id)
     ORDER BY run.ended_at`,
    [deploymentId, claimMs],
    { name: 'agents_claim_unpublished_ends' },
  );
  return rows.map((row) => ({
    ...toEndedRun(row, row.values_text),
    ...(row.interrupts && { interrupted: true, interrupts: row.interrupts }),
    ...(row.has_unread_state && { hasUnreadState: true }),
  }));
}

/**
 * Writes the state that an ended run has stored to the row of its thread, unless another run has started or the state was
 * updated since. @returns whether it was written.
 */
export async function recordUnreadState(
  sql: Sql,
  { deploymentId, threadId, threadStart }: EndedRun,
  { values, interrupts }: Pick<NewestState, 'values' | 'interrupts'>,
): Promise<boolean> {
  const written = await sql.execute(
    `UPDATE agents.threads SET values = $4, searchable_values = $5, interrupts = $6
     WHERE deployment_id = $1 AND thread_id = $2 AND starts = $3`,
    [deploymentId, threadId, threadStart, values, toSearchableText(values), JSON.stringify(interrupts)],
  );
  return written > 0;
}

/**
 * Marks the ends of runs of one deployment as published to the event log. Deletes the runs that must not remain:
 * rolled-back runs, and temporary runs with their hidden threads. A temporary run with a resumable stream or with values
 * that its end event lacks is deleted `resumeMs` later, so that clients can reconnect to the stream or read the values.
 */
export async function markEndsPublished(
  database: Database,
  runs: readonly EndedRun[],
  resumeMs = 120_000,
): Promise<void> {
  const kept = runs.filter(({ kwargs }) => !kwargs.temporary);
  if (kept.length > 0) {
    const [{ deploymentId }] = kept as [EndedRun];
    const runIds = kept.map(({ runId }) => runId);
    // If some rows were not marked, their runs may have been removed after they ended. Delete the rows of such runs.
    if ((await markPublished(database, deploymentId, runIds)) < kept.length) {
      await database.execute(
        'DELETE FROM agents.runs WHERE deployment_id = $1 AND run_id = ANY ($2::uuid[]) AND removed',
        [deploymentId, runIds],
      );
    }
  }
  const temporary = runs.filter(({ kwargs }) => kwargs.temporary);
  for (let at = 0; at < temporary.length; at += maxDeletions)
    await Promise.all(temporary.slice(at, at + maxDeletions).map((run) => deleteTemporaryRun(database, run, resumeMs)));
}

/** Maximum number of transactions that delete temporary runs at the same time. */
const maxDeletions = 5;

/** Marks runs as published, except removed runs. @returns how many rows it changed. */
async function markPublished(sql: Sql, deploymentId: string, runIds: readonly string[]): Promise<number> {
  // Find the rows by id, because the partial index on unpublished ends contains many dead entries.
  return sql.execute(
    `UPDATE agents.runs SET end_published = true
     WHERE deployment_id = $1 AND run_id = ANY ($2::uuid[]) AND end_published IS DISTINCT FROM true AND NOT removed`,
    [deploymentId, runIds],
    { name: 'agents_ends_published' },
  );
}

/** Deletes a temporary run, or sets the TTL of its thread if clients may still read the stream or the values. */
async function deleteTemporaryRun(
  database: Database,
  { deploymentId, threadId, runId, kwargs, values, interrupts }: EndedRun,
  resumeMs: number,
): Promise<void> {
  const isKept = kwargs.resumable || !fitsEndEvent(values) || !fitsEndEvent(interrupts && JSON.stringify(interrupts));
  await database.transaction(async (tx) => {
    if (isKept && (await markPublished(tx, deploymentId, [runId])) > 0) {
      await tx.execute(
        `UPDATE agents.threads SET ttl_strategy = 'delete', expires_at = clock_timestamp() + $3 * interval '1 millisecond'
         WHERE deployment_id = $1 AND thread_id = $2 AND hidden`,
        [deploymentId, threadId, resumeMs],
      );
      return;
    }
    const deleted = await tx.execute(
      'DELETE FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2 AND hidden',
      [deploymentId, threadId],
      { name: 'agents_delete_hidden' },
    );
    if (deleted > 0) await deleteCheckpoints(tx, [buildThreadKey(deploymentId, threadId)]);
    await tx.execute('DELETE FROM agents.runs WHERE deployment_id = $1 AND run_id = $2 AND end_published = false', [
      deploymentId,
      runId,
    ]);
  });
}

interface StoredRunEnd {
  readonly status: RunStatus;
  readonly error: { readonly error: string; readonly message: string } | null;
  /** JSON text of the final values of the run if they are stored, otherwise of the current values of the thread. */
  readonly values: string | null;
  /**
   * The interrupts that the run ended with, by task; null if it ended without interrupts, or if they are no longer
   * available because a later run has started.
   */
  readonly interrupts: Readonly<Record<string, readonly Interrupt[]>> | null;
}

/** Reads how a run ended; undefined if its row no longer exists. The run may be unfinished, so check the status. */
export async function readRunEnd(
  sql: Sql,
  deploymentId: string,
  run: { readonly threadId: string; readonly runId: string },
): Promise<StoredRunEnd | undefined> {
  const rows = await sql.query<StoredRunEnd>(
    `SELECT run.status, run.error, CASE WHEN final.run_id IS NOT NULL THEN final.values::text
         WHEN run.status NOT IN ('pending', 'running') THEN thread.values::text END AS values,
       CASE WHEN final.run_id IS NOT NULL THEN final.interrupts
         WHEN ${isLastAndWaiting} THEN thread.interrupts END AS interrupts
     FROM agents.runs run
     JOIN agents.threads thread USING (deployment_id, thread_id)
     LEFT JOIN agents.final_values final USING (deployment_id, run_id)
     WHERE run.deployment_id = $1 AND run.thread_id = $2 AND run.run_id = $3`,
    [deploymentId, run.threadId, run.runId],
    { name: 'agents_run_end' },
  );
  return rows[0];
}

/**
 * Returns true if the newest state of a thread is the one that a successful run left, so that the thread still waits for
 * input if this state does. A later run that failed before it stored a state does not change that; one that is running does.
 */
export async function isNewestStateOfRun(
  sql: Sql,
  deploymentId: string,
  { threadId, runId }: { readonly threadId: string; readonly runId: string },
): Promise<boolean> {
  // A run that answers an interrupt and reaches the next one in the same step stores no state of its own.
  const rows = await sql.query(
    `SELECT FROM agents.runs run JOIN agents.threads thread USING (deployment_id, thread_id)
     WHERE run.deployment_id = $1 AND run.thread_id = $2 AND run.run_id = $3 AND run.status = 'success' AND (
       ${isLastAndWaiting}
       OR NOT EXISTS (
         SELECT FROM agents.runs later WHERE later.deployment_id = $1 AND later.thread_id = $2
           AND later.thread_start > run.thread_start AND later.status IN ('running', 'success')
       ) AND EXISTS (
         SELECT FROM (
           SELECT metadata ->> 'run_id' AS run_id FROM agents.checkpoints
           WHERE thread_id = $4 AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1
         ) newest JOIN agents.runs writer ON writer.deployment_id = $1 AND writer.run_id = newest.run_id::uuid
         WHERE writer.thread_id = $2 AND writer.thread_start <= run.thread_start
       )
     )`,
    [deploymentId, threadId, runId, buildThreadKey(deploymentId, threadId)],
  );
  return rows.length > 0;
}

/**
 * The end event of a graph run carries its final values, unless they are large. Large values are stored for some
 * minutes in the transaction that ends the run, because the next run soon overwrites the values of the thread. Large
 * values of a temporary run stay in the row of its thread, which is deleted some minutes later.
 */

const maxEventCharacters = 1024 * 1024;
/**
 * How long large values are stored. Waiting requests read them when the end is published, or after they have reattached
 * to the stream.
 */
const retentionMinutes = 5;

/** Returns true if the end event contains `json`. */
export function fitsEndEvent(json: string | undefined): boolean {
  return json === undefined || json.length <= maxEventCharacters;
}

/** Copies values and interrupts from the row of the thread. Call it in the transaction that ends the run. */
export async function storeFinalValues(
  tx: Sql,
  { deploymentId, threadId, runId, interrupted = false }: EndedRun,
): Promise<void> {
  await tx.execute(
    `INSERT INTO agents.final_values (deployment_id, run_id, values, interrupts, expires_at)
     SELECT deployment_id, $3, values, CASE WHEN $4 THEN interrupts END, clock_timestamp() + $5 * interval '1 minute'
     FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2`,
    [deploymentId, threadId, runId, interrupted, retentionMinutes],
  );
}

/** Deletes up to 100 expired final values. @returns how many it deleted. */
export function deleteExpiredFinalValues(database: Database, deploymentId: string): Promise<number> {
  return database.execute(
    `DELETE FROM agents.final_values WHERE (deployment_id, run_id) IN (
       SELECT deployment_id, run_id FROM agents.final_values
       WHERE deployment_id = $1 AND expires_at < now() LIMIT 100 FOR UPDATE SKIP LOCKED)`,
    [deploymentId],
  );
}
