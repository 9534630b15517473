import { isNamedAlike } from '../../streams/stream-event.ts';
import { protocolMode } from '../streams/stream-types.ts';
import { requireJson, violation } from './frames.ts';
import { eventOverheadBytes } from './send-window.ts';
import type { Chunk } from './worker-pool.ts';

/** Consecutive chunks with the same mode, event and namespace, and their number. */
export type ChunkGroup = readonly [mode: string, event: string, namespace: string, chunks: number];

/**
 * Chunks of one run, packed into one buffer for the transfer between two processes. An object and a buffer per chunk
 * would cost both sides more than all other work on the chunk.
 */
export interface PackedChunks {
  readonly chunkGroups: readonly ChunkGroup[];
  /** The data size of each chunk (u32, little endian), followed by the data of all chunks. */
  readonly bytes: Buffer;
}

/** Minimum event size limit in bytes, so that error events always fit. */
export const minEventLimitBytes = 4_096;

const sizeFieldBytes = 4;
const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const openBrace = 0x7b;

export function packChunks(chunks: readonly Chunk[]): PackedChunks {
  const chunkGroups: [string, string, string, number][] = [];
  const sizes = Buffer.allocUnsafe(chunks.length * sizeFieldBytes);
  const data: Uint8Array[] = [sizes];
  for (const [index, chunk] of chunks.entries()) {
    const chunkGroup = chunkGroups.at(-1);
    if (chunkGroup !== undefined && isNamedAlike(chunks[index - 1] as Chunk, chunk)) chunkGroup[3] += 1;
    else chunkGroups.push([chunk.mode, chunk.event, chunk.namespace, 1]);
    sizes.writeUInt32LE(chunk.data.byteLength, index * sizeFieldBytes);
    data.push(chunk.data);
  }
  return { chunkGroups, bytes: Buffer.concat(data) };
}

/** Computes the cost of packed chunks in the send window, without unpacking them. */
export function packedCost({ chunkGroups, bytes }: PackedChunks): number {
  let cost = bytes.byteLength;
  for (const [mode, event, namespace, chunks] of chunkGroups) {
    cost += chunks * (eventOverheadBytes - sizeFieldBytes + mode.length + event.length + namespace.length);
  }
  return cost;
}

/**
 * Validates chunks from a worker: each must be JSON text on one line, of at most `maxEventBytes`.
 *
 * @throws WORKER_PROTOCOL_VIOLATED
 */
export function validatePackedChunks({ chunkGroups, bytes }: PackedChunks, maxEventBytes: number): void {
  const limitBytes = Math.max(maxEventBytes, minEventLimitBytes);
  const count = chunkGroups.reduce((sum, chunkGroup) => sum + chunkGroup[3], 0);
  const dataAt = count * sizeFieldBytes;
  if (dataAt > bytes.byteLength) throw violation('events without their data');
  const data = bytes.subarray(dataAt);
  if (data.includes(lineFeed) || data.includes(carriageReturn)) throw violation('an event of several lines');
  let index = 0;
  let from = dataAt;
  for (const [mode, , , chunks] of chunkGroups) {
    for (let left = chunks; left > 0; left -= 1, index += 1) {
      const size = bytes.readUInt32LE(index * sizeFieldBytes);
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

/** Unpacks chunks that {@link validatePackedChunks} has validated. They share the memory of `bytes`. */
export function unpackChunks({ chunkGroups, bytes }: PackedChunks): Chunk[] {
  const chunks: Chunk[] = [];
  let from = chunkGroups.reduce((sum, chunkGroup) => sum + chunkGroup[3], 0) * sizeFieldBytes;
  for (const [mode, event, namespace, count] of chunkGroups) {
    for (let left = count; left > 0; left -= 1) {
      const to = from + bytes.readUInt32LE(chunks.length * sizeFieldBytes);
      chunks.push({ mode, event, namespace, data: bytes.subarray(from, to) });
      from = to;
    }
  }
  return chunks;
}
