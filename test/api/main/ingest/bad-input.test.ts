import { randomUUID } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { describe, expect, test, vi } from 'vitest';
import { attributes, request, span } from '../../../pipelines/ingest/otlp/requests.ts';
import { addKey } from '../../start-api.ts';
import { boundary, buildPostParts, multipart, multipartType, rootRun, shareWire, Wire } from './wire.ts';

const config = { maxBodyBytes: 32 * 1024 * 1024, maxRunBytes: 2 * 1024 * 1024, patchWaitMs: 50 };
// Test threads have a larger stack than the process, so recursion must be deeper to overflow it.
const { api, own, wire } = shareWire({ config: { ...config, maxJsonDepth: 32_000 } });

const post = (run: Record<string, unknown> & { id: string }) => wire.multipart(multipart(buildPostParts(run)));
const zeroZstd = Buffer.from('28b52ffd0058', 'hex');

describe('multipart bodies', () => {
  const run = rootRun();
  const parts = buildPostParts(run);
  const whole = multipart(parts);
  test.each<[string, () => Buffer, Record<string, string>, number, RegExp]>([
    ['truncated inside a part', () => whole.subarray(0, whole.length - 80), {}, 422, /closing boundary|ends/],
    [
      'without the closing boundary',
      () => whole.subarray(0, whole.indexOf(`\r\n--${boundary}--`)),
      {},
      422,
      /closing boundary|ends/,
    ],
    ['empty', () => Buffer.alloc(0), {}, 422, /boundary/],
    [
      'with another boundary than in the header',
      () => whole,
      { 'content-type': 'multipart/form-data; boundary=other' },
      422,
      /boundary/,
    ],
    ['without a boundary', () => whole, { 'content-type': 'multipart/form-data' }, 422, /boundary/],
    ['with the content type of JSON', () => whole, { 'content-type': 'application/json' }, 415, /multipart/],
    ['with a repeated field', () => multipart([...parts, ...parts.slice(1)]), {}, 202, /inputs' is repeated/],
    [
      'with a wrong length',
      () => Buffer.from(whole.toString().replace(/length=\d+/, 'length=3')),
      {},
      422,
      /bytes|length/,
    ],
    [
      'with a part that is not JSON',
      () => multipart([[`post.${run.id}`, '{"id":']]),
      {},
      422,
      new RegExp(`post.${run.id}`),
    ],
    [
      'with invalid UTF-8',
      () => multipart([[`post.${run.id}`, Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d])]]),
      {},
      422,
      /UTF-8.*byte 2/,
    ],
    [
      'with a raw surrogate',
      () =>
        multipart([
          ...buildPostParts(run).slice(0, 1),
          [`post.${run.id}.outputs`, Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22])],
        ]),
      {},
      422,
      /outputs.*byte 1/,
    ],
    ['with only a field of a run', () => multipart([[`post.${run.id}.inputs`, '{}']]), {}, 400, /missing/],
    ['with an unknown kind of part', () => multipart([['get.everything', '{}']]), {}, 400, /get.everything/],
    ['with a malformed id in a part name', () => multipart([['post.not-an-id', '{}']]), {}, 400, /UUID/],
    ['that is declared as gzip but is not', () => whole, { 'content-encoding': 'gzip' }, 422, /gzip/],
    ['with truncated gzip', () => gzipSync(whole).subarray(0, 60), { 'content-encoding': 'gzip' }, 422, /gzip/],
    ['that is declared as zstd but is not', () => whole, { 'content-encoding': 'zstd' }, 422, /zstd/],
    ['with a zstd frame that has only a header', () => zeroZstd, { 'content-encoding': 'zstd' }, 422, /zstd/],
    ['with an unknown encoding', () => whole, { 'content-encoding': 'rot13' }, 415, /rot13/],
    [
      'that exceeds the limit after decompression',
      () => gzipSync(Buffer.alloc(64 * 1024 * 1024)),
      { 'content-encoding': 'gzip' },
      413,
      /RUNLAKE_MAX_BODY_BYTES/,
    ],
    ['above the limit', () => Buffer.alloc(33 * 1024 * 1024), {}, 413, /RUNLAKE_MAX_BODY_BYTES/],
  ])('rejects a body %s', async (_name, body, headers, status, words) => {
    const answer = await wire.multipart(body(), headers);
    expect([answer.status, answer.text]).toEqual([status, expect.stringMatching(words)]);
  });

  test('rejects 100,001 parts, but accepts 100,000', async () => {
    const parts = Array.from({ length: 100_001 }, (_, index) => [`x${index}`, '1'] as const);
    const answer = await wire.multipart(multipart(parts));
    expect([answer.status, answer.text]).toEqual([413, expect.stringMatching(/100000 parts/)]);
  });
});

describe('a run', () => {
  const other = randomUUID();
  const child = (overrides: Record<string, unknown>) => {
    const parent = rootRun();
    const id = randomUUID();
    return {
      ...rootRun({ id }),
      trace_id: parent.id,
      dotted_order: `${parent.dotted_order}.${rootRun({ id }).dotted_order}`,
      parent_run_id: parent.id,
      ...overrides,
    };
  };
  const years = (count: number) => Date.now() * 1_000 + count * 365.25 * 86_400_000_000;
  const startedAt = (micros: number) => {
    const time = new Date(micros / 1_000).toISOString();
    const id = randomUUID();
    return rootRun({ id, start_time: time, dotted_order: `${time.replace(/[-:.Z]/g, '')}000Z${id}` });
  };
  test.each<[string, () => Record<string, unknown> & { id: string }, RegExp]>([
    ['of an unknown type', () => rootRun({ run_type: 'agent' }), /run_type 'agent' is not one of tool, chain/],
    ['without dotted_order', () => rootRun({ dotted_order: undefined }), /dotted_order is missing/],
    ['with a malformed dotted_order', () => rootRun({ dotted_order: 'yesterday' }), /dotted_order/],
    ['whose dotted_order ends with another run', () => ({ ...rootRun(), id: other }), /dotted_order ends with run/],
    ['whose trace_id is not the start of dotted_order', () => rootRun({ trace_id: other }), /dotted_order begins with/],
    [
      'whose parent is not the one in dotted_order',
      () => child({ parent_run_id: other }),
      /dotted_order names the parent/,
    ],
    ['that is a root with a parent', () => rootRun({ parent_run_id: other }), /dotted_order is that of a root/],
    [
      'that ends before it starts',
      () => rootRun({ end_time: '2001-01-01T00:00:00Z' }),
      /end_time.*an hour before start_time/,
    ],
    [
      'of 1970',
      () => startedAt(86_400_000_000),
      /start_time 1970-01-02.* is outside the accepted range, .*RUNLAKE_MAX_RUN_AGE_DAYS/,
    ],
    ['of ten years ago', () => startedAt(years(-10)), /outside the accepted range.*RUNLAKE_MAX_RUN_AGE_DAYS/],
    ['of next month', () => startedAt(years(0.1)), /outside the accepted range/],
    [
      'with a time that does not exist',
      () => rootRun({ start_time: '2026-02-30T00:00:00Z' }),
      /start_time must be a time/,
    ],
    ['with a number for a name', () => rootRun({ name: 7 }), /name must be a string/],
    ['with an object for an error', () => rootRun({ error: {} }), /error must be string/],
    ['with text for tags', () => rootRun({ tags: 'x' }), /tags must be array/],
    [
      'with a malformed reference_example_id',
      () => rootRun({ reference_example_id: 'x' }),
      /reference_example_id must be a UUID/,
    ],
    ['of a project that does not exist', () => rootRun({ session_id: other }), new RegExp(other)],
    ['whose project name is invalid', () => rootRun({ session_name: 'a\u0000b' }), /name/],
  ])('rejects a run %s by name and accepts the others', async (_name, make, words) => {
    const bad = make();
    const alone = await post(bad);
    expect(alone.status).toBe('session_id' in bad ? 422 : 400);
    expect(alone.text).toMatch(words);

    const good = rootRun();
    const logged = vi.spyOn(api.server.log, 'info');
    const together = await wire.multipart(multipart([...buildPostParts(bad), ...buildPostParts(good)]));
    expect(logged).toHaveBeenCalledExactlyOnceWith(
      expect.objectContaining({ workspaceId: own.workspaceIds[0], accepted: 1, rejected: 1 }),
      expect.any(String),
    );
    logged.mockRestore();
    expect(together.status).toBe(202);
    expect(JSON.parse(together.text)).toMatchObject({
      message: expect.stringContaining('1 of 2'),
      rejected: [{ run: bad.id }],
    });
    expect((await wire.send('GET', `/runs/${good.id}`)).status).toBe(200);
    expect((await wire.send('GET', `/runs/${bad.id}`)).status).toBe(404);
  });

  test('rejects a run above the size limit with 413 and names the limit', async () => {
    const run = rootRun({ inputs: { text: 'x'.repeat(2 * 1024 * 1024) } });
    const answer = await post(run);
    expect([answer.status, answer.text]).toEqual([
      413,
      expect.stringMatching(new RegExp(`${run.id}.*RUNLAKE_MAX_RUN_BYTES`)),
    ]);
  });

  test('rejects a run nested too deep with 422 and names the part', async () => {
    const deep = `${'['.repeat(33_000)}${']'.repeat(33_000)}`;
    const run = rootRun();
    const answer = await wire.multipart(
      multipart([...buildPostParts(run).slice(0, 1), [`post.${run.id}.inputs`, deep]]),
    );
    expect([answer.status, answer.text]).toEqual([422, expect.stringMatching(/inputs.*nested deeper/)]);
  });
});

describe('single runs and JSON batches', () => {
  test.each<[string, string, string, unknown, number, RegExp]>([
    ['not JSON', 'POST', '/runs', undefined, 422, /Invalid JSON/],
    ['an array', 'POST', '/runs', [], 422, /object/],
    ['no id', 'POST', '/runs/batch', { post: [{ name: 'x' }] }, 400, /id is missing/],
    [
      'a trace_id that is not its own',
      'POST',
      '/runs',
      { id: randomUUID(), trace_id: randomUUID() },
      422,
      /begins its own trace/,
    ],
    [
      'an unknown parent',
      'POST',
      '/runs',
      { id: randomUUID(), parent_run_id: randomUUID() },
      422,
      /post the parent first, or send trace_id/,
    ],
    ['a patch of a run that does not arrive', 'PATCH', `/runs/${randomUUID()}`, { outputs: {} }, 404, /not found/],
    ['a patch of a malformed id', 'PATCH', '/runs/xyz', { outputs: {} }, 422, /run_id|uuid/i],
    [
      'a patch whose id contradicts the path',
      'PATCH',
      `/runs/${randomUUID()}`,
      { id: randomUUID() },
      422,
      /contradicts/,
    ],
    ['a batch that is an array', 'POST', '/runs/batch', [], 422, /object/],
    ['a batch whose posts are not a list', 'POST', '/runs/batch', { post: {} }, 400, /post must be a list/],
    ['a batch of values that are not runs', 'POST', '/runs/batch', { post: [1, 'two', null] }, 422, /object/],
  ])('%s', async (_name, method, path, body, status, words) => {
    const text = body === undefined ? '{"id": nope}' : JSON.stringify(body);
    const answer = await wire.send(method, path, text, { 'content-type': 'application/json' });
    expect([answer.status, answer.text]).toEqual([status, expect.stringMatching(words)]);
    expect(JSON.parse(answer.text)).toHaveProperty('error');
  });

  const tenYearsAgo = () => new Date(Date.now() - 3_653 * 86_400_000).toISOString();
  const nextMonth = () => new Date(Date.now() + 31 * 86_400_000).toISOString();
  test.each<[string, 'POST' | 'PATCH', () => string, string]>([
    ['a post of ten years ago', 'POST', tenYearsAgo, 'RUNLAKE_MAX_RUN_AGE_DAYS'],
    ['a post of next month', 'POST', nextMonth, 'outside the accepted range'],
    ['a patch to ten years ago', 'PATCH', tenYearsAgo, 'RUNLAKE_MAX_RUN_AGE_DAYS'],
    ['a patch to next month', 'PATCH', nextMonth, 'outside the accepted range'],
  ])('responds 422 to %s', async (_name, method, startTime, setting) => {
    const { id } = rootRun();
    if (method === 'PATCH') expect((await wire.json('POST', '/runs', rootRun({ id }))).status).toBe(202);
    const run = { id, name: 'x', run_type: 'chain', start_time: startTime() };
    const answer = await wire.json(method, method === 'POST' ? '/runs' : `/runs/${id}`, run);
    expect([answer.status, JSON.parse(answer.text).code]).toEqual([422, 'INVALID_RUN']);
    expect(answer.text).toContain(id);
    expect(answer.text).toContain(setting);
  });

  const deepUsage = `{"a":${'['.repeat(30_000)}${']'.repeat(30_000)}}`;
  test.each<[string, string, number, () => string]>([
    [
      'a batch',
      '/runs/batch',
      202,
      () => {
        const usage = { input_tokens: 3, input_token_details: 'DEEP' };
        const post = [rootRun({ run_type: 'llm', outputs: { usage_metadata: usage } }), rootRun()];
        return JSON.stringify({ post }).replace('"DEEP"', deepUsage);
      },
    ],
    [
      'spans',
      '/otel/v1/traces',
      200,
      () => {
        const startTimeUnixNano = `${Date.now()}000000`;
        const values = { 'gen_ai.operation.name': 'chat', 'gen_ai.usage.input_token_details': deepUsage };
        const deep = span({ startTimeUnixNano, endTimeUnixNano: undefined, attributes: attributes(values) });
        return request([deep, span({ startTimeUnixNano, endTimeUnixNano: undefined, spanId: 'aaaaaaaaaaaaaaaa' })]);
      },
    ],
  ])('ignores usage details that are nested very deep, in %s', async (_name, path, status, build) => {
    const answer = await wire.send('POST', path, build(), { 'content-type': 'application/json' });
    expect([answer.status, answer.text]).toEqual([status, '{}']);
  });

  test('accepts an empty batch', async () => {
    expect((await wire.json('POST', '/runs/batch', {})).status).toBe(202);
    expect((await wire.json('POST', '/runs/batch', { post: [], patch: null })).status).toBe(202);
  });
});

describe('keys', () => {
  test.each<[string, () => Promise<string | undefined>, number]>([
    ['no key', async () => undefined, 401],
    ['a wrong key', async () => 'rlk_wrong-wrong-wrong-wrong', 401],
    ['a key with SQL in it', async () => "' OR 1=1; DROP TABLE api_keys; --", 401],
    [
      'a read-only key',
      () =>
        addKey({
          database: api.database,
          organizationId: own.id,
          userId: own.userId,
          defaultWorkspaceId: own.workspaceIds[0],
          readOnly: true,
        }),
      403,
    ],
    [
      'an expired key',
      () =>
        addKey({
          database: api.database,
          organizationId: own.id,
          userId: own.userId,
          defaultWorkspaceId: own.workspaceIds[0],
          expiresAt: '2020-01-01T00:00:00Z',
        }),
      401,
    ],
    [
      'an organisation-wide key without a workspace',
      () => addKey({ database: api.database, organizationId: own.id, userId: own.userId }),
      403,
    ],
  ])('%s', async (_name, makeKey, status) => {
    const key = await makeKey();
    const answer = await fetch(`${wire.url}/runs/multipart`, {
      method: 'POST',
      headers: { 'content-type': multipartType, ...(key !== undefined && { 'x-api-key': key }) },
      body: new Uint8Array(multipart(buildPostParts(rootRun()))),
    });
    expect([answer.status, Object.keys((await answer.json()) as object)]).toEqual([
      status,
      expect.arrayContaining(['error']),
    ]);
  });

  test('reject a revoked key at once', async () => {
    const made = JSON.parse((await wire.json('POST', '/api-key', { description: 'short-lived' })).text) as {
      id: string;
      key: string;
    };
    const short = new Wire(api.server, made.key);
    expect((await short.multipart(multipart(buildPostParts(rootRun())))).status).toBe(202);
    expect((await wire.send('DELETE', `/api-key/${made.id}`)).status).toBe(200);
    expect((await short.multipart(multipart(buildPostParts(rootRun())))).status).toBe(401);
  });
});

test('stores SQL in any string as text', async () => {
  const sql = `'; DROP TABLE runs; -- \\' OR 1=1 {x:UUID} %s`;
  const run = rootRun({ name: sql, session_name: sql, tags: [sql], error: sql, inputs: { [sql]: sql } });
  expect((await post(run)).status).toBe(202);
  const answer = await wire.json('POST', '/runs/query', { trace: run.id });
  expect(JSON.parse(answer.text).runs).toMatchObject([{ name: sql, tags: [sql], error: sql, inputs: { [sql]: sql } }]);
  const found = await wire.send('GET', `/sessions?name=${encodeURIComponent(sql)}`);
  expect(JSON.parse(found.text)).toMatchObject([{ name: sql }]);
});

test('responds 414 to a URL of 600 KB', async () => {
  const answer = await wire.send('GET', `/sessions?name=${'x'.repeat(600 * 1024)}`);
  expect([answer.status, answer.text]).toEqual([414, expect.stringMatching(/longer than/)]);
});

test('yields to the event loop during a batch with very many invalid runs', async () => {
  const body = `{"post":[${'1,'.repeat(99_999)}{}]}`;
  const sent = wire.send('POST', '/runs/batch', body, { 'content-type': 'application/json' });
  const since = performance.now();
  let eventLoopTurns = 0;
  let answered = false;
  void sent.finally(() => {
    answered = true;
  });
  while (!answered) {
    await nextTurn();
    eventLoopTurns++;
  }
  expect((await sent).status).toBe(400);
  // Each time slice takes a few milliseconds, on any machine.
  expect(eventLoopTurns).toBeGreaterThan((performance.now() - since) / 100);
});
