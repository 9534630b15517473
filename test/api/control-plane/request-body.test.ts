import { PassThrough, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { expect, it } from 'vitest';
import { type KeptBytes, RequestBody } from '../../../api/control-plane/request-body.ts';

const createLimits = (): KeptBytes => ({ maxBytes: 500, maxTotalBytes: 650, usedBytes: 0 });
const chunk = (text: string, bytes: number) => Buffer.alloc(bytes, text);

it('is read from its start by each attempt, within the limit of one request', async () => {
  const limits = createLimits();
  const body = new RequestBody(Readable.from([chunk('a', 50), chunk('b', 50)]), limits);
  const expected = Buffer.concat([chunk('a', 50), chunk('b', 50)]);
  expect(await buffer(body.read())).toEqual(expected);
  expect([body.canRestart, limits.usedBytes]).toEqual([true, 500]);
  expect(await buffer(body.read())).toEqual(expected);
  body.stopKeeping();
  expect([body.canRestart, limits.usedBytes]).toEqual([false, 0]);

  const long = new RequestBody(Readable.from([chunk('a', 50), chunk('b', 51)]), limits);
  expect(await buffer(long.read())).toEqual(Buffer.concat([chunk('a', 50), chunk('b', 51)]));
  expect([long.canRestart, limits.usedBytes]).toEqual([false, 0]);
});

it('counts the memory of chunks in addition to their bytes', async () => {
  const limits = createLimits();
  const body = new RequestBody(Readable.from([chunk('a', 1), chunk('b', 1), chunk('c', 1)]), limits);
  expect(await buffer(body.read())).toEqual(Buffer.from('abc'));
  expect([body.canRestart, limits.usedBytes]).toEqual([false, 0]);
});

it('is kept within the limit of all requests', async () => {
  const limits = createLimits();
  const bodies = Array.from({ length: 4 }, () => new RequestBody(Readable.from([chunk('a', 90)]), limits));
  for (const body of bodies) expect(await buffer(body.read())).toEqual(chunk('a', 90));
  expect(bodies.map(({ canRestart }) => canRestart)).toEqual([true, true, false, false]);
  expect(limits.usedBytes).toBe(580);
  for (const body of bodies) body.stopKeeping();
  expect(limits.usedBytes).toBe(0);
});

it('is complete if it exceeds the limit while a second attempt reads what is kept', async () => {
  const source = new PassThrough({ objectMode: true });
  const [a, b, c] = [chunk('a', 40), chunk('b', 40), chunk('c', 40)];
  const body = new RequestBody(source, createLimits());
  source.write(a);
  source.write(b);
  const first = body.read();
  expect([(await first.next()).value, (await first.next()).value]).toEqual([a, b]);
  // The replica refuses the request while the next chunk is awaited.
  const awaited = first.next();
  const second = body.read();
  expect((await second.next()).value).toEqual(a);
  source.end(c);
  expect((await awaited).done).toBe(true);
  expect(await buffer(second)).toEqual(Buffer.concat([b, c]));
  expect(body.canRestart).toBe(false);
});
