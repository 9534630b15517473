import type { Readable } from 'node:stream';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { type BodyShare, endedBodies } from './body-budget.ts';
import { createDecoder, type Decoder, encodingsOf } from './decoders.ts';

export interface CollectOptions {
  /** The header Content-Encoding. */
  readonly contentEncoding: string | undefined;
  /** Bounds the bytes on the wire, and those after each decoder. */
  readonly maxBytes: number;
  /** Name of the setting behind `maxBytes`, for the fault. */
  readonly limitName: string;
  /** Longest time until the body is there, decompressed. */
  readonly timeoutMs: number;
  /** Name of the setting behind `timeoutMs`, for the fault. */
  readonly timeoutName: string;
  /** Its bytes are taken from the budget before they are kept. */
  readonly share?: BodyShare;
  /** Aborted when the body is not wanted any more; the collecting ends with its reason. */
  readonly signal?: AbortSignal;
  /** Default: {@link minProgress}. */
  readonly progress?: Progress;
}

export interface Progress {
  /** Minimum number of bytes that have to arrive in each window. */
  readonly bytes: number;
  readonly windowMs: number;
}

/** A kilobyte a second, over a window that lets a connection recover from a loss. */
export const minProgress: Progress = { bytes: 10 * 1024, windowMs: 10_000 };

/**
 * Reads a request's body whole, decompressed.
 *
 *   1. The bytes on the wire are kept as they arrive. A client that holds back the end of its body holds no more than it has sent. One
 *      that is slower than `progress` is ended with BODY_TOO_SLOW.
 *   2. When all are there they are decompressed, chunk by chunk, each given back when it has been decoded. From here on no client
 *      decides how long it takes. The limit holds while bytes flow: a body that swells is stopped there, with no more memory taken
 *      than the limit.
 *
 * After a fault what still arrives is read and dropped, so that the sender gets the answer; whoever answers closes the connection.
 *
 * The promise settles once; from then on no listener but one that swallows errors is left on `stream`, and no decoder works.
 *
 * @throws UNSUPPORTED_ENCODING, BODY_TOO_LARGE, BODY_TOO_SLOW, INVALID_COMPRESSION (also for a stream that ends early),
 *   REQUEST_TIMEOUT; what `share` throws; the reason of `signal`; BAD_REQUEST where the client went away.
 */
export async function collectBody(stream: Readable, options: CollectOptions): Promise<Buffer> {
  const { timeoutMs, timeoutName, signal } = options;
  let timer: NodeJS.Timeout | undefined;
  let onAbort = () => {};
  const release: (() => void)[] = [];
  try {
    const decoders = encodingsOf(options.contentEncoding).map(createDecoder);
    release.push(() => {
      for (const decoder of decoders) decoder.destroy();
    });
    const ended = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(fault('REQUEST_TIMEOUT', { limitMs: timeoutMs, limit: timeoutName })), timeoutMs);
      onAbort = () => reject(signal?.reason);
      signal?.addEventListener('abort', onAbort);
      if (signal?.aborted) onAbort();
    });
    const collected = readWire(stream, options, release).then((wire) => {
      if (options.share) options.share.isArriving = false;
      return decoders.length === 0 ? joined(wire) : decode(wire, decoders, options);
    });
    return await Promise.race([collected, ended]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', onAbort);
    for (const each of release) each();
    stream.on('error', () => {});
    stream.resume();
  }
}

/** Step 1. */
async function readWire(
  stream: Readable,
  { maxBytes, limitName, share, progress = minProgress }: CollectOptions,
  release: (() => void)[],
): Promise<Buffer[]> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    let bytesBefore = 0;
    const watch = setInterval(() => {
      if (bytes - bytesBefore < progress.bytes) {
        endedBodies.inc({ cause: 'slow' });
        reject(fault('BODY_TOO_SLOW', { bytes: progress.bytes, seconds: progress.windowMs / 1_000 }));
      }
      bytesBefore = bytes;
    }, progress.windowMs);
    const onData = (chunk: Buffer) => {
      bytes += chunk.length;
      try {
        if (bytes > maxBytes) throw fault('BODY_TOO_LARGE', { limitBytes: maxBytes, limit: limitName });
        share?.take(chunk.length);
        chunks.push(chunk);
      } catch (error) {
        stream.pause();
        reject(error);
      }
    };
    const onEnd = () => resolve(chunks);
    const cutOff = () => reject(fault('BAD_REQUEST', { reason: 'The body ended before it was complete.' }));
    const onClose = () => {
      if (!stream.readableEnded) cutOff();
    };
    release.push(() => {
      clearInterval(watch);
      stream.off('data', onData).off('end', onEnd).off('error', cutOff).off('close', onClose);
      chunks.length = 0;
    });
    stream.on('data', onData).on('end', onEnd).on('error', cutOff).on('close', onClose);
    if (stream.destroyed || stream.readableEnded) cutOff();
  });
}

/** Step 2. */
async function decode(
  wire: Buffer[],
  decoders: readonly Decoder[],
  { maxBytes, limitName, share }: CollectOptions,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];

    /** What takes the bytes that come out of the decoder before `step`; the last step keeps them. */
    const stepAt = (step: number) => {
      const decoder = decoders[step];
      let bytes = 0;
      return {
        data: (chunk: Buffer): void => {
          bytes += chunk.length;
          try {
            if (bytes > maxBytes) throw fault('BODY_TOO_LARGE', { limitBytes: maxBytes, limit: limitName });
            if (decoder !== undefined) return void decoder.write(chunk);
            share?.take(chunk.length);
            chunks.push(chunk);
          } catch (error) {
            reject(error);
          }
        },
        end: () => {
          if (decoder !== undefined) decoder.end();
          else resolve(joined(chunks));
        },
        error: reject,
      };
    };
    for (const [index, decoder] of decoders.entries()) decoder.start(stepAt(index + 1));

    const [first] = decoders as readonly [Decoder];
    const feed = () => {
      for (;;) {
        const chunk = wire.shift();
        if (chunk === undefined) return first.end();
        share?.giveBack(chunk.length);
        if (first.write(chunk)) continue;
        return first.onDrain(feed);
      }
    };
    feed();
  });
}

function joined(chunks: readonly Buffer[]): Buffer {
  return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
}
