import type { Chunk } from './worker-pool.ts';

/**
 * Chunks of one run on their way between two processes, in one piece: an object and a buffer for each would cost both sides more than
 * everything else that they do for it.
 */
export interface PackedChunks {
  /** Each mode, event and namespace that occurs. */
  readonly kinds: readonly (readonly [mode: string, event: string, namespace: string])[];
  /** Chunks of a kind that follow each other: the place of the kind in `kinds`, and how many. */
  readonly stretches: readonly (readonly [place: number, chunks: number])[];
  /** Bytes of each chunk. */
  readonly sizes: Uint32Array;
  /** All of their data. */
  readonly data: Uint8Array;
}

export function packChunks(chunks: readonly Chunk[]): PackedChunks {
  const kinds: [string, string, string][] = [];
  const stretches: [number, number][] = [];
  const sizes = new Uint32Array(chunks.length);
  let bytes = 0;
  for (const [index, chunk] of chunks.entries()) {
    sizes[index] = chunk.data.byteLength;
    bytes += chunk.data.byteLength;
    const stretch = stretches.at(-1);
    if (stretch !== undefined && isAlike(chunks[index - 1] as Chunk, chunk)) {
      stretch[1] += 1;
      continue;
    }
    const { mode, event, namespace } = chunk;
    const place = kinds.findIndex((kind) => kind[0] === mode && kind[1] === event && kind[2] === namespace);
    stretches.push([place >= 0 ? place : kinds.push([mode, event, namespace]) - 1, 1]);
  }
  const data = chunks.map((chunk) => chunk.data);
  return { kinds, stretches, sizes, data: data.length === 1 ? (data[0] as Uint8Array) : Buffer.concat(data, bytes) };
}

/** The chunks share the memory of `data`. */
export function unpackChunks({ kinds, stretches, sizes, data }: PackedChunks): Chunk[] {
  const chunks: Chunk[] = [];
  let from = 0;
  for (const [place, count] of stretches) {
    const [mode, event, namespace] = kinds[place] as (typeof kinds)[number];
    for (let left = count; left > 0; left -= 1) {
      const to = from + (sizes[chunks.length] as number);
      chunks.push({ mode, event, namespace, data: data.subarray(from, to) });
      from = to;
    }
  }
  return chunks;
}

function isAlike(one: Chunk, other: Chunk): boolean {
  return one.mode === other.mode && one.event === other.event && one.namespace === other.namespace;
}
