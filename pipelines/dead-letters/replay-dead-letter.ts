/**
 * Publishes the event of a dead-letter record to its topic again.
 *
 * Invariant: without `force` an event is published again at most once. It keeps its original version (`versionHeader`),
 * so it never overrides newer values. The dead-letter record itself is always kept.
 *
 *   1. Decode the record. If the event cannot be decoded, the sink would refuse it again.
 *   2. Claim the replay in Postgres; if two commands run concurrently, only one of them gets the claim.
 *   3. Publish the original bytes and headers. If the log refuses them, release the claim. If the process crashes
 *      before the log responds, the claim stays, and the record can be replayed again only with `force`; if the event
 *      is then published twice, the copies merge.
 *   4. Mark the claim as replayed.
 */
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { readSchemaId } from '../../infra/event-log/avro.ts';
import { toReadableRecord } from '../../infra/event-log/avro-schema.ts';
import type { DeadLetterRecord } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { claimReplay, finishReplay, releaseReplay } from './dead-letter-replays.ts';

export interface ReplayDeps {
  readonly database: Database;
  readonly getSchema: (schemaId: number) => Promise<string | undefined>;
  /** Resolves when the event is in the log. */
  readonly publish: (deadLetter: DeadLetterRecord) => Promise<void>;
}

type ReplayResult =
  | { readonly outcome: 'replayed' }
  /** `reason` is a sentence about the dead-letter record. */
  | { readonly outcome: 'refused'; readonly reason: string };

/** Replays a dead-letter record. @throws errors of the stores and the log. */
export async function replayDeadLetter(
  deadLetter: DeadLetterRecord,
  deps: ReplayDeps,
  { force }: { readonly force: boolean },
): Promise<ReplayResult> {
  if (!force && (await decodeRecord(deadLetter, deps.getSchema)) === undefined) {
    return { outcome: 'refused', reason: 'its bytes cannot be read by any schema, so the sink would refuse it again' };
  }
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

/** Decodes the event of a dead-letter record for display. Returns undefined if no schema matches. */
export async function decodeRecord(
  deadLetter: Pick<DeadLetterRecord, 'value'>,
  getSchema: ReplayDeps['getSchema'],
): Promise<Record<string, unknown> | undefined> {
  const schemaId = readSchemaId(deadLetter.value);
  const schema = schemaId === undefined ? undefined : await getSchema(schemaId);
  return schema === undefined ? undefined : toReadableRecord(deadLetter.value, schema);
}
