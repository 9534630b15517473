import type { Readable } from 'node:stream';
import type { FastifyBaseLogger, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { Config } from '../../../infra/config/settings.ts';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import {
  type RunReadStart,
  type StreamedEvent,
  type ThreadReadStart,
  toThreadStart,
} from '../../../pipelines/agents/streams/stream-types.ts';
import { type BodyPart, createLiveBody, type LiveBodyOptions } from '../../server/live-body.ts';

/** A server-sent event. Source: HTML standard, "Server-sent events". */
export interface SseFrame {
  readonly event?: string;
  /** UTF-8 text. Each line of the text becomes a `data` line. */
  readonly data: Uint8Array;
  /** Event id. Must not contain line breaks. */
  readonly id?: string;
}

interface SseOptions<Item>
  extends Pick<LiveBodyOptions<Item>, 'source' | 'heartbeatMs' | 'stopping' | 'accessEnded' | 'onClientDisconnect'> {
  /** Returns the frames to send for an item. Undefined or an empty list skips the item. */
  frame(item: Item): SseFrame | readonly SseFrame[] | undefined;
  /** Whether the client reconnects by itself when the connection breaks, and then continues without a gap. */
  readonly clientReconnects: boolean;
  readonly logger: Pick<FastifyBaseLogger, 'warn'>;
  /**
   * Returns the last event to send if the source fails. Default: an `error` event with the error code and the message.
   */
  failure?(error: unknown): SseFrame;
}

/**
 * A comment that is not followed by an empty line, because some clients treat an empty line after an id as an event.
 */
const heartbeatComment = ': heartbeat\n';
const lineFeedByte = 10;

/**
 * Builds a body of server-sent events from the frames of each item of `source`. Sends a comment at the start and then
 * every `heartbeatMs`. If the source fails, {@link SseOptions.failure} provides the last event.
 */
export function createEventStream<Item>(sseOptions: SseOptions<Item>): Readable {
  const { source, frame, clientReconnects, logger, failure = buildErrorFrame, ...options } = sseOptions;
  return createLiveBody({
    ...options,
    source,
    heartbeat: heartbeatComment,
    encode: (item) => {
      const frameOrFrames = frame(item);
      if (frameOrFrames === undefined) return [];
      return 'data' in frameOrFrames ? toFrameParts(frameOrFrames) : frameOrFrames.flatMap(toFrameParts);
    },
    encodeSourceError: (err) => {
      logger.warn({ err }, 'stream failed');
      return encodeFrame(failure(err));
    },
    encodeServerStop: clientReconnects ? undefined : () => encodeFrame(failure(runlakeError('DRAINING'))),
  });
}

export const eventStreamType = 'text/event-stream';

/** Response headers of an event stream. They prevent proxies from buffering the stream. */
export const eventStreamHeaders = {
  'content-type': eventStreamType,
  'cache-control': 'no-cache',
  'x-accel-buffering': 'no',
} as const;

function toFrameParts({ event, data, id }: SseFrame): BodyPart[] {
  const parts: BodyPart[] = [encodeHead(event)];
  let start = 0;
  for (let end = data.indexOf(lineFeedByte); end >= 0; end = data.indexOf(lineFeedByte, start)) {
    parts.push(data.subarray(start, end), '\ndata: ');
    start = end + 1;
  }
  parts.push(start === 0 ? data : data.subarray(start), id === undefined ? '\n\n' : `\nid: ${id}\n\n`);
  return parts;
}

function encodeFrame(frame: SseFrame): Buffer {
  return Buffer.concat(toFrameParts(frame).map((part) => Buffer.from(part)));
}

function encodeHead(event: string | undefined): string {
  return event === undefined ? 'data: ' : `event: ${event.replace(/[\r\n]/g, ' ')}\ndata: `;
}

/** Converts an error to the form that is sent in a streamed body, because the status has already been sent. */
export function toStreamError(error: unknown): { readonly error: string; readonly message: string } {
  const { code, message } = isRunlakeError(error) ? error : runlakeError('INTERNAL');
  return { error: code, message };
}

function buildErrorFrame(error: unknown): SseFrame {
  return { event: 'error', data: Buffer.from(JSON.stringify(toStreamError(error))) };
}

/**
 * Query parameter that replaces the header `Last-Event-ID` for clients that cannot send the header. The header takes
 * precedence.
 */
export const LastEventId = Type.Optional(
  Type.String({ description: 'Like the header Last-Event-ID: the last received event, `-1` for none.' }),
);
type LastEventQuery = { readonly last_event_id?: string };

/** Returns the id of a run event. Readers must treat the id as opaque. */
export function formatEventId({ attempt, seq }: Pick<StreamedEvent, 'attempt' | 'seq'>): string {
  return `${attempt}-${seq}`;
}

/**
 * Returns the position at which a reader of a run starts: after the event with the given id, at the beginning for the
 * ids `-` and `-1`, or at the next event if there is no id.
 *
 * @throws INVALID_REQUEST
 */
export function readRunStartPosition(request: FastifyRequest, query: LastEventQuery): RunReadStart {
  const id = readLastEventId(request) ?? query.last_event_id;
  if (id === undefined) return 'now';
  if (isBeginning(id)) return 'start';
  const [, attempt, seq] = /^(\d{1,9})-(\d{1,15})$/.exec(id) ?? [];
  if (attempt === undefined) throw createUnknownIdError('must be the id of an event of this run');
  return { attempt: Number(attempt), seq: Number(seq) };
}

/**
 * Returns the id of a thread event: the sequence number, and the starts before it whose end a client that reconnects has
 * not received.
 */
export function formatThreadEventId(threadSeq: number, openStarts: Iterable<number>): string {
  const earlier = [...openStarts].filter((start) => start < toThreadStart(threadSeq));
  return [threadSeq, ...earlier].join('-');
}

/**
 * Returns the position at which a reader of a thread starts, like {@link readRunStartPosition} for a run.
 *
 * @throws INVALID_REQUEST
 */
export function readThreadStartPosition(request: FastifyRequest, query: LastEventQuery): ThreadReadStart {
  const id = readLastEventId(request) ?? query.last_event_id;
  if (id === undefined) return 'now';
  if (isBeginning(id)) return 'start';
  const [threadSeq, ...openStarts] = /^\d{1,16}(?:-\d{1,10}){0,16}$/.test(id) ? id.split('-').map(Number) : [];
  // The id of a run event, such as `1-5`, has a start that does not come before its number.
  const isValid = Number.isSafeInteger(threadSeq) && openStarts.every((start) => start < toThreadStart(threadSeq!));
  if (!isValid) throw createUnknownIdError('must be the id of an event of this thread');
  return { threadSeq: threadSeq!, ...(openStarts.length > 0 && { openStarts }) };
}

function readLastEventId({ headers }: FastifyRequest): string | undefined {
  const id = headers['last-event-id'];
  return (Array.isArray(id) ? id[0] : id)?.trim() || undefined;
}

function isBeginning(id: string): boolean {
  return id === '-' || id === '-1';
}

function createUnknownIdError(msg: string) {
  const fields = [{ loc: ['header', 'last-event-id'], msg: `${msg}, \`-\` or \`-1\``, type: 'event_id' }];
  return runlakeError('INVALID_REQUEST', {}, { fields });
}

/** Refuses clients that do not accept event streams. Source: RFC 9110 12.5.1. @throws EVENT_STREAM_NOT_ACCEPTED */
export function requireEventStream({ headers: { accept } }: FastifyRequest): void {
  if (accept === undefined || acceptsEventStream(accept)) return;
  throw runlakeError('EVENT_STREAM_NOT_ACCEPTED', { accept: accept.slice(0, 200) });
}

export function acceptsEventStream(accept: string): boolean {
  return accept.split(',').some(isEventStreamRange);
}

function isEventStreamRange(range: string): boolean {
  const [type = '', ...parameters] = range.split(';').map((part) => part.trim().toLowerCase());
  return (
    ['', '*/*', 'text/*', eventStreamType].includes(type) && !parameters.some((part) => /^q=0(?:\.0*)?$/.test(part))
  );
}

/** Returns the body options that every streaming response takes from its request. */
export function buildLiveOptions({
  services,
  request,
}: {
  readonly services: { readonly agents: { readonly config: Config } };
  readonly request: FastifyRequest;
}) {
  return {
    heartbeatMs: services.agents.config.agentsHeartbeatMs,
    stopping: request.server.drainStarted,
    accessEnded: request.access?.ended,
    logger: request.log,
  };
}
