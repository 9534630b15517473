import { randomUUID } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import { findAccepted, requireStored } from '../../infra/event-log/find-accepted.ts';
import { feedbackEvents } from '../../schemas/topics.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { isRepeatOfStoredEvent } from '../ingest/sink/event-versions.ts';
import { isRunDeleted } from '../retention/trace-marks.ts';
import { readLiveProjectIds } from '../runs/locate-run.ts';
import { recordAuditLog } from '../tenants/audit-logs.ts';
import { changeInTurn, waitForTurn, withLease } from './change-turn.ts';
import { readEnforcedConfigs, requireMatch } from './feedback-config.ts';
import { type FeedbackEvent, getVersionAfter, movedFeedbackHeaders, toFeedbackMessage } from './feedback-event.ts';
import { createFeedbackReader, parseFeedbackMembers, readChangedValues, wholeBody } from './feedback-values.ts';
import { type FormatDeps, formatFeedback } from './format-feedback.ts';
import { findLastEvent } from './list-feedback.ts';
import { openPreparation } from './prepare-feedback.ts';
import { type FeedbackSender, readFeedback } from './read-feedback.ts';
import { readSentConfig, type SentConfigs } from './sent-config.ts';

/** Dependencies of operations that change feedback. */
export interface FeedbackDeps extends FormatDeps {
  readonly recent: RecentFeedback;
  readonly sentConfigs: Pick<SentConfigs, 'keep' | 'findKnown'>;
  readonly log: Pick<EventLog, 'publish' | 'schemaId' | 'position' | 'isStored' | 'isExclusive'>;
  readonly config: Pick<Config, 'maxRunBytes' | 'maxJsonDepth' | 'patchWaitMs'>;
}

/**
 * Time for which recently sent feedback is remembered. It is longer than the usual delay between the log and
 * ClickHouse.
 */
const retentionMs = 120_000;
const maxRecentBytes = 32 * 1024 * 1024;

/**
 * Feedback events that this process has sent recently, and that may not be stored yet. The next change of the feedback is
 * based on them, unless other processes also accept changes.
 */
export class RecentFeedback {
  readonly #events = new LRUCache<string, FeedbackEvent>({
    ttl: retentionMs,
    maxSize: maxRecentBytes,
    sizeCalculation: estimateBytes,
  });

  /** Remembers an event. Call this method after the log has accepted the event. */
  remember(event: FeedbackEvent): void {
    this.#events.set(buildCacheKey(event.tenantId, event.id), event);
  }

  get(tenantId: string, id: string): FeedbackEvent | undefined {
    return this.#events.get(buildCacheKey(tenantId, id));
  }
}

interface LastEventDeps {
  readonly clickhouse: ClickHouse;
  readonly recent: RecentFeedback;
}

/**
 * Returns the last event of a feedback entry, which is either stored or was recently sent by this process; it may be a
 * deletion.
 */
async function readLastEvent(
  { clickhouse, recent }: LastEventDeps,
  tenantId: string,
  id: string,
): Promise<FeedbackEvent | undefined> {
  const own = recent.get(tenantId, id);
  const stored = await findLastEvent(clickhouse, tenantId, id);
  return own && (stored === undefined || own.receivedAtMicros > stored.receivedAtMicros) ? own : stored;
}

/**
 * Like {@link readLastEvent}, but includes the events that other processes have sent and that are not stored yet.
 *
 * @throws NOT_STORED_YET if accepted events are not stored in time; errors of the stores and the log.
 */
async function findLastAccepted(deps: FeedbackDeps, tenantId: string, id: string): Promise<FeedbackEvent | undefined> {
  const { log, clickhouse, config } = deps;
  const wait = { log, topic: feedbackEvents, storeWaitMs: config.patchWaitMs };
  // Without other processes, `clickhouse` waits itself for the events that were published before.
  if (log.isExclusive) return findAccepted({ ...wait, waitMs: 0 }, () => readLastEvent(deps, tenantId, id));
  await requireStored(wait);
  // The order of the log decides, and not the clocks, by which `recent` chooses.
  return findLastEvent(clickhouse, tenantId, id);
}

const buildCacheKey = (tenantId: string, id: string) => `${tenantId}:${id}`;

function estimateBytes(event: FeedbackEvent): number {
  const { score, value, comment, correction, source, extra } = event;
  return [score, value, comment, correction, source, extra].reduce((sum, bytes) => sum + (bytes?.length ?? 0), 1_000);
}

/** Publishes an event. Resolves when it is durable. */
async function publish(
  deps: FeedbackDeps,
  event: FeedbackEvent,
  message = toFeedbackMessage(event, deps.log, deps.config),
) {
  await deps.log.publish(feedbackEvents, [message]);
  deps.recent.remember(event);
}

/**
 * Deletes a feedback entry and its content.
 *
 * @throws NOT_FOUND if the workspace has no feedback with this id; NOT_STORED_YET and OVERLOADED while accepted changes
 *   are not stored; errors of the log and the stores.
 */
export async function deleteFeedback(deps: FeedbackDeps, tenantId: string, id: string): Promise<void> {
  await changeInTurn(deps, { tenantId, id }, async (requireTurn) => {
    const last = await findLastAccepted(deps, tenantId, id);
    if (last === undefined || last.deletedAtMicros !== undefined)
      throw runlakeError('NOT_FOUND', { what: `Feedback ${id}` });
    // Without its turn, the entry is not deleted, and must not be logged as deleted.
    requireTurn('other');
    await recordAuditLog(deps.database, {
      ...{ workspaceId: tenantId, action: 'feedback.delete', target: { kind: 'feedback', id } },
      details: { key: last.key, run_id: last.runId },
    });
    requireTurn('publish');
    await publish(deps, buildDeletion(last));
  });
}

/**
 * Checks that the trace of a run is not deleted.
 *
 * @throws NOT_FOUND if it is deleted; its content has then been removed from storage, or will be soon.
 */
async function requireUndeleted(
  clickhouse: ClickHouse,
  feedback: Pick<FeedbackEvent, 'tenantId' | 'runId' | 'traceId'>,
): Promise<void> {
  if (feedback.runId !== nilUuid && (await isRunDeleted(clickhouse, feedback)))
    throw runlakeError('NOT_FOUND', { what: `Run ${feedback.runId}` });
}

/** Builds the event that deletes the feedback entry of `last`. The event contains only ids, user and creation time. */
function buildDeletion(last: FeedbackEvent): FeedbackEvent {
  const { tenantId, runId, id, projectId, userId, createdAtMicros } = last;
  const receivedAtMicros = getVersionAfter(last);
  return {
    tenantId,
    runId,
    id,
    projectId,
    userId,
    createdAtMicros,
    key: '',
    sourceType: '',
    receivedAtMicros,
    modifiedAtMicros: receivedAtMicros,
    deletedAtMicros: receivedAtMicros,
  };
}

/**
 * Creates a feedback entry and returns it as JSON when it is durable. The run need not be stored yet. If a feedback
 * entry with the same id exists, it is replaced, even if it refers to another run. A request that is repeated within
 * minutes changes nothing and returns the feedback entry as it is now.
 *
 * @throws INVALID_FEEDBACK, INVALID_JSON, INVALID_UTF8, TOO_DEEP, RUN_TOO_LARGE;
 *   PROJECT_UNKNOWN for feedback on a missing project; NOT_FOUND for feedback on a deleted trace; OVERLOADED if the entry
 *   has too many changes; errors of the log and the stores.
 */
export async function createFeedback(sender: FeedbackSender, body: Buffer, deps: FeedbackDeps): Promise<Buffer> {
  const sent = readFeedback(sender, { bytes: body, part: wholeBody }, deps.config, randomUUID);
  const { tenantId, id, projectId } = sent;
  if (sent.runId === nilUuid && projectId !== undefined) {
    const live = await readLiveProjectIds(deps.database, tenantId, [projectId]);
    if (live.length === 0) throw runlakeError('PROJECT_UNKNOWN', { project: projectId });
  }
  await requireUndeleted(deps.clickhouse, sent);
  const prepare = await openPreparation(deps, tenantId, [sent]);
  const read = await prepare(sent);
  const { runId } = read;
  return waitForTurn({ tenantId, id }, async () => {
    const last = await readLastEvent(deps, tenantId, id);
    const event: FeedbackEvent = { ...read, receivedAtMicros: getVersionAfter(last) };
    const answer = async (answered: FeedbackEvent) => {
      const [json] = await formatFeedback(deps, tenantId, [answered], { withUserNames: false });
      return json as Buffer;
    };
    if (last === undefined) {
      await publish(deps, event);
      return answer(event);
    }
    const isDeleted = last.deletedAtMicros !== undefined;
    const toMessage = (each: FeedbackEvent) => toFeedbackMessage(each, deps.log, deps.config);
    // If the sender states no times, the newest request has stored the time of its receipt. Earlier ones are not looked
    // for, because a user may restore an earlier value, or deleted feedback.
    const orCreation = (micros: number) =>
      micros === read.receivedAtMicros && !isDeleted ? last.createdAtMicros : micros;
    const createdAtMicros = orCreation(event.createdAtMicros);
    const repeat = { ...event, createdAtMicros, modifiedAtMicros: orCreation(event.modifiedAtMicros) };
    // The next change must not be based on a repeat, which the sink stores without effect.
    if (await isRepeatOfStoredEvent(feedbackEvents, toMessage(repeat), deps.clickhouse))
      return answer(isDeleted ? event : last);
    const headers = !isDeleted && last.runId !== runId ? movedFeedbackHeaders : {};
    await withLease(deps, { tenantId, id }, async (requireTurn) => {
      requireTurn('publish');
      await publish(deps, event, { ...toMessage(event), headers });
    });
    return answer(event);
  });
}

/**
 * Changes the score, value, comment or correction of a feedback entry. Only values that the body contains are changed;
 * null removes a value. Returns the complete feedback entry as JSON when it is durable.
 *
 * @throws NOT_FOUND if the workspace has no feedback with this id; INVALID_FEEDBACK, INVALID_JSON, INVALID_UTF8,
 *   TOO_DEEP, RUN_TOO_LARGE; NOT_STORED_YET and OVERLOADED while accepted changes are not stored; errors of the log and
 *   the stores.
 */
export async function updateFeedback(
  deps: FeedbackDeps,
  { tenantId, id }: { readonly tenantId: string; readonly id: string },
  body: Buffer,
): Promise<Buffer> {
  const members = parseFeedbackMembers(body, { part: wholeBody, maxDepth: deps.config.maxJsonDepth });
  const reader = createFeedbackReader(id, members);
  const changes = readChangedValues(reader, members);
  const config = readSentConfig(reader);
  return changeInTurn(deps, { tenantId, id }, async (requireTurn) => {
    const last = await findLastAccepted(deps, tenantId, id);
    if (last === undefined || last.deletedAtMicros !== undefined)
      throw runlakeError('NOT_FOUND', { what: `Feedback ${id}` });
    await requireUndeleted(deps.clickhouse, last);
    const receivedAtMicros = getVersionAfter(last);
    const event = { ...last, ...changes, receivedAtMicros, modifiedAtMicros: receivedAtMicros };
    requireMatch((await readEnforcedConfigs(deps.database, tenantId, [event.key])).get(event.key), event);
    if (config) await deps.sentConfigs.keep(tenantId, event.key, config);
    requireTurn('publish');
    await publish(deps, event);
    const [json] = await formatFeedback(deps, tenantId, [event], { withUserNames: false });
    return json as Buffer;
  });
}
