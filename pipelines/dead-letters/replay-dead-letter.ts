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
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { schemaIdOf } from '../../infra/event-log/avro.ts';
import { readableRecord } from '../../infra/event-log/avro-schema.ts';
import type { DeadLetterRecord } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { runEvents } from '../../schemas/topics.ts';
import { parseTime } from '../ingest/run-event/times.ts';
import { locateRun } from '../runs/locate-run.ts';
import { claimReplay, finishReplay, releaseReplay } from './dead-letter-replays.ts';

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
  readonly publish: (deadLetter: DeadLetterRecord) => Promise<void>;
}

type Replay =
  | { readonly outcome: 'replayed' }
  /** `reason` is a sentence about the dead-letter record. */
  | { readonly outcome: 'refused'; readonly reason: string };

/** @throws what the stores and the log throw. */
export async function replayDeadLetter(
  deadLetter: DeadLetterRecord,
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
  deadLetter: DeadLetterRecord,
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
  deadLetter: Pick<DeadLetterRecord, 'value'>,
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
