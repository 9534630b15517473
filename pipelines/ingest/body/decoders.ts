import zlib from 'node:zlib';
import { type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { ZstdStream } from './zstd-stream.ts';

export type Encoding = 'gzip' | 'deflate' | 'zstd';

export interface DecoderOutput {
  data(chunk: Buffer): void;
  end(): void;
  /** Called at most once; no other call follows. */
  error(error: RunlakeError): void;
}

/** Decompresses a stream, chunk by chunk. */
export interface Decoder {
  start(output: DecoderOutput): void;
  /** Returns false if the decoder cannot keep up: wait for {@link Decoder.onDrain} before the next write. */
  write(chunk: Buffer): boolean;
  onDrain(next: () => void): void;
  end(): void;
  /** Stops the decoder; it emits nothing afterwards. */
  destroy(): void;
}

/** More than one encoding is legal but useless; a long chain is an attack. */
const maxEncodings = 2;

/** Output chunk size of zlib; each chunk is a round trip to the thread pool. */
const chunkBytes = 128 * 1024;

const acceptedEncodings = 'plain, with gzip or with zstd';

/** The encodings that a Content-Encoding names, in decoding order. @throws UNSUPPORTED_ENCODING */
export function parseEncodings(header: string | undefined): Encoding[] {
  const names = (header ?? '')
    .split(',')
    .map((name) => name.trim().toLowerCase())
    .filter((name) => name !== '' && name !== 'identity');
  const encodings = names.map((name): Encoding => {
    if (name === 'gzip' || name === 'x-gzip') return 'gzip';
    if (name === 'deflate' || name === 'zstd') return name;
    throw runlakeError('UNSUPPORTED_ENCODING', { encoding: name.slice(0, 64), accepted: acceptedEncodings });
  });
  if (encodings.length > maxEncodings)
    throw runlakeError('UNSUPPORTED_ENCODING', {
      encoding: names.join(', ').slice(0, 64),
      accepted: acceptedEncodings,
    });
  return encodings.reverse();
}

export function createDecoder(encoding: Encoding): Decoder {
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
