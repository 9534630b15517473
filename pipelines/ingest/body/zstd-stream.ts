import { Decompress } from 'fzstd';
import type { Decoder, DecoderOutput } from './decoders.ts';
import { ZstdFrames } from './zstd-frames.ts';

/** Input is decoded in pieces of this size, so that the event loop is never held for long. */
const sliceBytes = 64 * 1024;

/**
 * Zstandard in JavaScript, for releases of Node that do not have it built in.
 * The decoder sees nothing that {@link ZstdFrames} has not let through.
 */
export class ZstdStream implements Decoder {
  #output: DecoderOutput | undefined;
  #decompress: Decompress | undefined;
  readonly #frames = new ZstdFrames();
  #finished = false;
  #waiting: Buffer[] = [];
  #ended = false;
  #running = false;
  #drained: (() => void) | undefined;

  start(output: DecoderOutput): void {
    this.#output = output;
    this.#decompress = new Decompress((chunk, final) => {
      if (chunk.length > 0) this.#output?.data(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
      if (final) this.#finished = true;
    });
  }

  write(chunk: Buffer): boolean {
    for (let at = 0; at < chunk.length; at += sliceBytes) this.#waiting.push(chunk.subarray(at, at + sliceBytes));
    this.#run();
    return this.#waiting.length < 16;
  }

  onDrain(next: () => void): void {
    this.#drained = next;
  }

  end(): void {
    this.#ended = true;
    this.#run();
  }

  destroy(): void {
    this.#output = undefined;
    this.#waiting = [];
  }

  #run(): void {
    if (this.#running) return;
    this.#running = true;
    const step = () => {
      if (this.#output === undefined) return;
      const slice = this.#waiting.shift();
      try {
        if (slice !== undefined) this.#feed(slice);
        else if (this.#ended) return this.#finish();
      } catch (error) {
        this.#output?.error(error instanceof Error ? error.message : 'the stream is damaged');
        this.destroy();
        return;
      }
      if (this.#waiting.length === 0 && !this.#ended) {
        this.#running = false;
        const next = this.#drained;
        this.#drained = undefined;
        next?.();
        return;
      }
      setImmediate(step);
    };
    setImmediate(step);
  }

  #feed(slice: Buffer): void {
    const reason = this.#frames.follow(slice);
    if (reason === undefined) {
      this.#decompress?.push(slice);
      return;
    }
    this.#output?.error(reason);
    this.destroy();
  }

  #finish(): void {
    this.#decompress?.push(new Uint8Array(0), true);
    if (this.#finished) this.#output?.end();
    else this.#output?.error('the stream ends early');
  }
}
