import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { AvroWriter, buildWirePrefix } from '../../infra/event-log/avro.ts';
import type { EventLog, LogMessage } from '../../infra/event-log/event-log.ts';
import { feedbackEvents } from '../../schemas/topics.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';

/** JSON text in the form that the client sent: validated, but never changed. */
type JsonBytes = Buffer;

/**
 * The content of an evaluation, which is the part of a feedback entry that can be changed later. Each value is JSON
 * text as sent by the client.
 */
export interface FeedbackValues {
  /** A JSON number or boolean. */
  readonly score?: JsonBytes | undefined;
  readonly value?: JsonBytes | undefined;
  /** A JSON string, including its quotes. */
  readonly comment?: JsonBytes | undefined;
  readonly correction?: JsonBytes | undefined;
}

/**
 * A complete feedback entry, identified by workspace and id. If several events have the same identity, also on several
 * runs, the last received event wins.
 */
export interface FeedbackEvent extends FeedbackValues {
  readonly tenantId: string;
  /** Id of the run; the nil UUID for feedback on a project. */
  readonly runId: string;
  readonly id: string;
  readonly receivedAtMicros: number;
  readonly traceId?: string | undefined;
  readonly projectId?: string | undefined;
  /** Start time of the run, if the sender stated it. */
  readonly startTimeMicros?: number | undefined;
  /** Name of the metric, tag or aspect. */
  readonly key: string;
  /** The `type` in `source`; empty in a deletion. */
  readonly sourceType: string;
  readonly source?: JsonBytes | undefined;
  readonly groupId?: string | undefined;
  readonly comparativeExperimentId?: string | undefined;
  readonly extra?: JsonBytes | undefined;
  /** Whether the evaluator itself failed. */
  readonly error?: boolean | undefined;
  readonly userId: string;
  readonly createdAtMicros: number;
  readonly modifiedAtMicros: number;
  readonly deletedAtMicros?: number | undefined;
  /** Whether the feedback makes the trace of the run longlived. Undefined has the same meaning as true. */
  readonly keepsTrace?: boolean | undefined;
}

/**
 * Appends `event` as one Avro record of `schemas/avro/feedback-event.avsc`. The fields must be written in the order of
 * the schema; a test decodes the result with the schema.
 */
export function encodeFeedback(writer: AvroWriter, event: FeedbackEvent): void {
  writer.ascii(event.tenantId);
  writer.ascii(event.runId);
  writer.ascii(event.id);
  writer.long(event.receivedAtMicros);
  writer.optionalString(event.traceId);
  writer.optionalString(event.projectId);
  writer.optionalLong(event.startTimeMicros);
  writer.string(event.key);
  writer.optionalBytes(event.score);
  writer.optionalBytes(event.value);
  writer.optionalBytes(event.comment);
  writer.optionalBytes(event.correction);
  writer.string(event.sourceType);
  writer.optionalBytes(event.source);
  writer.optionalString(event.groupId);
  writer.optionalString(event.comparativeExperimentId);
  writer.optionalBytes(event.extra);
  writer.optionalBoolean(event.error);
  writer.ascii(event.userId);
  writer.long(event.createdAtMicros);
  writer.long(event.modifiedAtMicros);
  writer.optionalLong(event.deletedAtMicros);
  writer.optionalBoolean(event.keepsTrace);
}

/**
 * Encodes a feedback entry as a log message. The message is keyed by workspace and run (or project), so that one sink
 * stores all events of the feedback entry for this run.
 *
 * @throws RUN_TOO_LARGE
 */
export function toFeedbackMessage(
  event: FeedbackEvent,
  log: Pick<EventLog, 'schemaId'>,
  { maxRunBytes }: Pick<Config, 'maxRunBytes'>,
): LogMessage {
  const writer = new AvroWriter(1_024);
  writer.raw(buildWirePrefix(log.schemaId(feedbackEvents)));
  encodeFeedback(writer, event);
  const value = writer.since(0);
  const about = event.runId === nilUuid ? (event.projectId ?? nilUuid) : event.runId;
  if (value.length > maxRunBytes) {
    const run = `${about} with feedback ${event.id}`;
    throw runlakeError('RUN_TOO_LARGE', { run, limitBytes: maxRunBytes, limit: 'RUNLAKE_MAX_RUN_BYTES' });
  }
  return { key: `${event.tenantId}:${about}`, value };
}

const movedHeader = 'runlake-moved';

/** Headers for the message of a feedback entry that its sender found stored for another run. */
export const movedFeedbackHeaders: Readonly<Record<string, string>> = { [movedHeader]: 'true' };

/** Returns whether a message has {@link movedFeedbackHeaders}. */
export const isMovedFeedback = (headers: Readonly<Record<string, string>>): boolean =>
  headers[movedHeader] !== undefined;

/**
 * Returns the version of the event that follows `last`, in microseconds since 1970. It is the current time, but always
 * later than `last`, even if the clock of the process that wrote `last` is ahead.
 */
export function getVersionAfter(last: FeedbackEvent | undefined): number {
  return Math.max(Date.now() * 1_000, (last?.receivedAtMicros ?? 0) + 1);
}
