import http from 'node:http';
import { PassThrough, Readable } from 'node:stream';
import { deflateSync, gzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished } from 'vitest';
import { BodyBudget } from '../../../../pipelines/ingest/body/body-budget.ts';
import { BodyChunks } from '../../../../pipelines/ingest/body/body-chunks.ts';
import { collectBody } from '../../../../pipelines/ingest/body/collect.ts';
import { listenOnLoopback } from '../../../infra/listen-on-loopback.ts';
import { sample, samples } from './zstd/samples.fixture.ts';

const options = {
  maxBytes: 1_000_000,
  limitName: 'RUNLAKE_MAX_BODY_BYTES',
  timeoutMs: 20_000,
};
const collect = (chunks: readonly Buffer[], contentEncoding?: string, maxBytes = options.maxBytes) =>
  collectBody(Readable.from(chunks, { objectMode: false }), { ...options, maxBytes, contentEncoding });

/** Splits bytes into random chunks, as a network does. */
function chunks(bytes: Buffer, size: number): Buffer[] {
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) =>
    bytes.subarray(index * size, (index + 1) * size),
  );
}

const content = samples['json-1']!.content();
const zstd = sample('json-1');
const zeros = Buffer.alloc(300_000);

describe('bodies', () => {
  it.each<[string, string | undefined, Buffer, Buffer]>([
    ['plain', undefined, content, content],
    ['empty', undefined, Buffer.alloc(0), Buffer.alloc(0)],
    ['identity', 'identity', content, content],
    ['gzip', 'gzip', gzipSync(content), content],
    ['gzip in capitals with spaces', ' GZip ', gzipSync(content), content],
    ['x-gzip', 'x-gzip', gzipSync(content), content],
    ['gzip of nothing', 'gzip', gzipSync(''), Buffer.alloc(0)],
    [
      'gzip in two members',
      'gzip',
      Buffer.concat([gzipSync(content), gzipSync(zeros)]),
      Buffer.concat([content, zeros]),
    ],
    ['deflate', 'deflate', deflateSync(content), content],
    ['zstd', 'zstd', zstd, content],
    ['zstd in two frames', 'zstd', Buffer.concat([zstd, zstd]), Buffer.concat([content, content])],
    ['zstd named beside identity', 'identity, zstd', zstd, content],
  ])('are decoded: %s', async (_, encoding, body, expected) => {
    for (const size of [11, 997, 65_536]) {
      expect((await collect(chunks(body, size), encoding)).equals(expected)).toBe(true);
    }
  });

  it('block the event loop no longer if many are decoded at once', async () => {
    // Empty blocks, which take long in comparison with their output.
    const frame = Buffer.alloc(6 + 300_000 * 3);
    frame.set([0x28, 0xb5, 0x2f, 0xfd]);
    const body = Buffer.concat([frame, Buffer.from([1, 0, 0])]);
    // The first body loads the decoder.
    await collect([body], 'zstd', body.length);
    const turns: number[] = [];
    let before = process.cpuUsage();
    const measureTurn = () => {
      const { user, system } = process.cpuUsage(before);
      turns.push((user + system) / 1_000);
      before = process.cpuUsage();
      turn = setImmediate(measureTurn);
    };
    const decoded = Array.from({ length: 100 }, () => collect([body], 'zstd', body.length));
    let turn = setImmediate(measureTurn);
    for (const each of decoded) expect(await each).toHaveLength(0);
    clearImmediate(turn);
    // The first turn reads all bodies. A time slice takes 5 ms, a hundredth of all; a turn with one of each body would take
    // most of the time.
    const totalMs = turns.reduce((sum, ms) => sum + ms, 0);
    expect(Math.max(...turns.slice(1))).toBeLessThan(totalMs / 10);
  });

  it('are kept in few buffers, whatever the size of their chunks', () => {
    for (const sizes of [[1], [4_095, 4_096], [4_096, 1], [1, 70_000, 1, 1], [0, 3_000]]) {
      const received = new BodyChunks({ maxBytes: 2_000_000, limitName: 'none' });
      const sent: Buffer[] = [];
      for (let bytes = 0, index = 0; bytes < 1_000_000; index++) {
        const chunk = Buffer.alloc(sizes[index % sizes.length]!, index);
        bytes += chunk.length;
        sent.push(chunk);
        received.append(chunk);
      }
      const expected = Buffer.concat(sent);
      const list = received.list();
      expect(list.length).toBeLessThan(500);
      // A section of a block keeps the whole block in memory.
      const heldBytes = [...new Set(list.map(({ buffer }) => buffer))].reduce(
        (sum, { byteLength }) => sum + byteLength,
        0,
      );
      expect(heldBytes).toBeLessThan(1.3 * expected.length);
      expect(received.join().equals(expected)).toBe(true);
    }
  });

  it('may arrive slowly while their organisation holds much of the memory', async () => {
    const budget = new BodyBudget(1_000_000);
    budget.open('a', () => undefined).take(600_000);
    const share = budget.open('a', () => undefined);
    const startedAtMs = performance.now();
    const body = await collectBody(Readable.from(chunks(zeros, 50_000), { objectMode: false }), {
      ...options,
      contentEncoding: undefined,
      share,
    });
    expect(body).toHaveLength(300_000);
    // The rate is two megabytes per second.
    expect(performance.now() - startedAtMs).toBeGreaterThan(100);
  });

  it('are read up to the limit and not beyond, before and after decompression', async () => {
    const limit = { code: 'BODY_TOO_LARGE', message: 'The body is larger than 300000 bytes (RUNLAKE_MAX_BODY_BYTES).' };
    expect(await collect([zeros], undefined, 300_000)).toHaveLength(300_000);
    await expect(collect([zeros, Buffer.alloc(1)], undefined, 300_000)).rejects.toMatchObject(limit);
    expect(await collect([gzipSync(zeros)], 'gzip', 300_000)).toHaveLength(300_000);
    await expect(collect([gzipSync(Buffer.alloc(300_001))], 'gzip', 300_000)).rejects.toMatchObject(limit);
    expect(await collect([zstd], 'zstd', content.length)).toHaveLength(content.length);
    await expect(collect([zstd], 'zstd', content.length - 1)).rejects.toMatchObject({ code: 'BODY_TOO_LARGE' });
    await expect(collect([sample('repeats')], 'zstd', 10_000)).rejects.toMatchObject({ code: 'BODY_TOO_LARGE' });
  });
});

describe('errors', () => {
  it.each<[string, string, Buffer, string]>([
    ['truncated gzip', 'gzip', gzipSync(content).subarray(0, -9), 'unexpected end of file'],
    ['gzip with a truncated trailer', 'gzip', gzipSync(content).subarray(0, -1), 'unexpected end of file'],
    [
      'gzip with a truncated second member',
      'gzip',
      Buffer.concat([gzipSync('a'), gzipSync('b').subarray(0, -3)]),
      'unexpected end of file',
    ],
    ['invalid gzip', 'gzip', content, 'incorrect header check'],
    [
      'gzip with a wrong checksum',
      'gzip',
      Buffer.concat([gzipSync(content).subarray(0, -8), Buffer.alloc(8)]),
      'incorrect data check',
    ],
    ['empty gzip', 'gzip', Buffer.alloc(0), 'unexpected end of file'],
    ['invalid deflate', 'deflate', content, 'incorrect header check'],
    ['truncated deflate', 'deflate', deflateSync(content).subarray(0, -1), 'unexpected end of file'],
    ['truncated zstd', 'zstd', zstd.subarray(0, -1), 'the stream ends early'],
    [
      'zstd with a truncated second frame',
      'zstd',
      Buffer.concat([zstd, zstd.subarray(0, -1)]),
      'the stream ends early',
    ],
    ['invalid zstd', 'zstd', content, 'no frame begins where one is expected'],
    ['empty zstd', 'zstd', Buffer.alloc(0), 'the stream is empty'],
  ])('%s', async (_, encoding, body, reason) => {
    for (const size of [100, 65_536]) {
      await expect(collect(chunks(body, size), encoding)).rejects.toMatchObject({
        code: 'INVALID_COMPRESSION',
        status: 422,
        message: expect.stringContaining(reason),
      });
    }
  });

  it.each(['br', 'gzip, br', 'compress', 'gzip;q=1', 'gzip, gzip', 'zstd, gzip', 'aes128gcm'])(
    'encoding %s',
    async (encoding) => {
      const stream = new PassThrough();
      const answer = collectBody(stream, { ...options, contentEncoding: encoding });
      await expect(answer).rejects.toMatchObject({
        code: 'UNSUPPORTED_ENCODING',
        status: 415,
        remedy: 'Send the body plain, with gzip or with zstd.',
      });
      // The remaining bytes are read and discarded.
      for (let chunk = 0; chunk < 100; chunk++) stream.write(Buffer.alloc(65_536));
      stream.end();
      await new Promise((resolve) => stream.once('end', resolve));
    },
  );

  it('a body that does not arrive in time', async () => {
    const stream = new PassThrough();
    stream.write('{');
    await expect(collectBody(stream, { ...options, contentEncoding: undefined, timeoutMs: 50 })).rejects.toMatchObject({
      code: 'REQUEST_TIMEOUT',
      message: 'The request did not arrive within 50 ms.',
    });
    stream.destroy(new Error('later, without listeners'));
  });

  it('a body that is displaced', async () => {
    const displaced = new AbortController();
    const stream = new PassThrough();
    const answer = collectBody(stream, { ...options, contentEncoding: undefined, signal: displaced.signal });
    stream.write('{');
    displaced.abort(new Error('displaced'));
    await expect(answer).rejects.toThrow('displaced');
    stream.write('}');
    expect(stream.listenerCount('data')).toBe(0);
  });

  it('a body that arrives slowly, but fast enough, is accepted', async () => {
    const stream = new PassThrough();
    const progress = { bytes: 2, windowMs: 200 };
    const answer = collectBody(stream, { ...options, contentEncoding: undefined, progress });
    for (let sent = 0; sent < 40; sent += 1) {
      stream.write('xx');
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    stream.end();
    expect(await answer).toHaveLength(80);
  });

  it.each([undefined, 'gzip', 'zstd'])('a client that disconnects (%s)', async (contentEncoding) => {
    for (const error of [undefined, new Error('reset')]) {
      const stream = new PassThrough();
      const answer = collectBody(stream, { ...options, contentEncoding });
      stream.write((contentEncoding === 'gzip' ? gzipSync(content) : zstd).subarray(0, 100));
      setImmediate(() => stream.destroy(error));
      await expect(answer).rejects.toMatchObject({ code: 'BAD_REQUEST' });
      expect(stream.listenerCount('data')).toBe(0);
    }
    const closed = new PassThrough();
    closed.destroy();
    await expect(collectBody(closed, { ...options, contentEncoding })).rejects.toMatchObject({ code: 'BAD_REQUEST' });
  });
});

describe('decompression bombs', () => {
  const endless = (first: Buffer, again: Buffer) => {
    let sent = 0;
    const stream = Readable.from(
      (function* () {
        yield first;
        for (; sent < 10_000; sent++) yield again;
      })(),
      { objectMode: false },
    );
    return { stream, sent: () => sent };
  };

  const bombs: [string, Buffer][] = [
    ['gzip', gzipSync(Buffer.alloc(20_000_000))],
    ['zstd', sample('zeros')],
  ];

  it.each(bombs)('of endless %s are stopped at the limit for received bytes', async (contentEncoding, bomb) => {
    const { stream, sent } = endless(bomb, bomb);
    let sentAtStop = -1;
    const answer = collectBody(stream, { ...options, maxBytes: 100_000, contentEncoding }).catch((error) => {
      sentAtStop = sent();
      return error;
    });
    expect(await answer).toMatchObject({ code: 'BODY_TOO_LARGE' });
    expect(sentAtStop).toBeLessThan(5_000);
    stream.destroy();
  });

  it.each(bombs)('of %s are decompressed up to the limit and no further', async (contentEncoding, bomb) => {
    const share = new BodyBudget(100_000_000).open('a', () => undefined);
    const stream = Readable.from([bomb], { objectMode: false });
    const answer = collectBody(stream, { ...options, maxBytes: 1_000_000, contentEncoding, share });
    await expect(answer).rejects.toMatchObject({ code: 'BODY_TOO_LARGE' });
    expect(share.bytes).toBeGreaterThan(500_000);
    expect(share.bytes).toBeLessThanOrEqual(1_000_000);
    share.close();
    expect(share.bytes).toBe(0);
  });

  it.each(bombs)('of %s with a withheld end hold no more memory than has arrived', async (contentEncoding, bomb) => {
    const share = new BodyBudget(100_000_000).open('a', () => undefined);
    const stream = new PassThrough();
    const answer = collectBody(stream, {
      ...options,
      contentEncoding,
      share,
      progress: { bytes: bomb.length, windowMs: 100 },
    });
    stream.write(bomb.subarray(0, -1));
    await expect(answer).rejects.toMatchObject({ code: 'BODY_TOO_SLOW', status: 408 });
    expect(share.bytes).toBe(bomb.length - 1);
    expect(stream.listenerCount('data')).toBe(0);
  });

  it('of zstd do not block the event loop', async () => {
    let turns = 0;
    let maxMs = 0;
    const startMs = performance.now();
    let last = startMs;
    const ticking = setInterval(() => {
      turns++;
      maxMs = Math.max(maxMs, performance.now() - last);
      last = performance.now();
    }, 1);
    const bytes = Buffer.concat(new Array<Buffer>(10).fill(sample('repeats')));
    expect(await collect([bytes], 'zstd', 300_000_000)).toHaveLength(200_000_000);
    clearInterval(ticking);
    expect(turns).toBeGreaterThan(10);
    // Compare with the total time, not with a fixed limit, because everything takes longer on a busy machine.
    expect(maxMs).toBeLessThan((performance.now() - startMs) / 2);
  });
});

describe('over HTTP', () => {
  it('rejects a body that is too large while the client is still sending it', async () => {
    const server = http.createServer(async (request, response) => {
      const body = await collectBody(request, {
        ...options,
        contentEncoding: request.headers['content-encoding'],
      }).catch((error: { status: number }) => error.status);
      response.writeHead(typeof body === 'number' ? body : 200, { connection: 'close' }).end();
    });
    const port = await listenOnLoopback(server);
    onTestFinished(() => new Promise((resolve) => server.close(() => resolve())));
    const status = await new Promise<number | undefined>((resolve, reject) => {
      const request = http.request({ port, method: 'POST' }, (response) => resolve(response.resume().statusCode));
      request.on('error', reject);
      for (let chunk = 0; chunk < 30; chunk++) request.write(Buffer.alloc(100_000));
      request.end();
    });
    expect(status).toBe(413);
  });
});
