/**
 * Publishes the event of a dead-letter record to its topic again.
 *
 * Invariant: without `force` an event is published again at most once, and never after a newer event of its run was
 * stored. The dead-letter record itself is kept whatever happens.
 *
 *   1. Decode the record. The sink would refuse an event that cannot be decoded again.
 *   2. For a run event, check whether ClickHouse has an event of the run that was accepted later.
 *   3. Claim the replay in Postgres; of two concurrent commands one gets the claim.
 *   4. Publish the original bytes and headers. If the log refuses them, release the claim. After a crash before the
 *      answer the claim stays, and only `force` replays again; repeats merge.
 *   5. Mark the claim as replayed.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { readableRecord } from '../../infra/event-log/avro-json.ts';
import type { DeadLetter, DeadLetters } from '../../infra/event-log/dead-letters.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import { lastReplayOf, markReplayed } from '../../infra/event-log/in-process/mark-replayed.ts';
import { storedDeadLetters } from '../../infra/event-log/in-process/stored-dead-letters.ts';
import { schemaIdOf } from '../../infra/event-log/wire-format.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { runEvents, type Topic, topics } from '../../schemas/topics.ts';
import { parseTime } from '../ingest/run-event/times.ts';
import { locateRun } from '../runs/locate-run.ts';

/**
 * Claims the replay of a dead-letter record for this process. `again` claims it even if it was claimed before.
 * @returns undefined if the claim succeeded; otherwise a sentence that says when the earlier replay ended or began.
 */
async function claimReplay(database: Database, deadLetterId: string, again: boolean): Promise<string | undefined> {
  const [claimed] = await database.query(
    `INSERT INTO dead_letter_replays (dead_letter_id) VALUES ($1)
     ON CONFLICT (dead_letter_id) DO UPDATE SET claimed_at = now(), replayed_at = NULL WHERE $2
     RETURNING dead_letter_id`,
    [deadLetterId, again],
  );
  if (claimed !== undefined) return undefined;
  const [earlier] = await database.query<{ claimed_at: string; replayed_at: string | null }>(
    'SELECT claimed_at, replayed_at FROM dead_letter_replays WHERE dead_letter_id = $1',
    [deadLetterId],
  );
  if (earlier?.replayed_at) return `it was replayed at ${earlier.replayed_at}`;
  return `its replay began at ${earlier?.claimed_at ?? 'this moment'}, and its outcome is unknown`;
}

async function finishReplay(database: Database, deadLetterId: string): Promise<void> {
  await database.execute('UPDATE dead_letter_replays SET replayed_at = now() WHERE dead_letter_id = $1', [
    deadLetterId,
  ]);
}

async function releaseReplay(database: Database, deadLetterId: string): Promise<void> {
  await database.execute('DELETE FROM dead_letter_replays WHERE dead_letter_id = $1', [deadLetterId]);
}

/** Replay times, as ISO text, of those of `deadLetterIds` that were replayed. */
export async function replaysOf(database: Database, deadLetterIds: readonly string[]): Promise<Map<string, string>> {
  const rows = await database.query<{ dead_letter_id: string; replayed_at: string }>(
    'SELECT dead_letter_id, replayed_at FROM dead_letter_replays WHERE dead_letter_id = ANY ($1::text[]) AND replayed_at IS NOT NULL',
    [deadLetterIds],
  );
  return new Map(rows.map((row) => [row.dead_letter_id, row.replayed_at]));
}

/** Number of replayed dead-letter records by topic. */
async function countReplays(database: Pick<Database, 'query'>): Promise<Map<string, number>> {
  const rows = await database.query<{ topic: string; replays: number }>(
    `SELECT split_part(dead_letter_id, '/', 1) AS topic, count(*) AS replays
     FROM dead_letter_replays WHERE replayed_at IS NOT NULL GROUP BY 1`,
  );
  return new Map(rows.map(({ topic, replays }) => [topic, replays]));
}

/** Run and acceptance time of a run event. */
interface EventOfRun {
  readonly tenantId: string;
  readonly runId: string;
  /** Time of acceptance, in microseconds since 1970. */
  readonly receivedAtMicros: number;
}

/**
 * Acceptance time of the newest event of a run, in microseconds since 1970; undefined if the run is not stored.
 * Needs no FINAL: the maximum over unmerged rows equals that over merged ones.
 */
async function lastReceivedAtMicros(
  clickhouse: ClickHouse,
  { tenantId, runId }: Pick<EventOfRun, 'tenantId' | 'runId'>,
): Promise<number | undefined> {
  const location = await locateRun(clickhouse, tenantId, runId);
  if (location === undefined) return undefined;
  const [row] = await clickhouse.query<{ events: number; micros: number }>({
    name: 'last-event-of-run',
    sql: `SELECT count() AS events, toUnixTimestamp64Micro(max(last_received_at)) AS micros FROM runs
          WHERE tenant_id = {tenant:UUID} AND session_id = {project:UUID}
            AND start_time = fromUnixTimestamp64Micro({micros:Int64}) AND trace_id = {trace:UUID} AND id = {run:UUID}`,
    params: {
      tenant: tenantId,
      project: location.projectId,
      micros: location.startTimeMicros,
      trace: location.traceId,
      run: runId,
    },
  });
  return row !== undefined && row.events > 0 ? row.micros : undefined;
}

export interface ReplayDeps {
  readonly database: Database;
  readonly clickhouse: ClickHouse;
  readonly schemaOf: (schemaId: number) => Promise<string | undefined>;
  /** Resolves when the event is in the log. */
  readonly publish: (deadLetter: DeadLetter) => Promise<void>;
}

type Replay =
  | { readonly outcome: 'replayed' }
  /** `reason` is a sentence about the dead-letter record. */
  | { readonly outcome: 'refused'; readonly reason: string };

/** @throws what the stores and the log throw. */
export async function replayDeadLetter(
  deadLetter: DeadLetter,
  deps: ReplayDeps,
  { force }: { readonly force: boolean },
): Promise<Replay> {
  const reason = force ? undefined : await reasonAgainst(deadLetter, deps);
  if (reason !== undefined) return { outcome: 'refused', reason };
  const earlier = await claimReplay(deps.database, deadLetter.id, force);
  if (earlier !== undefined) return { outcome: 'refused', reason: earlier };
  try {
    await deps.publish(deadLetter);
  } catch (error) {
    // Keep the claim if the event may still be published.
    const isUnconfirmed = isRunlakeError(error) && error.code === 'REPLAY_UNCONFIRMED';
    if (!isUnconfirmed) await releaseReplay(deps.database, deadLetter.id);
    throw error;
  }
  await finishReplay(deps.database, deadLetter.id);
  return { outcome: 'replayed' };
}

/** Steps 1 and 2. */
async function reasonAgainst(
  deadLetter: DeadLetter,
  { clickhouse, schemaOf }: ReplayDeps,
): Promise<string | undefined> {
  const record = await decodeRecord(deadLetter, schemaOf);
  if (record === undefined) return 'its bytes cannot be read by any schema, so the sink would refuse it again';
  if (deadLetter.topic !== runEvents.name) return undefined;
  const event = eventOfRun(record);
  if (event === undefined) return 'it does not name its run, so the sink would refuse it again';
  const lastMicros = await lastReceivedAtMicros(clickhouse, event);
  if (lastMicros === undefined || lastMicros <= event.receivedAtMicros) return undefined;
  const changedAt = new Date(lastMicros / 1_000).toISOString();
  return `run ${event.runId} has changed since: an event of it was accepted at ${changedAt}, after this one`;
}

/** Decodes the event of a dead-letter record for display; undefined if no schema matches. */
export async function decodeRecord(
  deadLetter: Pick<DeadLetter, 'value'>,
  schemaOf: ReplayDeps['schemaOf'],
): Promise<Record<string, unknown> | undefined> {
  const schemaId = schemaIdOf(deadLetter.value);
  const schema = schemaId === undefined ? undefined : await schemaOf(schemaId);
  return schema === undefined ? undefined : readableRecord(deadLetter.value, schema);
}

const uuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

function eventOfRun(record: Record<string, unknown>): EventOfRun | undefined {
  const { tenant_id: tenantId, id: runId, first_received_at: receivedAt } = record;
  const receivedAtMicros = typeof receivedAt === 'string' ? parseTime(receivedAt) : undefined;
  if (receivedAtMicros === undefined || !uuid.test(String(tenantId)) || !uuid.test(String(runId))) return undefined;
  return { tenantId: String(tenantId), runId: String(runId), receivedAtMicros };
}

const pollMs = 100;
const waitMs = 30_000;

/**
 * Publishes the event of a dead-letter record through a job, because only the process with the in-process log can
 * publish to it. Resolves when that process has done so.
 * @throws REPLAY_UNCONFIRMED, JOBS_UNAVAILABLE
 */
export async function replayThroughJob(
  deadLetter: DeadLetter,
  { jobs, database, limitMs = waitMs }: { readonly jobs: Jobs; readonly database: Database; readonly limitMs?: number },
): Promise<void> {
  const before = await lastReplayOf(database, deadLetter.id);
  await jobs.enqueue('replay-dead-letter', { dead_letter_id: deadLetter.id }, { jobId: deadLetter.id });
  const deadline = Date.now() + limitMs;
  while ((await lastReplayOf(database, deadLetter.id)) === before) {
    if (Date.now() >= deadline) throw runlakeError('REPLAY_UNCONFIRMED', { deadLetter: deadLetter.id, limitMs });
    await pause(pollMs);
  }
}

/** Handles the job: publishes the event of a dead-letter record. Does nothing if the record is gone. */
export async function publishStoredDeadLetter(
  { log, database }: { readonly log: EventLog; readonly database: Database },
  deadLetterId: string,
): Promise<void> {
  const deadLetter = await storedDeadLetters(database).find(deadLetterId);
  const topic = topics.find(({ name }) => name === deadLetter?.topic);
  if (deadLetter === undefined || topic === undefined) return;
  const { key, value, headers } = deadLetter;
  await log.publish(topic, [{ key, value, headers }]);
  await markReplayed(database, deadLetterId);
}

/** Number of dead-letter records of each topic that were not replayed. @throws what the log and Postgres throw. */
export async function countUnreplayed(
  {
    deadLetters,
    database,
  }: { readonly deadLetters: Pick<DeadLetters, 'count'>; readonly database: Pick<Database, 'query'> },
  topics: readonly Topic[],
): Promise<{ labels: { topic: string }; value: number }[]> {
  const replays = await countReplays(database);
  return Promise.all(
    topics.map(async (topic) => ({
      labels: { topic: topic.name },
      // The log may have deleted a record after its replay.
      value: Math.max(0, (await deadLetters.count(topic)) - (replays.get(topic.name) ?? 0)),
    })),
  );
}
