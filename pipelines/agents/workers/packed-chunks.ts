import type { Chunk } from './worker-pool.ts';

/**
 * Chunks of one run on their way between two processes, in one piece: an object and a buffer for each would cost both sides more than
 * everything else that they do for it.
 */
export interface PackedChunks {
  /** Each mode, event and namespace that occurs. */
  readonly kinds: readonly (readonly [mode: string, event: string, namespace: string])[];
  /** For each chunk, in order: the place of its kind in `kinds`, and its bytes. */
  readonly places: readonly number[];
  readonly sizes: readonly number[];
  /** All of their data. */
  readonly data: Uint8Array;
}

export function packChunks(chunks: readonly Chunk[]): PackedChunks {
  const kinds: [string, string, string][] = [];
  const places: number[] = [];
  const sizes: number[] = [];
  let last: Chunk | undefined;
  let place = 0;
  for (const chunk of chunks) {
    if (last === undefined || !isAlike(last, chunk)) {
      const { mode, event, namespace } = chunk;
      place = kinds.findIndex((kind) => kind[0] === mode && kind[1] === event && kind[2] === namespace);
      if (place < 0) place = kinds.push([mode, event, namespace]) - 1;
    }
    last = chunk;
    places.push(place);
    sizes.push(chunk.data.byteLength);
  }
  const [only] = chunks;
  const data =
    chunks.length === 1 && only !== undefined
      ? only.data
      : Buffer.concat(
          chunks.map((chunk) => chunk.data),
          sizes.reduce((sum, size) => sum + size, 0),
        );
  return { kinds, places, sizes, data };
}

/** The chunks share the memory of `data`. */
export function unpackChunks({ kinds, places, sizes, data }: PackedChunks): Chunk[] {
  let from = 0;
  return sizes.map((size, index) => {
    const [mode, event, namespace] = kinds[places[index] as number] as (typeof kinds)[number];
    const to = from + size;
    const chunk = { mode, event, namespace, data: data.subarray(from, to) };
    from = to;
    return chunk;
  });
}

function isAlike(one: Chunk, other: Chunk): boolean {
  return one.mode === other.mode && one.event === other.event && one.namespace === other.namespace;
}
