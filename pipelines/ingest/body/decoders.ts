import zlib from 'node:zlib';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { ZstdStream } from './zstd-stream.ts';

export type Encoding = 'gzip' | 'deflate' | 'zstd';

export interface DecoderOutput {
  data(chunk: Buffer): void;
  end(): void;
  error(reason: string): void;
}

/** Decompresses a stream chunk by chunk. */
export interface Decoder {
  start(output: DecoderOutput): void;
  /** False where the decoder is behind: wait for {@link Decoder.onDrain}. */
  write(chunk: Buffer): boolean;
  onDrain(next: () => void): void;
  end(): void;
  /** Ends it; nothing is put out any more. */
  destroy(): void;
}

/** More than one is legal and useless; a long chain is an attack. */
const maxEncodings = 2;

/** What a Content-Encoding names, in the order in which it has to be undone. @throws UNSUPPORTED_ENCODING */
export function encodingsOf(header: string | undefined): Encoding[] {
  const names = (header ?? '')
    .split(',')
    .map((name) => name.trim().toLowerCase())
    .filter((name) => name !== '' && name !== 'identity');
  const encodings = names.map((name): Encoding => {
    if (name === 'gzip' || name === 'x-gzip') return 'gzip';
    if (name === 'deflate' || name === 'zstd') return name;
    throw fault('UNSUPPORTED_ENCODING', { encoding: name.slice(0, 64) });
  });
  if (encodings.length > maxEncodings) throw fault('UNSUPPORTED_ENCODING', { encoding: names.join(', ').slice(0, 64) });
  return encodings.reverse();
}

export function createDecoder(encoding: Encoding): Decoder {
  if (encoding === 'zstd') {
    // Built in from Node 22.15 on.
    const builtIn = (zlib as { createZstdDecompress?: () => zlib.Gunzip }).createZstdDecompress;
    return builtIn === undefined ? new ZstdStream() : new ZlibDecoder(builtIn());
  }
  return new ZlibDecoder(encoding === 'gzip' ? zlib.createGunzip() : zlib.createInflate());
}

class ZlibDecoder implements Decoder {
  readonly #stream: zlib.Gunzip | zlib.Inflate;

  constructor(stream: zlib.Gunzip | zlib.Inflate) {
    this.#stream = stream;
  }

  start(output: DecoderOutput): void {
    this.#stream
      .on('data', (chunk: Buffer) => output.data(chunk))
      .on('end', () => output.end())
      .on('error', (error) => output.error(error.message));
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
    this.#stream.removeAllListeners('data').removeAllListeners('end').removeAllListeners('error');
    this.#stream.on('error', () => {});
    this.#stream.destroy();
  }
}
