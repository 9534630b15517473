import type { Config } from '../../../infra/config/settings.ts';
import { AvroWriter } from '../../../infra/event-log/avro-writer.ts';
import type { EventLog, LogMessage } from '../../../infra/event-log/event-log.ts';
import { wirePrefix } from '../../../infra/event-log/wire-format.ts';
import { runEvents } from '../../../schemas/topics.ts';
import type { StepwiseWork } from '../in-slices.ts';
import { encodeRunEvent } from '../run-event/encode.ts';
import type { ProjectDraft } from './assign-projects.ts';
import type { Rejection } from './draft.ts';
import { runTooLarge } from './rejection.ts';

/** Workspace, user and key of the request, as stored with each run. */
export interface Sender {
  readonly workspaceId: string;
  readonly userId: string;
  readonly keyId: string;
}

export interface EncodedRun extends LogMessage {
  readonly runId: string;
}

/**
 * Encodes runs as messages for the log and rejects those larger than `maxRunBytes`. The message key is workspace and
 * trace, so that one sink reads all events of a trace, in order.
 */
export function* encodeRuns(
  sender: Sender,
  resolved: readonly ProjectDraft[],
  log: Pick<EventLog, 'schemaId'>,
  { maxRunBytes }: Pick<Config, 'maxRunBytes'>,
  rejected: Rejection[],
): StepwiseWork<EncodedRun[]> {
  const prefix = wirePrefix(log.schemaId(runEvents));
  const receivedAtMicros = Date.now() * 1_000;
  const writer = new AvroWriter(estimateBytes(resolved));
  const messages: EncodedRun[] = [];
  for (const { draft, projectId } of resolved) {
    const start = writer.position;
    writer.raw(prefix);
    encodeRunEvent(writer, {
      ...draft,
      tenantId: sender.workspaceId,
      userId: sender.userId,
      keyId: sender.keyId,
      projectId,
      receivedAtMicros,
    });
    const value = writer.since(start);
    if (value.length > maxRunBytes) {
      writer.rewind(start);
      rejected.push({ run: draft.runId, error: runTooLarge(draft.runId, maxRunBytes) });
      continue;
    }
    messages.push({ key: `${sender.workspaceId}:${draft.traceId}`, value, runId: draft.runId });
    yield;
  }
  return messages;
}

/** Estimates the encoded size, closely enough that the buffer rarely grows. */
function estimateBytes(resolved: readonly ProjectDraft[]): number {
  let bytes = 1_024;
  for (const { draft } of resolved) {
    const { inputs, outputs, events, extra, serialized, error, tags } = draft.values;
    bytes += 512 + (draft.dottedOrder?.length ?? 0);
    for (const value of [inputs, outputs, events, extra, serialized, error, tags]) bytes += value?.length ?? 0;
  }
  return bytes;
}
