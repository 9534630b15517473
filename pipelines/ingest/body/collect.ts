import type { Readable } from 'node:stream';
import { fault } from '../../../infra/errors/runlake-error.ts';
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
  /** Told of each piece that is kept; what it throws ends the collecting. */
  readonly onKept?: (bytes: number) => void;
}

/**
 * Reads a request's body whole, decompressed. The limit holds while bytes flow: a body that swells is stopped there, with
 * no more memory taken than the limit. After a fault what still arrives is read and dropped, so that the sender gets the
 * answer; whoever answers closes the connection.
 *
 * The promise settles once; from then on no listener but one that swallows errors is left on `stream`, and no decoder works.
 *
 * @throws UNSUPPORTED_ENCODING, BODY_TOO_LARGE, INVALID_COMPRESSION (also for a stream that ends early), REQUEST_TIMEOUT;
 *   what `onKept` throws; BAD_REQUEST where the client went away.
 */
export async function collectBody(stream: Readable, options: CollectOptions): Promise<Buffer> {
  const { maxBytes, timeoutMs, limitName } = options;
  let decoders: Decoder[] = [];
  let timer: NodeJS.Timeout | undefined;
  let stop = () => {};
  try {
    decoders = encodingsOf(options.contentEncoding).map(createDecoder);
    return await new Promise<Buffer>((resolve, reject) => {
      timer = setTimeout(
        () => reject(fault('REQUEST_TIMEOUT', { limitMs: timeoutMs, limit: options.timeoutName })),
        timeoutMs,
      );
      const tooLarge = () => reject(fault('BODY_TOO_LARGE', { limitBytes: maxBytes, limit: limitName }));
      const cutOff = () => reject(fault('BAD_REQUEST', { reason: 'The body ended before it was complete.' }));
      const chunks: Buffer[] = [];
      const keep = (chunk: Buffer) => {
        try {
          options.onKept?.(chunk.length);
          chunks.push(chunk);
        } catch (error) {
          reject(error);
        }
      };

      /** What takes the bytes that come out of the step before `step`; the last step keeps them. */
      const stepAt = (step: number) => {
        const decoder = decoders[step];
        let bytes = 0;
        return {
          data: (chunk: Buffer): boolean => {
            bytes += chunk.length;
            if (bytes > maxBytes) tooLarge();
            else if (decoder !== undefined) return decoder.write(chunk);
            else keep(chunk);
            return true;
          },
          end: () => {
            if (decoder !== undefined) decoder.end();
            else resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, bytes));
          },
          error: reject,
        };
      };
      for (const [index, decoder] of decoders.entries()) decoder.start(stepAt(index + 1));

      const first = stepAt(0);
      const onData = (chunk: Buffer) => {
        if (first.data(chunk)) return;
        stream.pause();
        decoders[0]?.onDrain(() => stream.resume());
      };
      const onClose = () => {
        if (!stream.readableEnded) cutOff();
      };
      stop = () => stream.off('data', onData).off('end', first.end).off('error', cutOff).off('close', onClose);
      stream.on('data', onData).on('end', first.end).on('error', cutOff).on('close', onClose);
      if (stream.destroyed || stream.readableEnded) cutOff();
    });
  } finally {
    clearTimeout(timer);
    stop();
    for (const decoder of decoders) decoder.destroy();
    stream.on('error', () => {});
    stream.resume();
  }
}
