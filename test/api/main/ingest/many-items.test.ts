import { randomUUID } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { Rejections } from '../../../../pipelines/ingest/accept/draft.ts';
import { boundary, multipartType, rootRun, shareWire } from './wire.ts';

const { wire } = shareWire({ config: { maxBodyBytes: 40_000_000, maxCollectingBytes: 50_000_000 } });

const delimited = (tag: number, bytes: Buffer) => {
  const length: number[] = [];
  for (let rest = bytes.length; ; rest >>>= 7) {
    length.push(rest > 127 ? (rest & 127) | 128 : rest);
    if (rest <= 127) return Buffer.concat([Buffer.from([tag, ...length]), bytes]);
  }
};
const json = 'application/json';
const protobuf = 'application/x-protobuf';
const emptyElements = (tag: number, count: number) => Buffer.concat(Array(count).fill(Buffer.from([tag, 0])));

describe('the memory of many small items counts, not only the bytes of the body', () => {
  test.each<[string, string, string, (count: number) => string | Buffer]>([
    ['values that are not runs', '/runs/batch', json, (count) => `{"post":[${Array(count).fill('0').join(',')}]}`],
    ['patches', '/runs/batch', json, (count) => `{"patch":[${Array(count).fill('{}').join(',')}]}`],
    [
      'parts',
      '/runs/multipart',
      multipartType,
      (count) =>
        `${`--${boundary}\r\nContent-Disposition: form-data; name="x"\r\n\r\n\r\n`.repeat(count)}--${boundary}--\r\n`,
    ],
    [
      'spans in protobuf',
      '/otel/v1/traces',
      protobuf,
      (count) => delimited(0x0a, delimited(0x12, emptyElements(0x12, count))),
    ],
    ['scopes in protobuf', '/otel/v1/traces', protobuf, (count) => delimited(0x0a, emptyElements(0x12, count))],
    [
      'spans in JSON',
      '/otel/v1/traces',
      json,
      (count) => `{"resourceSpans":[{"scopeSpans":[{"spans":[${Array(count).fill('{}').join(',')}]}]}]}`,
    ],
  ])('%s', async (_name, path, type, build) => {
    const send = (count: number) => {
      const body = gzipSync(build(count));
      return wire.send('POST', path, body, { 'content-type': type, 'content-encoding': 'gzip' });
    };
    const many = await send(99_000);
    expect([many.status, many.text]).toEqual([413, expect.stringContaining('half of RUNLAKE_MEMORY_BYTES')]);
    expect((await send(9_000)).status).not.toBe(413);
  });

  test('a refused body returns the memory of its items', async () => {
    const post = Array.from({ length: 9_000 }, () => rootRun());
    expect((await wire.json('POST', '/runs/batch', { post })).status).toBe(202);
  });
});

test('keeps one error per code for rejections that no response lists', () => {
  const rejected = new Rejections();
  for (let index = 0; index < 300; index++) rejected.addInconsistentRun(randomUUID(), `reason ${index}`);
  expect(rejected.items).toHaveLength(300);
  expect(new Set(rejected.items.map(({ run }) => run)).size).toBe(300);
  expect(new Set(rejected.items.map(({ error }) => error)).size).toBe(100);
});
