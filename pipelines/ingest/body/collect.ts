import type { Readable } from 'node:stream';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { createDecoder, type Decoder, type Encoding, encodingsOf } from './decoders.ts';

export interface CollectOptions {
  /** The header Content-Encoding. */
  readonly contentEncoding: string | undefined;
  /** Bounds the bytes on the wire, and those after each decoder. */
  readonly maxBytes: number;
  /** Name of the setting behind `maxBytes`, for the fault. */
  readonly limitName: string;
  readonly timeoutMs: number;
}

/**
 * Reads a request's body whole, decompressed. The limit holds while bytes flow: a body that swells is stopped there, with
 * no more memory taken than the limit.
 *
 * @throws UNSUPPORTED_ENCODING, BODY_TOO_LARGE, INVALID_COMPRESSION (also for a stream that ends early), REQUEST_TIMEOUT;
 *   BAD_REQUEST where the client went away.
 */
export function collectBody(stream: Readable, options: CollectOptions): Promise<Buffer> {
  const { maxBytes, timeoutMs, limitName } = options;
  return new Promise<Buffer>((resolve, reject) => {
    const chunks: Buffer[] = [];
    let wireBytes = 0;
    let bytes = 0;
    let settled = false;
    const timer = setTimeout(() => fail(fault('REQUEST_TIMEOUT', { limitMs: timeoutMs })), timeoutMs);
    const tooLarge = () => fault('BODY_TOO_LARGE', { limitBytes: maxBytes, limit: limitName });

    let encodings: readonly Encoding[] = [];
    let decoders: Decoder[] = [];
    try {
      encodings = encodingsOf(options.contentEncoding);
      decoders = encodings.map(createDecoder);
    } catch (error) {
      fail(error);
      return;
    }

    function fail(error: unknown): void {
      if (settled) return;
      settled = true;
      cleanUp();
      // What still arrives is read and dropped, so that the sender gets the answer.
      stream.on('error', () => {});
      stream.resume();
      reject(error);
    }
    function cleanUp(): void {
      clearTimeout(timer);
      stream.off('data', onData).off('end', onEnd).off('error', onError).off('close', onClose);
      for (const decoder of decoders) decoder.destroy();
    }
    function onData(chunk: Buffer): void {
      wireBytes += chunk.length;
      const [first] = decoders;
      if (wireBytes > maxBytes) fail(tooLarge());
      else if (first === undefined) take(chunk);
      else if (!first.write(chunk)) {
        stream.pause();
        first.onDrain(() => {
          if (!settled) stream.resume();
        });
      }
    }
    function onEnd(): void {
      const [first] = decoders;
      if (first === undefined) finish();
      else first.end();
    }
    function onError(): void {
      fail(fault('BAD_REQUEST', { reason: 'The body ended before it was complete.' }));
    }
    function onClose(): void {
      if (!stream.readableEnded) onError();
    }
    function take(chunk: Buffer): void {
      bytes += chunk.length;
      if (bytes > maxBytes) fail(tooLarge());
      else chunks.push(chunk);
    }
    function finish(): void {
      if (settled) return;
      settled = true;
      cleanUp();
      resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, bytes));
    }

    for (const [index, decoder] of decoders.entries()) {
      const next = decoders[index + 1];
      const encoding = encodings[index] as Encoding;
      decoder.start({
        data: (chunk) => {
          if (settled) return;
          if (next === undefined) take(chunk);
          else next.write(chunk);
        },
        end: () => (next === undefined ? finish() : next.end()),
        error: (reason) => fail(fault('INVALID_COMPRESSION', { encoding, reason })),
      });
    }
    stream.on('data', onData).on('end', onEnd).on('error', onError).on('close', onClose);
  });
}
