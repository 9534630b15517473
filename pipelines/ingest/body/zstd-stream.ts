import { isRunlakeError, type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { runInLaterTurn } from '../../../infra/timeouts/time-slices.ts';

export interface DecoderOutput {
  data(chunk: Buffer): void;
  end(): void;
  /** Called at most once; no other method is called afterwards. */
  error(error: RunlakeError): void;
}

/** Decompresses a stream, chunk by chunk. */
export interface Decoder {
  start(output: DecoderOutput): void;
  /**
   * Returns false if the decoder cannot keep up; the caller must then wait for {@link Decoder.onDrain} before the next
   * write.
   */
  write(chunk: Buffer): boolean;
  onDrain(next: () => void): void;
  end(): void;
  /** Stops the decoder; it emits nothing afterwards. */
  destroy(): void;
}

/** Maximum window size that decoders should support according to RFC 8878; encoders exceed it only on request. */
const maxWindowBytes = 8 * 1024 * 1024;

/** Maximum size of a frame header. A complete frame may be shorter. */
const maxHeaderBytes = 18;

/**
 * Maximum number of frames of a body. Clients send one, parallel encoders one for each thread or megabyte. An empty frame
 * has eight bytes but costs a call of the library.
 */
const maxFrames = 4_096;

/** Maximum input and output of one call, which bound the duration of the call. A block yields at most 128 KiB. */
const maxInputBytes = 16 * 1024;
const maxOutputBytes = 128 * 1024;

/** Memory size above which an idle WebAssembly instance is replaced, because its memory never shrinks. */
const maxIdleBytes = 64 * 1024 * 1024;

/** The exports of libzstd compiled to WebAssembly. A pointer and a `size_t` have four bytes. */
interface LibZstd {
  readonly memory: { readonly buffer: ArrayBuffer };
  malloc(bytes: number): number;
  ZSTD_createDCtx(): number;
  ZSTD_freeDCtx(context: number): void;
  /** Returns 0 at the end of a frame, a negative error code, or a positive hint. */
  ZSTD_decompressStream(context: number, output: number, input: number): number;
}

const memoryAllocationError = 64;
/**
 * Error reasons that help a client, by libzstd error code; all other codes mean damaged data. Source: zstd_errors.h.
 */
const errorReasons = new Map([
  [22, 'its checksum is wrong'],
  [32, 'it needs a dictionary'],
]);

/** An instance of libzstd with buffers for one call at a time. */
class ZstdInstance {
  readonly lib: LibZstd;
  openContexts = 0;
  /**
   * Address of ZSTD_inBuffer. It is followed by ZSTD_outBuffer (each consists of a pointer, a size and a position),
   * then by the input and output bytes.
   */
  readonly #input: number;

  constructor(lib: LibZstd) {
    this.lib = lib;
    this.#input = lib.malloc(24 + maxInputBytes + maxOutputBytes);
  }

  /** Decompresses bytes from the start of `bytes`, in a single call of the library. */
  decompress(context: number, bytes: Buffer): { result: number; consumed: number; output: Buffer } {
    const [input, output] = [this.#input, this.#input + 12];
    const source = output + 12;
    const target = source + maxInputBytes;
    const length = Math.min(bytes.length, maxInputBytes);
    const before = Buffer.from(this.lib.memory.buffer);
    bytes.copy(before, source, 0, length);
    [source, length, 0, target, maxOutputBytes, 0].forEach((word, index) => {
      before.writeUInt32LE(word, input + index * 4);
    });
    const result = this.lib.ZSTD_decompressStream(context, output, input);
    // The call may have replaced the memory with a larger one.
    const after = Buffer.from(this.lib.memory.buffer);
    const consumed = after.readUInt32LE(input + 8);
    return { result, consumed, output: Buffer.from(after.subarray(target, target + after.readUInt32LE(output + 8))) };
  }
}

/** The types of Node 20 do not declare `WebAssembly`. */
declare const WebAssembly: {
  readonly Instance: new (module: object, imports: object) => { readonly exports: unknown };
};

let compiled: Promise<object> | undefined;
let module: object | undefined;
let shared: ZstdInstance | undefined;

/** Compiles libzstd once; must complete before the first {@link ZstdDecoder.next}. */
export async function loadZstd(): Promise<void> {
  compiled ??= compileZstd();
  module = await compiled;
}

/**
 * The streaming API of `zstddec` ignores errors and never frees the memory of a failed stream, so this module uses the
 * exports of its WebAssembly module directly.
 */
async function compileZstd(): Promise<object> {
  const { ZSTDDecoder } = await import('zstddec/stream');
  return new Promise((resolve, reject) => {
    class Compiler extends ZSTDDecoder {
      override _init(compiledSource: { readonly module: object }): void {
        resolve(compiledSource.module);
      }
    }
    new Compiler().init().catch(reject);
  });
}

function openInstance(): ZstdInstance {
  if (shared?.openContexts === 0 && shared.lib.memory.buffer.byteLength > maxIdleBytes) shared = undefined;
  const imports = { env: { emscripten_notify_memory_growth: () => undefined } };
  shared ??= new ZstdInstance(new WebAssembly.Instance(module as object, imports).exports as LibZstd);
  return shared;
}

/**
 * Decodes consecutive Zstandard frames in steps. The window of a frame bounds the memory, and the size of input and
 * output bounds the work. Call `close` after use.
 */
export class ZstdDecoder {
  readonly #input: Buffer[] = [];
  #instance: ZstdInstance | undefined;
  #context = 0;
  #frames = 0;
  #isInFrame = false;
  #hasMoreOutput = false;

  push(chunk: Buffer): void {
    if (chunk.length > 0) this.#input.push(chunk);
  }

  /**
   * Runs one decoding step and returns its output, which may be empty. Returns `undefined` if the decoder needs more
   * input.
   *
   * @throws INVALID_COMPRESSION, OVERLOADED
   */
  next(): Buffer | undefined {
    if (!this.#isInFrame && !this.#beginFrame()) return undefined;
    const [chunk = Buffer.alloc(0)] = this.#input;
    if (chunk.length === 0 && !this.#hasMoreOutput) return undefined;
    this.#instance ??= this.#open();
    const { result, consumed, output } = this.#instance.decompress(this.#context, chunk);
    if (result < 0) throw toDecoderError(-result);
    if (consumed < chunk.length) this.#input[0] = chunk.subarray(consumed);
    else this.#input.shift();
    this.#isInFrame = result !== 0;
    this.#hasMoreOutput = this.#isInFrame && output.length === maxOutputBytes;
    return output;
  }

  /**
   * Marks the end of the input.
   *
   * @throws INVALID_COMPRESSION if the input does not end with a complete frame, or is empty.
   */
  finish(): void {
    if (this.#isInFrame || this.#input.length > 0) throw createCorruptionError('the stream ends early');
    if (this.#frames === 0) throw createCorruptionError('the stream is empty');
  }

  /** Frees the memory that the library allocated. Idempotent. */
  close(): void {
    if (this.#instance === undefined) return;
    this.#instance.lib.ZSTD_freeDCtx(this.#context);
    this.#instance.openContexts--;
    this.#instance = undefined;
  }

  #open(): ZstdInstance {
    const instance = openInstance();
    this.#context = instance.lib.ZSTD_createDCtx();
    if (this.#context === 0) throw toDecoderError(memoryAllocationError);
    instance.openContexts++;
    return instance;
  }

  /**
   * Checks the window size of the next frame, because the library reserves that much memory. Returns false if the frame
   * header is incomplete.
   */
  #beginFrame(): boolean {
    const starts = this.#input.slice(0, maxHeaderBytes).map((chunk) => chunk.subarray(0, maxHeaderBytes));
    const windowBytes = readWindowBytes(Buffer.concat(starts));
    if (windowBytes === undefined) return false;
    if (windowBytes > maxWindowBytes)
      throw createCorruptionError(`its window of ${windowBytes} bytes is above ${maxWindowBytes}`);
    if (this.#frames === maxFrames) throw createCorruptionError(`it has more than ${maxFrames} frames`);
    this.#isInFrame = true;
    this.#frames++;
    return true;
  }
}

const frameMagic = 0xfd2fb528;
/** Upper 28 bits of the sixteen magic numbers of skippable frames. */
const skippableMagic = 0x184d2a5;

/**
 * Reads the maximum distance of a match from the frame header at the start of `bytes`. Returns 0 for a skippable frame,
 * and `undefined` if the header is incomplete. Source: RFC 8878, section 3.1.1.1.
 *
 * @throws INVALID_COMPRESSION
 */
function readWindowBytes(bytes: Buffer): number | undefined {
  // The shortest complete frame has nine bytes; the header of a skippable frame has eight.
  if (bytes.length < 8) return undefined;
  const start = bytes.readUInt32LE(0);
  if (start >>> 4 === skippableMagic) return 0;
  if (start !== frameMagic) throw createCorruptionError('no frame begins where one is expected');
  const descriptor = bytes[4]!;
  const isSingleSegment = (descriptor & 0x20) !== 0;
  if (!isSingleSegment) {
    const base = 2 ** (10 + (bytes[5]! >>> 3));
    return base + (base / 8) * (bytes[5]! & 7);
  }
  const sizeAt = 5 + [0, 1, 2, 4][descriptor & 3]!;
  const sizeBytes = 1 << (descriptor >>> 6);
  if (bytes.length < sizeAt + sizeBytes) return undefined;
  return sizeBytes === 8 ? Number(bytes.readBigUInt64LE(sizeAt)) : bytes.readUIntLE(sizeAt, sizeBytes);
}

function createCorruptionError(reason: string): Error {
  return runlakeError('INVALID_COMPRESSION', { encoding: 'zstd', reason });
}

function toDecoderError(code: number): Error {
  if (code === memoryAllocationError) {
    return runlakeError('OVERLOADED', { what: 'decoding of zstd bodies' }, { retryAfterSeconds: 1 });
  }
  return createCorruptionError(errorReasons.get(code) ?? `the data is damaged (error ${code} of libzstd)`);
}

/** Maximum duration of a time slice. A step usually takes less than a millisecond. */
const sliceMs = 5;

/** Maximum pending input before `write` returns false. */
const maxWaitingBytes = 1024 * 1024;

/**
 * A Zstandard decoder for a body.
 *
 * Invariant: at most one time slice is running or scheduled, and only this time slice uses the decoder. The first time
 * slice is scheduled when the library is loaded.
 *
 *   1. `write` and `end` store the input and schedule a time slice unless one is already scheduled.
 *   2. A time slice decodes step by step until its time is over, the input is used up, or the stream is destroyed.
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
    runInLaterTurn(() => {
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
