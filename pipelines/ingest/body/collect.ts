import type { Readable } from 'node:stream';
import zlib from 'node:zlib';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { raceWithAbort, timedOut, withTimeout } from '../../../infra/timeouts/with-timeout.ts';
import { type BodyShare, incompleteBodies } from './body-budget.ts';
import { BodyChunks, type BodyLimit } from './body-chunks.ts';
import { type Decoder, type DecoderOutput, ZstdStream } from './zstd-stream.ts';

export type Encoding = 'gzip' | 'deflate' | 'zstd';

/** Size of the output chunks of zlib; each chunk requires a round trip to the thread pool. */
const chunkBytes = 128 * 1024;

const acceptedEncodings = 'plain, with gzip or with zstd';

/**
 * Returns the encoding that a Content-Encoding header names; undefined if the body is not encoded. More than one is legal
 * but useless: it only makes a small body long to decode, without an output that the limits could count.
 *
 * @throws UNSUPPORTED_ENCODING
 */
function parseEncoding(header: string | undefined): Encoding | undefined {
  const names = (header ?? '')
    .split(',')
    .map((name) => name.trim().toLowerCase())
    .filter((name) => name !== '' && name !== 'identity');
  const [name] = names;
  if (name === undefined) return undefined;
  if (names.length === 1) {
    if (name === 'gzip' || name === 'x-gzip') return 'gzip';
    if (name === 'deflate' || name === 'zstd') return name;
  }
  throw runlakeError('UNSUPPORTED_ENCODING', {
    encoding: names.join(', ').slice(0, 64),
    accepted: acceptedEncodings,
  });
}

function createDecoder(encoding: Encoding): Decoder {
  if (encoding === 'zstd') return new ZstdStream();
  const options = { chunkSize: chunkBytes };
  return new ZlibDecoder(encoding, encoding === 'gzip' ? zlib.createGunzip(options) : zlib.createInflate(options));
}

class ZlibDecoder implements Decoder {
  readonly #encoding: Encoding;
  readonly #stream: zlib.Gunzip | zlib.Inflate;

  constructor(encoding: Encoding, stream: zlib.Gunzip | zlib.Inflate) {
    this.#encoding = encoding;
    this.#stream = stream;
  }

  start(output: DecoderOutput): void {
    const fail = (reason: string) =>
      output.error(runlakeError('INVALID_COMPRESSION', { encoding: this.#encoding, reason }));
    this.#stream
      .on('data', (chunk: Buffer) => output.data(chunk))
      .on('end', () => output.end())
      .on('error', (error) => fail(error.message));
  }

  write(chunk: Buffer): boolean {
    return this.#stream.write(chunk);
  }

  onDrain(next: () => void): void {
    this.#stream.once('drain', next);
  }

  end(): void {
    this.#stream.end();
  }

  destroy(): void {
    this.#stream.removeAllListeners();
    this.#stream.on('error', () => {});
    this.#stream.destroy();
  }
}

/** The limit applies to the bytes on the wire, and again to those after decompression. */
export interface CollectOptions extends BodyLimit {
  /** Value of the header Content-Encoding. */
  readonly contentEncoding: string | undefined;
  /** Maximum time until the body is received and decompressed. */
  readonly timeoutMs: number;
  readonly share?: BodyShare;
  /** When this signal is aborted, reading fails with the reason of the signal. */
  readonly signal?: AbortSignal;
  /** Default: {@link minProgress}. */
  readonly progress?: Progress;
}

export interface Progress {
  /** Minimum number of bytes that must arrive in each window. */
  readonly bytes: number;
  readonly windowMs: number;
}

/** One kilobyte per second. The window is long enough for a connection to recover from packet loss. */
const minProgress: Progress = { bytes: 10 * 1024, windowMs: 10_000 };

/**
 * Reads the whole body of a request and decompresses it.
 *
 *   1. Buffer the bytes as they arrive on the wire, still encoded, so that a client that withholds the end of its body
 *      occupies no more memory than it has sent. A client slower than `progress` gets BODY_TOO_SLOW. While the
 *      organisation holds much memory, reading pauses after each chunk.
 *   2. When all bytes have arrived, decompress them chunk by chunk and release each chunk after decoding. From this
 *      point on, the duration does not depend on the client. The limit applies to every chunk, so a decompression
 *      bomb stops at the limit.
 *
 * After an error, the remaining body is read and discarded, so that the client receives the response. The server limits
 * the time for that, as for every body.
 *
 * The promise settles once. After it has settled, the only listener left on `stream` swallows errors, and no decoder is
 * running.
 *
 * @throws UNSUPPORTED_ENCODING, BODY_TOO_LARGE, BODY_TOO_SLOW, INVALID_COMPRESSION (also for a stream that ends early),
 *   REQUEST_TIMEOUT; the errors of `share`; the reason of `signal`; BAD_REQUEST if the client disconnected.
 */
export async function collectBody(stream: Readable, options: CollectOptions): Promise<Buffer> {
  const { timeoutMs, signal } = options;
  const release: (() => void)[] = [];
  try {
    const encoding = parseEncoding(options.contentEncoding);
    const decoder = encoding && createDecoder(encoding);
    if (decoder) release.push(() => decoder.destroy());
    const collected = readWireChunks(stream, options, release).then((received) => {
      if (options.share) options.share.waitsForClient = false;
      return decoder ? decode(received.list(), decoder, options) : received.join();
    });
    const body = await withTimeout(raceWithAbort(collected, signal), timeoutMs);
    if (body === timedOut) throw runlakeError('REQUEST_TIMEOUT', { limitMs: timeoutMs });
    return body;
  } finally {
    for (const each of release) each();
    stream.on('error', () => {});
    stream.resume();
  }
}

/** Step 1 of {@link collectBody}: collects the bytes on the wire. */
async function readWireChunks(stream: Readable, options: CollectOptions, release: (() => void)[]): Promise<BodyChunks> {
  const { share, progress = minProgress } = options;
  return new Promise((resolve, reject) => {
    const chunks = new BodyChunks(options);
    let bytesBefore = 0;
    let resumeTimer: NodeJS.Timeout | undefined;
    const watch = setInterval(() => {
      if (chunks.bytes - bytesBefore < progress.bytes) {
        incompleteBodies.inc({ cause: 'slow' });
        reject(runlakeError('BODY_TOO_SLOW', { bytes: progress.bytes, seconds: progress.windowMs / 1_000 }));
      }
      bytesBefore = chunks.bytes;
    }, progress.windowMs);
    const onData = (chunk: Buffer) => {
      try {
        chunks.append(chunk);
        const pauseMs = share?.pauseMs(chunk.length) ?? 0;
        if (pauseMs > 0) {
          stream.pause();
          resumeTimer = setTimeout(() => stream.resume(), pauseMs);
        }
      } catch (error) {
        stream.pause();
        reject(error);
      }
    };
    const onEnd = () => resolve(chunks);
    const disconnected = () =>
      reject(runlakeError('BAD_REQUEST', { reason: 'The body ended before it was complete.' }));
    const onClose = () => {
      if (!stream.readableEnded) disconnected();
    };
    release.push(() => {
      clearInterval(watch);
      clearTimeout(resumeTimer);
      stream.off('data', onData).off('end', onEnd).off('error', disconnected).off('close', onClose);
      chunks.clear();
    });
    stream.on('data', onData).on('end', onEnd).on('error', disconnected).on('close', onClose);
    if (stream.destroyed || stream.readableEnded) disconnected();
  });
}

/** Step 2 of {@link collectBody}: decompresses the bytes. */
async function decode(wire: Buffer[], decoder: Decoder, options: CollectOptions): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks = new BodyChunks(options);
    decoder.start({
      data: (chunk) => {
        try {
          chunks.append(chunk);
        } catch (error) {
          reject(error);
        }
      },
      end: () => resolve(chunks.join()),
      error: reject,
    });
    const feed = () => {
      for (;;) {
        const chunk = wire.shift();
        if (chunk === undefined) return decoder.end();
        options.share?.release(chunk.length);
        if (decoder.write(chunk)) continue;
        return decoder.onDrain(feed);
      }
    };
    feed();
  });
}
