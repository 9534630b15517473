import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { RunReadFrom, StreamedEvent, ThreadReadFrom } from '../../../pipelines/agents/streams/stream-types.ts';

/** For clients that cannot send the header `Last-Event-ID`, which takes precedence. */
export const LastEventId = Type.Optional(
  Type.String({ description: 'Like the header Last-Event-ID: the last received event, `-1` for none.' }),
);
type LastEventQuery = { readonly last_event_id?: string };

/** Returns the id of an event of a run. Readers treat it as opaque. */
export function eventId({ attempt, seq }: Pick<StreamedEvent, 'attempt' | 'seq'>): string {
  return `${attempt}-${seq}`;
}

/**
 * Returns where a reader of a run starts: after the given event, at the beginning for `-` or `-1`, and with the next
 * event if there is no id. @throws INVALID_REQUEST
 */
export function readRunFrom(request: FastifyRequest, query: LastEventQuery): RunReadFrom {
  const id = lastEventId(request) ?? query.last_event_id;
  if (id === undefined) return 'now';
  if (isBeginning(id)) return 'start';
  const [, attempt, seq] = /^(\d{1,9})-(\d{1,15})$/.exec(id) ?? [];
  if (attempt === undefined) throw unknownId('must be the id of an event of this run');
  return { attempt: Number(attempt), seq: Number(seq) };
}

/** Like {@link readRunFrom}, for readers of a thread. @throws INVALID_REQUEST */
export function readThreadFrom(request: FastifyRequest, query: LastEventQuery): ThreadReadFrom {
  const id = lastEventId(request) ?? query.last_event_id;
  if (id === undefined) return 'now';
  if (isBeginning(id)) return 'start';
  const threadSeq = /^\d{1,16}$/.test(id) ? Number(id) : Number.NaN;
  if (!Number.isSafeInteger(threadSeq)) throw unknownId('must be the id of an event of this thread');
  return { threadSeq };
}

function lastEventId({ headers }: FastifyRequest): string | undefined {
  const id = headers['last-event-id'];
  return (Array.isArray(id) ? id[0] : id)?.trim() || undefined;
}

function isBeginning(id: string): boolean {
  return id === '-' || id === '-1';
}

function unknownId(msg: string) {
  const fields = [{ loc: ['header', 'last-event-id'], msg: `${msg}, \`-\` or \`-1\``, type: 'event_id' }];
  return runlakeError('INVALID_REQUEST', {}, { fields });
}
