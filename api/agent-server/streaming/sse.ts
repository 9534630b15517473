import type { Readable } from 'node:stream';
import type { FastifyBaseLogger } from 'fastify';
import { fault, isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { type BodyPart, type LiveSource, liveBody } from './live-body.ts';

/** Server-sent events. Source: HTML standard, "Server-sent events". */
export interface SseFrame {
  readonly event?: string;
  /** Text in UTF-8; each of its lines becomes one of the frame. */
  readonly data: Uint8Array;
  /** Without line ends. */
  readonly id?: string;
}

export interface SseOptions<Item> {
  readonly source: LiveSource<Item>;
  /** None leaves the item out. */
  frame(item: Item): SseFrame | readonly SseFrame[] | undefined;
  readonly heartbeatMs: number;
  /** Of the server. */
  readonly stopping: AbortSignal;
  /** Of the caller; see `OpenAccess.ended`. */
  readonly accessEnded: AbortSignal | undefined;
  /** Whether the client comes back by itself when the connection breaks, without having missed anything. */
  readonly comesBack: boolean;
  readonly logger: Pick<FastifyBaseLogger, 'warn'>;
  /** The last event where the source failed. Default: `error` with {error: the code of the catalogue, message}. */
  failure?(error: unknown): SseFrame;
  /** Called once if the client went before the end. */
  left?(): void;
}

/** No empty line follows: clients that have seen an id take one for an event. */
const heartbeat = ': heartbeat\n';
const lineFeed = 10;

/**
 * A body of server-sent events: one for each item of `source`, a comment at once and each `heartbeatMs`. Where the source fails, the
 * last event is {@link SseOptions.failure}.
 */
export function eventStream<Item>(asked: SseOptions<Item>): Readable {
  const { source, frame, comesBack, logger, failure = errorFrame, ...options } = asked;
  return liveBody({
    ...options,
    source,
    heartbeat,
    encode: (item) => {
      const framed = frame(item);
      if (framed === undefined) return [];
      return 'data' in framed ? frameParts(framed) : framed.flatMap(frameParts);
    },
    failed: (err) => {
      logger.warn({ err }, 'a stream broke off');
      return bytesOf(failure(err));
    },
    stopped: comesBack ? undefined : () => bytesOf(failure(fault('DRAINING'))),
  });
}

/** The headers of its answer; no proxy between may hold it back. */
export const eventStreamHeaders = { 'cache-control': 'no-cache', 'x-accel-buffering': 'no' } as const;

function frameParts({ event, data, id }: SseFrame): BodyPart[] {
  const parts: BodyPart[] = [headOf(event)];
  let start = 0;
  for (let end = data.indexOf(lineFeed); end >= 0; end = data.indexOf(lineFeed, start)) {
    parts.push(data.subarray(start, end), '\ndata: ');
    start = end + 1;
  }
  parts.push(start === 0 ? data : data.subarray(start), id === undefined ? '\n\n' : `\nid: ${id}\n\n`);
  return parts;
}

function bytesOf(frame: SseFrame): Buffer {
  return Buffer.concat(frameParts(frame).map((part) => Buffer.from(part)));
}

function headOf(event: string | undefined): string {
  return event === undefined ? 'data: ' : `event: ${event.replace(/[\r\n]/g, ' ')}\ndata: `;
}

/** What a client that reads a body is told of a failure, since the status has gone out. */
export function errorOfStream(error: unknown): { readonly error: string; readonly message: string } {
  const { code, message } = isRunlakeError(error) ? error : fault('INTERNAL');
  return { error: code, message };
}

function errorFrame(error: unknown): SseFrame {
  return { event: 'error', data: Buffer.from(JSON.stringify(errorOfStream(error))) };
}
