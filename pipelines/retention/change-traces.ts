/**
 * Keeps and deletes traces, as requested by rows of `trace_changes` in Postgres.
 *
 * Invariant: a request is handled when all events are stored that the log had accepted before it, and again an hour
 * later, before it is deleted. Events that the sinks were storing the first time are handled the second time, and the
 * sink applies the mark of a trace to all later events.
 *
 *   1. Claim due requests: their next due time becomes an hour from now, so that other processes do not claim them. Wait
 *      some minutes until the events that the log has accepted are stored.
 *   2. Write the marks of the traces (`trace_marks`), so that sinks that read them later store later events correctly.
 *   3. Keep (`keep-traces.ts`) or delete (`delete-traces.ts`) the rows. Both operations may be repeated.
 *   4. After the first run, record it; the request becomes due again in an hour. If the events were not stored in time,
 *      their traces may be unknown: this was not the first run, and the request is due again in ten minutes. After the
 *      second run, delete the request.
 *
 * After a crash in steps 2 to 4 the request is due again an hour later. After an error, it is due again in a minute,
 * with the other requests of its group. The groups are: the deletions in a project that are handled for the first time,
 * those that are handled for the second time, and the requests of a workspace to keep traces. Other groups are not
 * affected.
 */
import { groupBy } from '../../infra/collections/group-by.ts';
import { waitUntilStored } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { runEvents } from '../../schemas/topics.ts';
import { deleteTraces } from './delete-traces.ts';
import { keepTraces } from './keep-traces.ts';
import type { ChangeDeps, TraceChange } from './request-changes.ts';

/** Maximum number of requests of a kind per round. */
const maxRequestsPerRound = 1_000;
/**
 * Number of traces per round after which no further request to keep traces is claimed, because a new deletion waits until
 * the end of the round.
 */
const maxKeptPerRound = 10_000;

/**
 * Maximum number of deletions by metadata per round. Each reads the runs of its whole project, so that a round of many
 * would take longer than the timeout of the job and begin again, and later requests would wait for all of them.
 */
const maxSearchesPerRound = 20;

/** Consumers whose lag is shorter do not delay a request. */
const defaultLogTimeoutMs = 300_000;

/**
 * Handles all due requests. In each round, the deletions come first: those that are requested meanwhile are part of the
 * next round, so that they do not wait until all traces are kept.
 *
 * @throws the first error of the log, Postgres or ClickHouse, after all groups of the round; the requests of failed
 *   groups are then due again in a minute.
 */
export async function changeTraces(
  deps: ChangeDeps,
  signal?: AbortSignal,
  logTimeoutMs = defaultLogTimeoutMs,
): Promise<void> {
  for (;;) {
    const deletions = await claimChanges(deps.database, 'delete');
    const keeps = await claimChanges(deps.database, 'keep');
    const changes = [...deletions, ...keeps];
    // Read the position after the claim, so that it follows all events that were accepted before a request.
    const stored =
      changes.every(({ isSecond }) => isSecond) ||
      waitUntilStored(deps.log, runEvents, { timeoutMs: logTimeoutMs, signal });
    const failures: unknown[] = [];
    for (const group of groupChanges(changes)) {
      await changeGroup(deps, group, stored, signal).catch(async (error: unknown) => {
        failures.push(error);
        const ids = group.map(({ id }) => id);
        const delay = signal?.aborted ? '0' : '1 minute';
        await deps.database.execute(
          'UPDATE trace_changes SET due_at = now() + $2::interval WHERE id = ANY ($1::bigint[])',
          [ids, delay],
        );
      });
    }
    if (failures.length > 0) throw failures[0];
    const keptTraces = keeps.reduce((sum, { traceIds }) => sum + (traceIds?.length ?? 1), 0);
    const searches = deletions.filter(({ metadata }) => metadata !== null).length;
    const isLimited =
      [deletions, keeps].some(({ length }) => length >= maxRequestsPerRound) ||
      keptTraces >= maxKeptPerRound ||
      searches === maxSearchesPerRound;
    if (!isLimited) return;
  }
}

function groupChanges(changes: readonly TraceChange[]): TraceChange[][] {
  const groups = groupBy(changes, ({ kind, tenantId, projectId, isSecond }) =>
    kind === 'delete' ? `delete ${tenantId} ${projectId} ${isSecond}` : `keep ${tenantId}`,
  );
  return [...groups.values()];
}

/** Performs steps 2 to 4 for the requests of a group, after the wait of step 1. */
async function changeGroup(
  deps: ChangeDeps,
  group: readonly TraceChange[],
  stored: boolean | Promise<boolean>,
  signal?: AbortSignal,
): Promise<void> {
  const isStored = await stored;
  signal?.throwIfAborted();
  const change = group[0]?.kind === 'delete' ? deleteTraces : keepTraces;
  const done = new Set(await change(deps, group, signal));
  await complete(
    deps.database,
    group.filter(({ id }) => done.has(id)),
    isStored,
  );
}

/** Performs step 1 for requests of a kind. */
async function claimChanges(database: Database, kind: TraceChange['kind']): Promise<TraceChange[]> {
  return database.query<TraceChange>(
    `WITH oldest AS (
       (SELECT id, due_at, coalesce(cardinality(trace_ids), 1) AS traces FROM trace_changes
        WHERE due_at <= now() AND kind = $1 AND metadata IS NULL ORDER BY due_at, id LIMIT $2)
       UNION ALL
       (SELECT id, due_at, 1 FROM trace_changes
        WHERE due_at <= now() AND kind = $1 AND metadata IS NOT NULL ORDER BY due_at, id LIMIT $4)
     ), counted AS (
       SELECT id, sum(traces) OVER (ORDER BY due_at, id) - traces AS traces_before FROM oldest
     ), due AS (
       SELECT id FROM trace_changes
       WHERE due_at <= now() AND id IN (SELECT id FROM counted WHERE $1 = 'delete' OR traces_before < $3)
       FOR UPDATE SKIP LOCKED
     )
     UPDATE trace_changes AS change SET due_at = now() + interval '1 hour' FROM due WHERE change.id = due.id
     RETURNING change.id, kind, tenant_id AS "tenantId", run_id AS "runId", session_id AS "projectId",
       trace_ids AS "traceIds", metadata, is_second AS "isSecond",
       (extract(epoch FROM requested_at) * 1000000)::bigint AS "requestedAtMicros"`,
    [kind, maxRequestsPerRound, maxKeptPerRound, maxSearchesPerRound],
  );
}

/** Performs step 4. */
async function complete(database: Database, changes: readonly TraceChange[], isStored: boolean): Promise<void> {
  const ids = (isSecond: boolean) => changes.filter((change) => change.isSecond === isSecond).map(({ id }) => id);
  const recordSql = isStored ? 'is_second = true' : `due_at = now() + interval '10 minutes'`;
  await database.transaction(async (transaction) => {
    await transaction.execute('DELETE FROM trace_changes WHERE id = ANY ($1::bigint[])', [ids(true)]);
    await transaction.execute(`UPDATE trace_changes SET ${recordSql} WHERE id = ANY ($1::bigint[])`, [ids(false)]);
  });
}
