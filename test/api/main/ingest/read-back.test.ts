import { randomUUID } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { Client } from 'langsmith';
import { describe, expect, test, vi } from 'vitest';
import { until } from '../../../infra/until.ts';
import { accepted, buildPostParts, multipart, rootRun, shareWire } from './wire.ts';

const { api, own, wire } = shareWire();

const read = async (id: string) => JSON.parse((await wire.send('GET', `/runs/${id}`)).text) as Record<string, unknown>;

test('concurrent identical posts without a start time are one run, which a patch by id completes', async () => {
  for (let round = 0; round < 5; round++) {
    const id = randomUUID();
    const body = JSON.stringify({ id, name: 'repeated', run_type: 'chain', inputs: {} });
    const json = { 'content-type': 'application/json' };
    await Promise.all(Array.from({ length: 8 }, () => accepted(wire.send('POST', '/runs', body, json))));
    await accepted(wire.send('PATCH', `/runs/${id}`, JSON.stringify({ outputs: { done: true } }), json));
    await api.settled();
    const { text } = await wire.send('POST', '/runs/query', JSON.stringify({ trace: id }), json);
    expect(JSON.parse(text).runs).toMatchObject([{ id, outputs: { done: true } }]);
  }
});

describe('values are returned byte for byte', () => {
  test.each<[string, string]>([
    ['big integers', '{"n":123456789012345678901234567890,"m":-0,"e":1E400,"f":0.10}'],
    ['lone surrogates', '{"s":"\\ud800 \\udfff","t":"\\uD83D"}'],
    ['NUL characters', '{"s":"a\\u0000b","\\u0000":1}'],
    ['keys named __proto__', '{"__proto__":{"x":1},"constructor":2,"hasOwnProperty":3}'],
    ['repeated keys', '{"a":1,"a":2}'],
    ['white space', '{ "a" : [ 1 ,\t2 ] ,\r\n "b" : { } }'],
    ['every kind of escape', '{"s":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9é\\u2028"}'],
    ['text beyond the basic multilingual plane', '{"s":"👩‍👩‍👧 ‮ \u2028","日本":"語"}'],
    ['an empty object', '{}'],
    ['values other than objects', '[1,"two",null,true]'],
    ['deep nesting', `${'[{"a":'.repeat(1_500)}1${'}]'.repeat(1_500)}`],
    ['10 MB of text', JSON.stringify({ text: 'é"\\ü'.repeat(1_700_000) })],
  ])('%s', async (_name, text) => {
    const run = rootRun();
    const parts = ['inputs', 'outputs', 'extra', 'events', 'serialized'].map(
      (field) => [`post.${run.id}.${field}`, text] as const,
    );
    await accepted(
      wire.multipart(multipart([...buildPostParts(run).slice(0, 1), ...parts.slice(0, text.length > 1e6 ? 1 : 5)])),
    );

    const answer = await wire.send('GET', `/runs/${run.id}`);
    expect(answer.text.includes(`"inputs":${text}`)).toBe(true);
    if (text.length < 1e6) {
      for (const field of ['outputs', 'extra', 'events', 'serialized'])
        expect(answer.text).toContain(`"${field}":${text}`);
    }
    const page = await wire.json('POST', '/runs/query', { id: [run.id] });
    expect(page.text.includes(`"inputs":${text}`)).toBe(true);
  });

  test('an error keeps its escapes and sets the status of the run to error', async () => {
    const run = rootRun();
    const parts = [
      ...buildPostParts(run),
      [`patch.${run.id}`, JSON.stringify({ dotted_order: run.dotted_order, trace_id: run.id })],
      [`patch.${run.id}.error`, '"no \\ud800\\u0000"'],
    ] as const;
    await accepted(wire.multipart(multipart(parts)));
    const answer = await wire.send('GET', `/runs/${run.id}`);
    expect(answer.text).toContain('"error":"no \\ud800\\u0000"');
    expect(JSON.parse(answer.text)).toMatchObject({ status: 'error' });
  });

  test('accepts a gzip body in chunks without a length', async () => {
    const run = rootRun();
    const body = gzipSync(multipart(buildPostParts(run)));
    const chunks = [body.subarray(0, 10), body.subarray(10, 100), body.subarray(100)];
    const answer = await fetch(`${wire.url}/runs/multipart`, {
      method: 'POST',
      headers: {
        'x-api-key': wire.key,
        'content-type': 'multipart/form-data; boundary=----TestBoundary',
        'content-encoding': 'gzip',
      },
      body: ReadableStream.from(chunks),
      duplex: 'half',
    } as RequestInit);
    expect(answer.status).toBe(202);
    expect(await read(run.id)).toMatchObject({ name: 'root' });
  });
});

describe('posts and patches are merged into one run, in one project', () => {
  const key = ({ id, dotted_order }: Record<string, unknown>) => ({ id, trace_id: id, dotted_order });
  const patch = (run: Record<string, unknown>, values: object) =>
    wire.json('POST', '/runs/batch', { patch: [{ ...key(run), ...values }] });
  const post = (run: Record<string, unknown>) => wire.json('POST', '/runs/batch', { post: [run] });
  const projectName = async (run: { id: string }) => {
    const { session_id } = await read(run.id);
    return (JSON.parse((await wire.send('GET', `/sessions/${session_id}`)).text) as { name: string }).name;
  };

  test('a patch before its post, without a project', async () => {
    const run = rootRun({ session_name: 'late post' });
    await accepted(patch(run, { outputs: { a: 1 }, end_time: '2099-01-01T00:00:00Z' }));
    expect((await wire.send('GET', `/runs/${run.id}`)).status).toBe(404);
    await accepted(post(run));
    expect(await read(run.id)).toMatchObject({ name: 'root', outputs: { a: 1 }, status: 'success' });
    expect(await projectName(run)).toBe('late post');
  });

  test('a patch before its post in the same batch', async () => {
    const run = rootRun();
    await accepted(wire.json('POST', '/runs/batch', { patch: [{ ...key(run), outputs: { b: 1 } }], post: [run] }));
    expect(await read(run.id)).toMatchObject({ outputs: { b: 1 }, inputs: { q: 1 } });
    expect(await projectName(run)).toBe('default');
  });

  test('a patch that names another project stays with its trace', async () => {
    const run = rootRun({ session_name: 'mine' });
    await accepted(post(run));
    await accepted(patch(run, { session_name: 'yours', outputs: { c: 1 } }));
    expect(await read(run.id)).toMatchObject({ outputs: { c: 1 } });
    expect(await projectName(run)).toBe('mine');
    expect(JSON.parse((await wire.json('POST', '/runs/query', { trace: run.id })).text).runs).toHaveLength(1);
  });

  test('a project that is renamed between post and patch', async () => {
    const run = rootRun({ session_name: 'before' });
    await accepted(post(run));
    const { session_id } = await read(run.id);
    expect((await wire.json('PATCH', `/sessions/${session_id}`, { name: 'after' })).status).toBe(200);
    await accepted(patch(run, { session_name: 'before', outputs: { d: 1 } }));
    expect(await projectName(run)).toBe('after');
    expect(JSON.parse((await wire.send('GET', '/sessions?name=before')).text)).toEqual([]);
  });

  test('a late or repeated post reverts no patch, and null changes nothing', async () => {
    const run = rootRun({ outputs: { from: 'post' }, error: null });
    await accepted(post(run));
    await accepted(patch(run, { outputs: { from: 'patch' }, inputs: null, name: 'patched' }));
    await accepted(post(run));
    expect(await read(run.id)).toMatchObject({ outputs: { from: 'patch' }, inputs: { q: 1 }, name: 'patched' });
    await accepted(patch(run, { outputs: { from: 'second patch' } }));
    expect(await read(run.id)).toMatchObject({ outputs: { from: 'second patch' }, name: 'patched' });
  });

  test('single runs without dotted_order: a root, its child, patches by id alone', async () => {
    const id = randomUUID();
    const child = randomUUID();
    const start = Date.now() - 5_000;
    await accepted(wire.json('POST', '/runs', { id, name: 'plain', run_type: 'chain', start_time: start }));
    await accepted(
      wire.json('POST', '/runs', {
        id: child,
        parent_run_id: id,
        name: 'below',
        run_type: 'tool',
        start_time: start + 10,
      }),
    );
    await accepted(wire.json('PATCH', `/runs/${child}`, { outputs: { y: 1 }, end_time: start + 20 }));
    await accepted(wire.json('PATCH', `/runs/${id}`, { outputs: { x: 1 }, end_time: start + 30 }));
    await accepted(wire.json('POST', '/runs', { id, name: 'plain', run_type: 'chain', start_time: start }));

    const found = JSON.parse((await wire.json('POST', '/runs/query', { trace: id, order: 'asc' })).text).runs;
    expect(found).toMatchObject([
      { id, name: 'plain', trace_id: id, outputs: { x: 1 }, status: 'success', parent_run_id: null },
      { id: child, trace_id: id, outputs: { y: 1 }, parent_run_id: id, parent_run_ids: [id] },
    ]);
    expect(found[1].dotted_order.startsWith(`${found[0].dotted_order}.`)).toBe(true);
  });

  test('a patch keeps its outputs and its end_time if the clock of the client was set back', async () => {
    const run = rootRun();
    await accepted(post(run));
    const earlier = (minutes: number) => new Date(Date.parse(`${run.start_time}`) - minutes * 60_000).toISOString();
    await accepted(patch(run, { outputs: { kept: true }, end_time: earlier(59) }));
    expect((await patch(run, { outputs: { kept: false }, end_time: earlier(61) })).status).toBe(400);
    const ended = { status: 'success', outputs: { kept: true }, end_time: earlier(59).replace('Z', '000') };
    expect(await read(run.id)).toMatchObject(ended);
  });

  test('a patch by id alone waits for its run', async () => {
    const id = randomUUID();
    const patched = wire.json('PATCH', `/runs/${id}`, { outputs: { waited: true } });
    await accepted(wire.json('POST', '/runs', { id, name: 'slow', run_type: 'chain' }));
    await accepted(patched);
    expect(await read(id)).toMatchObject({ outputs: { waited: true } });
  });
});

test('extracts tokens, costs and the time of the first token from a model call', async () => {
  const run = rootRun({
    run_type: 'llm',
    outputs: {
      usage_metadata: {
        input_tokens: 20,
        output_tokens: 5,
        total_tokens: 25,
        input_token_details: { cache_read: 5 },
        input_cost: 0.000035,
        output_cost: 0.00001,
      },
    },
    events: [
      { name: 'start' },
      { name: 'new_token', time: '2026-01-01T00:00:00.5Z' },
      { name: 'new_token', time: '2026-01-01T00:00:01Z' },
    ],
  });
  await accepted(wire.multipart(multipart(buildPostParts(run))));
  expect(await read(run.id)).toMatchObject({
    prompt_tokens: 20,
    completion_tokens: 5,
    total_tokens: 25,
    prompt_cost: '0.000035',
    completion_cost: '0.00001',
    total_cost: '0.000045',
    prompt_token_details: { cache_read: 5 },
    first_token_time: '2026-01-01T00:00:00.500000',
  });
});

test.each(['0001-01-01T00:00:00Z', '2290-01-01T00:00:00Z'])('ignores %s as time of the first token', async (time) => {
  const events = [{ name: 'new_token', time }];
  const run = rootRun({ run_type: 'llm', events });
  await accepted(wire.multipart(multipart(buildPostParts(run))));
  expect(await read(run.id)).toMatchObject({ events, first_token_time: null });
});

test('counts usage in a patch only if the run is a model call', async () => {
  const usage = { usage_metadata: { input_tokens: 2, output_tokens: 3, total_tokens: 5 } };
  const answers = { chain: 0, llm: 5 };
  for (const [run_type, tokens] of Object.entries(answers)) {
    const run = rootRun({ run_type });
    const patch = { id: run.id, trace_id: run.id, dotted_order: run.dotted_order, outputs: usage };
    await accepted(wire.json('POST', '/runs/batch', { post: [run], patch: [patch] }));
    expect(await read(run.id)).toMatchObject({ total_tokens: tokens, outputs: usage });
  }
});

describe('a post without an id', () => {
  const found = async (name: string) => {
    const { text } = await wire.json('POST', '/runs/query', {});
    return (JSON.parse(text) as { runs: Record<string, unknown>[] }).runs.filter((run) => run.name === name);
  };

  test('of the stock JavaScript client gets an id', async () => {
    const name = randomUUID();
    const client = new Client({ apiUrl: wire.url, apiKey: own.adminKey, autoBatchTracing: false });
    await client.createRun({ name, run_type: 'chain', inputs: { q: 1 } });
    const [run, ...more] = await found(name);
    expect(more).toEqual([]);
    expect(run).toMatchObject({ inputs: { q: 1 }, trace_id: run?.id, parent_run_id: null });
  });

  test('uses the id of its dotted_order, else the id of the trace that it starts', async () => {
    const [placed, root] = [rootRun({ name: randomUUID() }), rootRun({ name: randomUUID() })];
    await accepted(wire.json('POST', '/runs', { ...placed, id: undefined }));
    await accepted(wire.json('POST', '/runs', { ...root, id: undefined, dotted_order: undefined }));
    expect(await read(placed.id)).toMatchObject({ name: placed.name });
    expect(await read(root.id)).toMatchObject({ name: root.name, trace_id: root.id });
  });

  test('is added to the trace of its parent', async () => {
    const [parent, name] = [rootRun(), randomUUID()];
    await accepted(wire.json('POST', '/runs', parent));
    await accepted(wire.json('POST', '/runs', { name, parent_run_id: parent.id, trace_id: parent.id }));
    expect(await found(name)).toMatchObject([{ trace_id: parent.id, parent_run_id: parent.id }]);
  });
});

describe('children that name only their parent', () => {
  test('and arrive before it are added to its trace', async () => {
    const client = new Client({ apiUrl: wire.url, apiKey: own.adminKey, autoBatchTracing: false });
    const [root, child, grandchild] = [randomUUID(), randomUUID(), randomUUID()];
    const run = { run_type: 'chain', inputs: {} };
    const find = vi.spyOn(api.services.accept.runLocations, 'find');
    const posts = [
      client.createRun({ ...run, id: grandchild, name: 'grandchild', parent_run_id: child }),
      client.createRun({ ...run, id: child, name: 'child', parent_run_id: root }),
    ];
    const isWaiting = (id: string) => find.mock.calls.some(([, runId, waitMs]) => runId === id && waitMs > 0);
    await until('both to wait', async () => isWaiting(root) && isWaiting(child));
    find.mockRestore();
    await client.createRun({ ...run, id: root, name: 'root' });
    await Promise.all(posts);
    const trace = { trace_id: root };
    expect(await read(root)).toMatchObject({ ...trace, direct_child_run_ids: [child] });
    expect(await read(child)).toMatchObject({ ...trace, parent_run_ids: [root] });
    expect(await read(grandchild)).toMatchObject({ ...trace, parent_run_ids: [root, child] });
    const order = (await read(grandchild)).dotted_order as string;
    expect(order.split('.').map((segment) => segment.slice(-36))).toEqual([root, child, grandchild]);
    const traces = await api.services.clickhouse.query({
      name: 'test',
      sql: `SELECT DISTINCT trace_id FROM traces WHERE trace_id IN ('${root}', '${child}', '${grandchild}')`,
    });
    expect(traces).toEqual([trace]);
  });
});
