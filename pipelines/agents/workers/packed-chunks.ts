import { isNamedAlike } from '../../streams/stream-event.ts';
import type { Chunk } from './worker-pool.ts';

/**
 * Chunks of one run on their way between two processes, in one piece: an object and a buffer for each would cost both sides more than
 * everything else that they do for it.
 */
export interface PackedChunks {
  /** Chunks that follow each other and are named alike: their names, and how many they are. */
  readonly stretches: readonly (readonly [mode: string, event: string, namespace: string, chunks: number])[];
  /** Bytes of each chunk. */
  readonly sizes: Uint32Array;
  /** All of their data. */
  readonly data: Uint8Array;
}

export function packChunks(chunks: readonly Chunk[]): PackedChunks {
  const stretches: [string, string, string, number][] = [];
  for (const [index, chunk] of chunks.entries()) {
    const stretch = stretches.at(-1);
    if (stretch !== undefined && isNamedAlike(chunks[index - 1] as Chunk, chunk)) stretch[3] += 1;
    else stretches.push([chunk.mode, chunk.event, chunk.namespace, 1]);
  }
  const data = chunks.map((chunk) => chunk.data);
  return { stretches, sizes: Uint32Array.from(data, (each) => each.byteLength), data: Buffer.concat(data) };
}

/** The chunks share the memory of `data`. */
export function unpackChunks({ stretches, sizes, data }: PackedChunks): Chunk[] {
  const chunks: Chunk[] = [];
  let from = 0;
  for (const [mode, event, namespace, count] of stretches) {
    for (let left = count; left > 0; left -= 1) {
      const to = from + (sizes[chunks.length] as number);
      chunks.push({ mode, event, namespace, data: data.subarray(from, to) });
      from = to;
    }
  }
  return chunks;
}
