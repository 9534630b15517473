import { expect, it } from 'vitest';
import { runWithMemory } from '../../../infra/fairness/tenant-context.ts';
import { createChunkReserver } from '../../../pipelines/datasets/stream-version.ts';

const mib = 1024 ** 2;

it('all chunks of a response are within the memory that is reserved for it, also after its handler has ended', () => {
  let reservedBytes = 0;
  const createReserver = () =>
    runWithMemory((_heapBytes, bufferBytes = 0) => (reservedBytes += bufferBytes), createChunkReserver);
  const reserve = createReserver();
  for (const [chunkMib, reservedMib] of [
    [1, 0],
    [2, 0],
    [3, 32],
    [16, 32],
    [8, 32],
    [25, 50],
    [25, 50],
    [16, 50],
  ] as const) {
    reserve(chunkMib * mib);
    expect([chunkMib, reservedBytes / mib]).toEqual([chunkMib, reservedMib]);
  }
  createReserver()(25 * mib);
  expect(reservedBytes / mib).toBe(100);
});
