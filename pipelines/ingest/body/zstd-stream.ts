import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Decoder, DecoderOutput } from './decoders.ts';
import { loadZstd, ZstdDecoder } from './zstd-decoder.ts';

/** Maximum time per time slice. A step usually takes less than a millisecond. */
const sliceMs = 5;

/** Maximum pending input before `write` returns false. */
const maxWaitingBytes = 1024 * 1024;

/**
 * A Zstandard decoder for one stage of a body's decoding.
 *
 * Invariant: at most one time slice is running or scheduled, and only it uses the decoder. The first time slice is
 * scheduled when the library is loaded.
 *   1. `write` and `end` store the input and schedule a time slice unless one is scheduled.
 *   2. A time slice decodes step by step until its time is over, the input is used up, or the stream was destroyed.
 *   3. If its time is over, it schedules the next time slice. If the input is used up, it calls the drain callback or,
 *      after `end`, finishes.
 */
export class ZstdStream implements Decoder {
  readonly #decoder = new ZstdDecoder();
  #output: DecoderOutput | undefined;
  #waitingBytes = 0;
  #hasEnded = false;
  #isLoaded = false;
  #isScheduled = false;
  #drained: (() => void) | undefined;

  start(output: DecoderOutput): void {
    this.#output = output;
    loadZstd().then(() => {
      this.#isLoaded = true;
      this.#schedule();
    }, output.error);
  }

  write(chunk: Buffer): boolean {
    this.#decoder.push(chunk);
    this.#waitingBytes += chunk.length;
    this.#schedule();
    return this.#waitingBytes < maxWaitingBytes;
  }

  onDrain(next: () => void): void {
    this.#drained = next;
  }

  end(): void {
    this.#hasEnded = true;
    this.#schedule();
  }

  destroy(): void {
    this.#output = undefined;
    this.#drained = undefined;
    this.#decoder.close();
  }

  #schedule(): void {
    if (this.#isScheduled || !this.#isLoaded) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      try {
        this.#slice();
      } catch (error) {
        if (!isRunlakeError(error)) throw error;
        this.#output?.error(error);
        this.destroy();
      }
    });
  }

  #slice(): void {
    const until = performance.now() + sliceMs;
    while (this.#output !== undefined) {
      const block = this.#decoder.next();
      if (block === undefined) break;
      if (block.length > 0) this.#output.data(block);
      if (performance.now() >= until) {
        this.#schedule();
        return;
      }
    }
    if (this.#output === undefined) return;
    this.#waitingBytes = 0;
    if (this.#hasEnded) {
      this.#decoder.finish();
      this.#output.end();
      return;
    }
    const next = this.#drained;
    this.#drained = undefined;
    next?.();
  }
}
