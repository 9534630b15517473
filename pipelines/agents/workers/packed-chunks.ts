import { isNamedAlike } from '../../streams/stream-event.ts';
import { protocolMode } from '../protocol/protocol-mode.ts';
import { requireJson, violation } from './frames.ts';
import { eventOverheadBytes } from './send-window.ts';
import type { Chunk } from './worker-pool.ts';

/** Chunks that follow each other and have their names in common: the names, and how many chunks there are. */
export type Stretch = readonly [mode: string, event: string, namespace: string, chunks: number];

/**
 * Chunks of one run on their way between two processes, in one piece: an object and a buffer for each would cost both sides more than
 * everything else that they do for it.
 */
export interface PackedChunks {
  readonly stretches: readonly Stretch[];
  /** Size of the data of each chunk (u32, little endian), then the data of all. */
  readonly bytes: Buffer;
}

/** Errors that take the place of events may have so many bytes, however small events have to be. */
export const minEventLimitBytes = 4_096;

const sizeBytes = 4;
const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const openBrace = 0x7b;

export function packChunks(chunks: readonly Chunk[]): PackedChunks {
  const stretches: [string, string, string, number][] = [];
  const sizes = Buffer.allocUnsafe(chunks.length * sizeBytes);
  const data: Uint8Array[] = [sizes];
  for (const [index, chunk] of chunks.entries()) {
    const stretch = stretches.at(-1);
    if (stretch !== undefined && isNamedAlike(chunks[index - 1] as Chunk, chunk)) stretch[3] += 1;
    else stretches.push([chunk.mode, chunk.event, chunk.namespace, 1]);
    sizes.writeUInt32LE(chunk.data.byteLength, index * sizeBytes);
    data.push(chunk.data);
  }
  return { stretches, bytes: Buffer.concat(data) };
}

/** What the chunks cost of the send window, without unpacking them. */
export function packedCost({ stretches, bytes }: PackedChunks): number {
  let cost = bytes.byteLength;
  for (const [mode, event, namespace, chunks] of stretches) {
    cost += chunks * (eventOverheadBytes - sizeBytes + mode.length + event.length + namespace.length);
  }
  return cost;
}

/**
 * Checks what a worker sent as chunks: each is JSON text on one line and not larger than `maxEventBytes`.
 *
 * @throws WORKER_PROTOCOL_VIOLATED
 */
export function requirePacked({ stretches, bytes }: PackedChunks, maxEventBytes: number): void {
  const limitBytes = Math.max(maxEventBytes, minEventLimitBytes);
  const count = stretches.reduce((sum, stretch) => sum + stretch[3], 0);
  const dataAt = count * sizeBytes;
  if (dataAt > bytes.byteLength) throw violation('events without their data');
  const data = bytes.subarray(dataAt);
  if (data.includes(lineFeed) || data.includes(carriageReturn)) throw violation('an event of several lines');
  let index = 0;
  let from = dataAt;
  for (const [mode, , , chunks] of stretches) {
    for (let left = chunks; left > 0; left -= 1, index += 1) {
      const size = bytes.readUInt32LE(index * sizeBytes);
      if (size > limitBytes) throw violation(`an event of ${size} bytes`);
      if (from + size > bytes.byteLength) throw violation('events without their data');
      requireJson(bytes, from, from + size);
      if (mode === protocolMode && bytes[from] !== openBrace)
        throw violation('an event of the protocol without params');
      from += size;
    }
  }
  if (from !== bytes.byteLength) throw violation('data without an event');
}

/** The chunks share the memory of `bytes`, which {@link requirePacked} has let pass. */
export function unpackChunks({ stretches, bytes }: PackedChunks): Chunk[] {
  const chunks: Chunk[] = [];
  let from = stretches.reduce((sum, stretch) => sum + stretch[3], 0) * sizeBytes;
  for (const [mode, event, namespace, count] of stretches) {
    for (let left = count; left > 0; left -= 1) {
      const to = from + bytes.readUInt32LE(chunks.length * sizeBytes);
      chunks.push({ mode, event, namespace, data: bytes.subarray(from, to) });
      from = to;
    }
  }
  return chunks;
}
