/**
 * Frames on the pipe between the parent process and a process that runs project code.
 *
 * Layout: the length of the head and the length of the body (u32, little endian), the head (JSON text), the body
 * (bytes). Invariant: for arbitrary input bytes, the reader either returns frames within its limits or throws
 * WORKER_PROTOCOL_VIOLATED. It allocates memory for bytes that were received, not for lengths that were announced.
 */
import { isRunlakeError, type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { scanValue } from '../../ingest/json/scan.ts';

export interface Frame {
  /** JSON text. */
  readonly head: Buffer;
  readonly body: Buffer;
}

export interface FrameLimits {
  readonly headBytes: number;
  /** Maximum number of JSON values in a head; see {@link exceedsValueCount}. */
  readonly headValues: number;
  readonly bodyBytes: number;
}

/** File descriptor of the pipe in the child process. */
export const pipeDescriptor = 3;

const mib = 1024 * 1024;
/** Maximum number of JSON values in the head of a message from a worker. */
export const maxHeadValues = 200_000;

/**
 * Returns the limits of messages from a worker. The parent process parses the head of a message, which may contain open
 * interrupts. It only scans the body (events, state). Parsing costs time and memory for each value, so a head with very
 * many small values would block the parent process for seconds. A send window full of small events needs 82,000 values.
 */
export function computeWorkerFrameLimits(maxEventBytes: number): FrameLimits {
  return { headBytes: 32 * mib, headValues: maxHeadValues, bodyBytes: Math.max(64 * mib, maxEventBytes + 16 * mib) };
}

/** Limits of messages from the parent process, which is trusted. */
export const parentFrameLimits: FrameLimits = {
  headBytes: 0xffff_ffff,
  headValues: Number.POSITIVE_INFINITY,
  bodyBytes: 0,
};

const lengthBytes = 8;

export function createViolationError(reason: string): RunlakeError {
  return runlakeError('WORKER_PROTOCOL_VIOLATED', { reason });
}

/** Encodes one frame. The returned buffers must be written in order. */
export function encodeFrame(head: object, body: readonly Uint8Array[] = []): Uint8Array[] {
  const text = Buffer.from(JSON.stringify(head));
  const lengths = Buffer.allocUnsafe(lengthBytes);
  lengths.writeUInt32LE(text.byteLength, 0);
  lengths.writeUInt32LE(
    body.reduce((sum, part) => sum + part.byteLength, 0),
    4,
  );
  return [lengths, text, ...body];
}

const quote = 0x22;
const backslash = 0x5c;
const comma = 0x2c;
const openBracket = 0x5b;
const openBrace = 0x7b;

/**
 * Returns whether JSON text has more than `limit` commas, opening brackets and opening braces outside strings, which is
 * one or two for each value. Does not count commas if `onlyContainers` is true. The bytes may be any text. Allocates no
 * memory.
 */
export function exceedsValueCount(text: Uint8Array, limit: number, onlyContainers = false): boolean {
  if (text.byteLength <= limit) return false;
  let values = 0;
  let isInString = false;
  for (let at = 0; at < text.byteLength; at += 1) {
    const byte = text[at];
    if (byte === quote) isInString = !isInString;
    else if (isInString) {
      if (byte === backslash) at += 1;
    } else if (byte === openBracket || byte === openBrace || (byte === comma && !onlyContainers)) {
      values += 1;
      if (values > limit) return true;
    }
  }
  return false;
}

/** @throws WORKER_PROTOCOL_VIOLATED */
export function requireSize(headBytes: number, bodyBytes: number, limits: FrameLimits): void {
  if (headBytes > limits.headBytes)
    throw createViolationError(`a message of ${headBytes} bytes (limit: ${limits.headBytes})`);
  if (bodyBytes > limits.bodyBytes)
    throw createViolationError(`a message with ${bodyBytes} bytes of data (limit: ${limits.bodyBytes})`);
}

/** @throws WORKER_PROTOCOL_VIOLATED */
export function requireFewValues(head: Uint8Array, { headValues }: FrameLimits): void {
  if (exceedsValueCount(head, headValues)) throw createViolationError(`more than ${headValues} values`);
}

/** Maximum number of objects and lists in a state. */
const maxContainers = 2_000_000;

/**
 * Returns why a state is too large to be in the row of its thread; undefined if it is not. Reads parse the row, and
 * millions of objects take much longer than as many bytes of numbers or text: 20 million take half a minute.
 */
export function findStateFlaw(values: Uint8Array): string | undefined {
  return exceedsValueCount(values, maxContainers, true) ? `more than ${maxContainers} objects and lists` : undefined;
}

const minHeldBytes = 1024;

export class FrameReader {
  readonly #limits: FrameLimits;
  readonly #onFrame: (frame: Frame) => void;
  /**
   * The received beginning of an incomplete frame. The buffer grows by doubling, so that many small reads cost no more
   * than one large read.
   */
  #held = Buffer.alloc(0);
  #heldBytes = 0;

  constructor(limits: FrameLimits, onFrame: (frame: Frame) => void) {
    this.#limits = limits;
    this.#onFrame = onFrame;
  }

  /**
   * Decodes received bytes and passes each complete frame to `onFrame`.
   *
   * @throws WORKER_PROTOCOL_VIOLATED, and errors of `onFrame`. Do not call `push` again after an error.
   */
  push(bytes: Buffer): void {
    let at = 0;
    while (this.#heldBytes > 0) {
      const needed = this.#heldBytes < lengthBytes ? lengthBytes : this.#sizeAt(this.#held, 0);
      if (this.#heldBytes < needed) {
        const missing = bytes.subarray(at, at + needed - this.#heldBytes);
        if (missing.byteLength === 0) return;
        this.#hold(missing, needed);
        at += missing.byteLength;
      } else {
        const frame = this.#held;
        this.#held = Buffer.alloc(0);
        this.#heldBytes = 0;
        this.#emit(frame, 0);
      }
    }
    while (bytes.byteLength - at >= lengthBytes) {
      const size = this.#sizeAt(bytes, at);
      if (bytes.byteLength - at < size) break;
      this.#emit(bytes, at);
      at += size;
    }
    if (at < bytes.byteLength) this.#hold(bytes.subarray(at), lengthBytes);
  }

  #sizeAt(bytes: Buffer, at: number): number {
    const headBytes = bytes.readUInt32LE(at);
    const bodyBytes = bytes.readUInt32LE(at + 4);
    requireSize(headBytes, bodyBytes, this.#limits);
    return lengthBytes + headBytes + bodyBytes;
  }

  #emit(bytes: Buffer, at: number): void {
    const headAt = at + lengthBytes;
    const bodyAt = headAt + bytes.readUInt32LE(at);
    const end = bodyAt + bytes.readUInt32LE(at + 4);
    const head = bytes.subarray(headAt, bodyAt);
    requireFewValues(head, this.#limits);
    this.#onFrame({ head, body: bytes.subarray(bodyAt, end) });
  }

  #hold(bytes: Buffer, neededBytes: number): void {
    const total = this.#heldBytes + bytes.byteLength;
    if (total > this.#held.byteLength) {
      const newCapacity = Math.max(minHeldBytes, total, Math.min(neededBytes, 2 * this.#held.byteLength));
      const held = Buffer.allocUnsafeSlow(newCapacity);
      held.set(this.#held.subarray(0, this.#heldBytes));
      this.#held = held;
    }
    this.#held.set(bytes, this.#heldBytes);
    this.#heldBytes = total;
  }
}

/** Maximum nesting depth of JSON from a worker. */
const maxDepth = 2_000;

/**
 * Checks the JSON text of a worker.
 *
 * @throws WORKER_PROTOCOL_VIOLATED if the bytes are not JSON text, or are nested too deeply.
 */
export function requireJson(bytes: Buffer): void {
  try {
    scanValue(bytes, 0, bytes.byteLength, {
      part: 'a message of the worker',
      maxDepth,
      limit: 'the limit for values of graphs',
    });
  } catch (error) {
    throw createViolationError((isRunlakeError(error) ? error.message : String(error)).replace(/\.$/, ''));
  }
}
