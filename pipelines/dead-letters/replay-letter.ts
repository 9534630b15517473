/**
 * Puts a dead letter back at the end of its topic.
 *
 * Invariant: without `force` an event goes back at most once, and never over a newer event of its run; whatever dies in
 * between, the letter itself stays.
 *
 *   1. The letter is read and decoded. What cannot be decoded would die again at once.
 *   2. For an event of a run: is there an event of it in the store that was accepted later?
 *   3. The replay is claimed in Postgres; of two commands at the same moment one gets the claim.
 *   4. The original bytes and headers are published. The log refused them: the claim is given back. Died before the answer:
 *      the claim stays, and only `force` replays again; repeats merge.
 *   5. The claim becomes a replay.
 */
import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { readableRecord } from '../../infra/event-log/avro-json.ts';
import type { DeadLetter } from '../../infra/event-log/dead-letters.ts';
import { schemaIdOf } from '../../infra/event-log/wire-format.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { runEvents } from '../../schemas/topics.ts';
import { parseTime } from '../ingest/run-event/times.ts';
import { claimReplay, finishReplay, giveUpReplay } from './letter-replays.ts';
import { type EventOfRun, lastReceivedAtMicros } from './run-of-letter.ts';

export interface ReplayPorts {
  readonly database: Database;
  readonly warehouse: Warehouse;
  readonly schemaOf: (schemaId: number) => Promise<string | undefined>;
  /** Resolves when the log has the event. */
  readonly publish: (letter: DeadLetter) => Promise<void>;
}

export type Replay =
  | { readonly outcome: 'replayed' }
  /** `reason` is a sentence about the letter. */
  | { readonly outcome: 'refused'; readonly reason: string };

/** @throws what the stores and the log throw. */
export async function replayLetter(
  letter: DeadLetter,
  ports: ReplayPorts,
  { force }: { readonly force: boolean },
): Promise<Replay> {
  const reason = force ? undefined : await reasonAgainst(letter, ports);
  if (reason !== undefined) return { outcome: 'refused', reason };
  const earlier = await claimReplay(ports.database, letter.id, force);
  if (earlier !== undefined) return { outcome: 'refused', reason: earlier };
  try {
    await ports.publish(letter);
  } catch (error) {
    // What may still happen keeps its claim.
    const undecided = isRunlakeError(error) && error.code === 'REPLAY_UNCONFIRMED';
    if (!undecided) await giveUpReplay(ports.database, letter.id);
    throw error;
  }
  await finishReplay(ports.database, letter.id);
  return { outcome: 'replayed' };
}

/** Steps 1 and 2. */
async function reasonAgainst(letter: DeadLetter, { warehouse, schemaOf }: ReplayPorts): Promise<string | undefined> {
  const record = await readLetter(letter, schemaOf);
  if (record === undefined) return 'its bytes cannot be read by any schema that is known, so it would die again';
  if (letter.topic !== runEvents.name) return undefined;
  const event = eventOfRun(record);
  if (event === undefined) return 'it does not say which run it is of, so it would die again';
  const lastMicros = await lastReceivedAtMicros(warehouse, event);
  if (lastMicros === undefined || lastMicros <= event.receivedAtMicros) return undefined;
  const changedAt = new Date(lastMicros / 1_000).toISOString();
  return `run ${event.runId} has changed since: an event of it was accepted at ${changedAt}, after this one`;
}

/** The record of a letter, for people; undefined where no schema reads it. */
export async function readLetter(
  letter: Pick<DeadLetter, 'value'>,
  schemaOf: ReplayPorts['schemaOf'],
): Promise<Record<string, unknown> | undefined> {
  const schemaId = schemaIdOf(letter.value);
  const schema = schemaId === undefined ? undefined : await schemaOf(schemaId);
  return schema === undefined ? undefined : readableRecord(letter.value, schema);
}

const uuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

function eventOfRun(record: Record<string, unknown>): EventOfRun | undefined {
  const { tenant_id: tenantId, id: runId, first_received_at: receivedAt } = record;
  const receivedAtMicros = typeof receivedAt === 'string' ? parseTime(receivedAt) : undefined;
  if (receivedAtMicros === undefined || !uuid.test(String(tenantId)) || !uuid.test(String(runId))) return undefined;
  return { tenantId: String(tenantId), runId: String(runId), receivedAtMicros };
}
