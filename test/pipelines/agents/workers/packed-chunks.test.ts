import { deserialize, serialize } from 'node:v8';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { packChunks, unpackChunks } from '../../../../pipelines/agents/workers/packed-chunks.ts';
import type { Chunk } from '../../../../pipelines/agents/workers/worker-pool.ts';

const name = fc.constantFrom('', 'values', 'custom', 'a:1|b:2');
const chunk = fc.record({
  mode: name,
  event: name,
  namespace: name,
  data: fc.uint8Array({ maxLength: 50 }).map((bytes) => Buffer.from(bytes)),
});

describe('chunks on their way between processes', () => {
  it('come out as they went in, in their order', () => {
    fc.assert(
      fc.property(fc.array(chunk, { maxLength: 60 }), (chunks) => {
        const unpacked = unpackChunks(deserialize(serialize(packChunks(chunks))));
        const shown = (list: readonly Chunk[]) =>
          list.map((each) => ({ ...each, data: Buffer.from(each.data).toString('hex') }));
        expect(shown(unpacked)).toEqual(shown(chunks));
      }),
    );
  });
});
