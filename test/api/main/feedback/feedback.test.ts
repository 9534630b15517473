import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
const organization = forSuite(() => addOrganization(api.database, 'feedback'));
const client = forSuite(() =>
  openClient(api, organization.workspaceKeys[0], { autoBatchTracing: false, callerOptions: { maxRetries: 0 } }),
);
let key: string;

beforeAll(() => {
  [key] = organization.workspaceKeys;
});

async function ask(method: 'GET' | 'POST' | 'PATCH' | 'DELETE', url: string, payload?: object | string) {
  const headers = { 'x-api-key': key, ...(payload === undefined ? {} : { 'content-type': 'application/json' }) };
  const answer = await api.server.inject({ method, url, headers, ...(payload === undefined ? {} : { payload }) });
  return { status: answer.statusCode, text: answer.body, json: answer.json() };
}

async function send(members: object) {
  const answer = await ask('POST', '/feedback', { id: randomUUID(), key: 'k', ...members });
  expect([answer.status, answer.text]).toEqual([200, expect.any(String)]);
  return answer.json;
}

/** Returns the keys of the listed feedback, in order. */
async function keys(query: string): Promise<string[]> {
  const { status, json } = await ask('GET', `/feedback?${query}`);
  expect(status).toBe(200);
  return json.map((each: { key: string }) => each.key);
}

async function makeRun(sessionName: string): Promise<{ id: string; projectId: string }> {
  const id = randomUUID();
  const run = { id, name: 'run', run_type: 'chain', session_name: sessionName, inputs: {}, start_time: Date.now() };
  expect((await ask('POST', '/runs', run)).status).toBe(202);
  return { id, projectId: (await ask('GET', `/runs/${id}`)).json.session_id };
}

describe('the stock JavaScript client', () => {
  it('creates, reads, lists, updates and deletes feedback, also before the run exists', async () => {
    const runId = randomUUID();
    const made = await client.createFeedback(runId, 'correctness', {
      score: 0.51239,
      value: { label: 'good' },
      comment: 'ça va',
      correction: { answer: '42' },
      sourceInfo: { model: 'judge' },
      feedbackSourceType: 'model',
      sourceRunId: randomUUID(),
    });
    const read = await client.readFeedback(made.id);
    expect(read).toMatchObject({
      id: made.id,
      run_id: runId,
      key: 'correctness',
      score: 0.5124,
      value: { label: 'good' },
      comment: 'ça va',
      correction: { answer: '42' },
      feedback_source: { type: 'model', metadata: { model: 'judge' }, user_id: organization.userId },
      session_id: null,
    });

    await client.updateFeedback(made.id, { score: true, comment: 'better' });
    const listed = [];
    for await (const each of client.listFeedback({ runIds: [runId], feedbackKeys: ['correctness'] })) listed.push(each);
    expect(listed).toEqual([
      { ...read, score: true, comment: 'better', modified_at: expect.not.stringMatching(read.modified_at) },
    ]);
    const none = [];
    for await (const each of client.listFeedback({ runIds: [runId], feedbackSourceTypes: ['api'] })) none.push(each);
    expect(none).toEqual([]);

    await client.deleteFeedback(made.id);
    await expect(client.readFeedback(made.id)).rejects.toThrow(/404/);
    await expect(client.updateFeedback(made.id, { score: 1 })).rejects.toThrow(/404/);
    await expect(client.deleteFeedback(made.id)).rejects.toThrow(/404/);
  });

  it('reads more than one page', async () => {
    const { id: runId } = await makeRun('paged');
    await Promise.all(Array.from({ length: 101 }, (_, n) => send({ run_id: runId, score: n })));
    const scores = [];
    for await (const { score } of client.listFeedback({ runIds: [runId] })) scores.push(score as number);
    expect(scores.sort((a, b) => a - b)).toEqual(Array.from({ length: 101 }, (_, n) => n));
  });

  it('rates a project', async () => {
    const { projectId } = await makeRun('rated');
    const { id } = await client.createFeedback(null, 'overall', { score: 1, projectId });
    expect(await client.readFeedback(id)).toMatchObject({ run_id: null, session_id: projectId, is_root: false });
    const nowhere = client.createFeedback(null, 'overall', { score: 1, projectId: randomUUID() });
    await expect(nowhere).rejects.toThrow(/422/);
  });
});

describe('feedback', () => {
  it('is returned byte for byte', async () => {
    const [id, runId] = [randomUUID(), randomUUID()];
    const content = {
      score: '1.2500000000000000001',
      value: '{"big":  123456789012345678901234567890,"lone":"\\udfff\\u0000","__proto__":{"a":1},"a":1,"a":2}',
      comment: '"\\ud800 \\u00e9 é 😀"',
      correction: '{ "n": 1.0, "e": 1E5, "deep": [[[[]]]] }',
      extra: '{"x" : -0.0}',
    };
    const members = Object.entries({ id: `"${id}"`, run_id: `"${runId}"`, key: '"bytes"', ...content });
    const body = (list: [string, string][]) => `{${list.map(([name, value]) => `"${name}": ${value}`).join(',\n')}}`;
    const posted = await ask('POST', '/feedback/eager/', body(members));
    const read = await ask('GET', `/feedback/${id.toUpperCase()}`);
    const list = await ask('GET', `/feedback?run=${runId}`);
    expect(read.text).toBe(posted.text);
    expect(list.text).toBe(`[${read.text}]`);
    for (const [name, value] of Object.entries(content)) expect(read.text).toContain(`"${name}":${value}`);
    expect(read.json.feedback_source).toMatchObject({ type: 'api', metadata: {} });

    const value = '[1e999, "\\udbff"]';
    const patched = await ask('PATCH', `/feedback/${id}`, `{"correction":{"new":${value}},"score":null}`);
    expect(patched.text).toContain(`"correction":{"new":${value}}`);
    expect(patched.text).toContain(`"value":${content.value}`);
    expect(patched.json).toMatchObject({ score: null, created_at: read.json.created_at });
    expect((await ask('GET', `/feedback/${id}`)).text).toBe(patched.text);
  });

  it('takes missing fields from its run once the run exists', async () => {
    const runId = randomUUID();
    const { id } = await send({ run_id: runId });
    expect((await ask('GET', `/feedback/${id}`)).json).toMatchObject({
      trace_id: null,
      session_id: null,
      is_root: false,
    });
    const run = { id: runId, name: 'late', run_type: 'chain', session_name: 'late', start_time: Date.now() };
    expect((await ask('POST', '/runs', run)).status).toBe(202);
    const { json } = await ask('GET', `/feedback/${id}`);
    const stored = (await ask('GET', `/runs/${runId}`)).json;
    expect(json).toMatchObject({
      trace_id: runId,
      session_id: stored.session_id,
      start_time: `${stored.start_time}+00:00`,
      is_root: true,
    });
    expect(await keys(`session=${stored.session_id}`)).toEqual(['k']);
  });

  it('is replaced by the same id, also under another run, and can be created again after its deletion', async () => {
    const [id, first, second] = [randomUUID(), randomUUID(), randomUUID()];
    await send({ id, run_id: first, score: 1, comment: 'old' });
    await send({ id, run_id: first, score: 2 });
    expect((await ask('GET', `/feedback?run=${first}`)).json).toMatchObject([{ score: 2, comment: null }]);
    await send({ id, run_id: second, score: 3 });
    expect(await keys(`run=${first}`)).toEqual([]);
    expect((await ask('GET', `/feedback/${id}`)).json).toMatchObject({ run_id: second, score: 3 });
    expect((await ask('DELETE', `/feedback/${id}`)).status).toBe(200);
    expect(await keys(`run=${second}`)).toEqual([]);
    await send({ id, run_id: first, score: 4 });
    expect((await ask('GET', `/feedback?run=${first}&run=${second}`)).json).toMatchObject([{ id, score: 4 }]);
  });

  it('keeps every one of several concurrent updates', async () => {
    const { id } = await send({ run_id: randomUUID(), score: 0 });
    const changes = [{ score: 1 }, { value: 'v' }, { comment: 'c' }, { correction: 'd' }];
    const answers = await Promise.all(changes.map((change) => ask('PATCH', `/feedback/${id}`, change)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect((await ask('GET', `/feedback/${id}`)).json).toMatchObject(Object.assign({}, ...changes));
  });

  it('can be updated if it was received with a clock ahead of this one', async () => {
    const { id } = await send({ run_id: randomUUID(), score: 0 });
    await api.services.clickhouse.command({
      name: 'test',
      sql: `INSERT INTO feedback SELECT * REPLACE (received_at + INTERVAL 1 DAY AS received_at) FROM feedback WHERE id = {id:UUID}`,
      params: { id },
    });
    expect((await ask('PATCH', `/feedback/${id}`, { score: 1 })).status).toBe(200);
    expect((await ask('GET', `/feedback/${id}`)).json).toMatchObject({ score: 1 });
  });

  it('is accepted in a multipart body, and its errors are named', async () => {
    const [id, runId] = [randomUUID(), randomUUID()];
    const part = (name: string, json: object) =>
      `--cut\r\nContent-Disposition: form-data; name="${name}"\r\nContent-Type: application/json\r\n\r\n${JSON.stringify(json)}\r\n`;
    const post = async (...parts: string[]) => {
      const headers = { 'x-api-key': key, 'content-type': 'multipart/form-data; boundary=cut' };
      return api.server.inject({
        method: 'POST',
        url: '/runs/multipart',
        headers,
        payload: `${parts.join('')}--cut--\r\n`,
      });
    };
    const good = part(`feedback.${id}`, { id, run_id: runId, trace_id: runId, key: 'part', score: 1 });
    expect((await post(good)).statusCode).toBe(202);
    const again = await post(good, part('feedback.bad', { run_id: runId, key: 'part' }));
    expect(again.statusCode).toBe(202);
    expect(again.json().rejected).toEqual([
      { run: 'feedback.bad', code: 'INVALID_FEEDBACK', reason: expect.stringContaining('id is missing') },
    ]);
    expect((await ask('GET', `/feedback?run=${runId}`)).json).toMatchObject([{ id, key: 'part', score: 1 }]);
    const bad = await post(part(`feedback.${id}`, { id, run_id: runId, key: 'part', score: 'one' }));
    const details = [{ loc: ['body', `feedback.${id}`, 'score'], msg: expect.any(String), type: 'invalid_feedback' }];
    expect([bad.statusCode, bad.json()]).toEqual([422, expect.objectContaining({ code: 'INVALID_FEEDBACK', details })]);
  });

  it.each([
    ['POST', '/feedback', { run_id: randomUUID(), score: '1' }, 'key'],
    ['POST', '/feedback', { key: 'k', run_id: randomUUID(), feedbackConfig: { type: 'x' } }, 'feedbackConfig'],
    ['PATCH', `/feedback/${randomUUID()}`, { comment: 1 }, 'comment'],
  ] as const)('%s %s with an invalid field names it', async (method, url, body, field) => {
    const { status, json } = await ask(method, url, body);
    expect([status, json.detail]).toEqual([422, [expect.objectContaining({ loc: ['body', field] })]]);
  });

  it.each([
    ['POST', '/feedback', '{', 422, 'INVALID_JSON'],
    ['POST', '/feedback', '{"key":"k"}', 422, 'INVALID_FEEDBACK'],
    ['POST', '/feedback', `{"key":"k","run_id":"${randomUUID()}","score":"1"}`, 422, 'INVALID_FEEDBACK'],
    ['PATCH', `/feedback/${randomUUID()}`, '{"score":1}', 404, 'NOT_FOUND'],
    ['PATCH', `/feedback/${randomUUID()}`, '{"score":"1"}', 422, 'INVALID_FEEDBACK'],
    ['PATCH', '/feedback/x', '{"score":1}', 422, undefined],
    ['GET', `/feedback/${randomUUID()}`, undefined, 404, 'NOT_FOUND'],
    ['GET', '/feedback?limit=101', undefined, 422, undefined],
    ['GET', '/feedback?limit=0', undefined, 422, undefined],
    ['GET', '/feedback?offset=-1', undefined, 422, undefined],
    ['GET', '/feedback?run=1', undefined, 422, undefined],
    ['GET', '/feedback?source=me', undefined, 422, undefined],
    ['GET', '/feedback?source=FeedbackSourceType.ME', undefined, 422, undefined],
    ['GET', '/feedback?level=trace', undefined, 422, undefined],
    ['GET', '/feedback?has_score=maybe', undefined, 422, undefined],
    ['GET', '/feedback?min_created_at=today', undefined, 422, undefined],
    ['GET', '/feedback?comparative_experiment_id=x', undefined, 422, undefined],
    ['DELETE', `/feedback/${randomUUID()}`, undefined, 404, 'NOT_FOUND'],
  ] as const)('%s %s with %s answers %i', async (method, url, payload, status, code) => {
    const answer = await ask(method, url, payload);
    expect([answer.status, answer.json]).toEqual([
      status,
      expect.objectContaining(code ? { code } : { detail: expect.any(Array) }),
    ]);
  });
});

describe('the list', () => {
  const tricky = `'; DROP TABLE feedback; --\n"\\`;
  let one: { id: string; projectId: string };
  let two: { id: string; projectId: string };

  beforeAll(async () => {
    [one, two] = [await makeRun('list one'), await makeRun('list two')];
    const day = (n: number) => `2024-01-0${n}T00:00:00Z`;
    for (const feedback of [
      { key: 'a', run_id: one.id, score: 1, created_at: day(1) },
      { key: 'b', run_id: one.id, score: false, comment: 'c', created_at: day(2), feedback_source: { type: 'model' } },
      { key: tricky, run_id: two.id, value: 'v', created_at: day(3), feedback_source: { type: 'app' } },
      { key: 'd', session_id: one.projectId, comment: '', created_at: day(4) },
      { key: 'e', run_id: two.id, session_id: one.projectId, created_at: day(5) },
    ])
      await send(feedback);
  });

  const within = 'max_created_at=2024-01-31T00:00:00Z';
  it.each([
    ['newest first', '', ['e', 'd', tricky, 'b', 'a']],
    ['run', 'run=$1', ['b', 'a']],
    ['several runs', 'run=$1&run=$2', ['e', tricky, 'b', 'a']],
    ['key', 'key=a', ['a']],
    ['several keys, any text', `key=a&key=${encodeURIComponent(tricky)}`, [tricky, 'a']],
    ['the project of the feedback, or of its run', 'session=$3', ['e', 'd', 'b', 'a']],
    ['another project', 'session=$4', [tricky]],
    ['source', 'source=model&source=app', [tricky, 'b']],
    ['the source api', 'source=api', ['e', 'd', 'a']],
    ['sources as the Python SDK names them', 'source=FeedbackSourceType.MODEL&source=app', [tricky, 'b']],
    ['a comment', 'has_comment=true', ['d', 'b']],
    ['no comment', 'has_comment=false', ['e', tricky, 'a']],
    ['a score', 'has_score=true', ['b', 'a']],
    ['no score', 'has_score=false', ['e', 'd', tricky]],
    ['on runs', 'level=run', ['e', tricky, 'b', 'a']],
    ['on projects', 'level=session', ['d']],
    [
      'both ends of a time',
      'min_created_at=2024-01-02T00:00:00Z&max_created_at=2024-01-04T00:00:00',
      ['d', tricky, 'b'],
    ],
    ['a user', 'user=$5', ['e', 'd', tricky, 'b', 'a']],
    ['an unknown user', `user=${randomUUID()}`, []],
    ['all conditions', 'run=$1&key=b&source=model&has_comment=true&has_score=true&level=run&session=$3', ['b']],
    ['a page', 'limit=2&offset=1', ['d', tricky]],
    ['a page beyond the last', 'offset=5', []],
  ])('filters by %s', async (_, query, expected) => {
    const values = [one.id, two.id, one.projectId, two.projectId, organization.userId];
    const filled = query.replace(/\$(\d)/g, (_whole, n) => values[Number(n) - 1] ?? '');
    expect(await keys(filled.includes('max_created_at') ? filled : `${within}&${filled}`)).toEqual(expected);
  });

  it('returns the name of its author if requested', async () => {
    const sourceOf = async (query: string) =>
      (await ask('GET', `/feedback?run=${one.id}${query}`)).json[0].feedback_source;
    expect(await sourceOf('')).toMatchObject({ user_id: organization.userId, user_name: null });
    expect(await sourceOf('&include_user_names=true')).toMatchObject({ user_name: 'admin@feedback.example' });
  });
});

describe('the statistics of a run', () => {
  it('count all feedback on it, by key', async () => {
    const { id: runId } = await makeRun('statistics');
    const long = 'x'.repeat(3_000);
    for (const feedback of [
      { key: 'n', score: 1, comment: 'one' },
      { key: 'n', score: true, comment: '\ud800 two', feedback_source: { type: 'model' } },
      { key: 'n', score: 4, comment: long },
      { key: 'n', error: true },
      { key: 'label', value: 'good' },
      { key: 'label', value: 'good' },
      { key: 'label', value: '__proto__' },
      { key: 'label', value: { not: 'counted' } },
      { key: '__proto__', score: false },
    ])
      await send({ run_id: runId, ...feedback });
    const gone = await send({ run_id: runId, key: 'n', score: 1_000 });
    await ask('DELETE', `/feedback/${gone.id}`);
    // The same label in another notation.
    await ask('POST', '/feedback', `{"run_id":"${runId}","key":"label","value":"g\\u006fod"}`);

    const { text, json } = await ask('GET', `/runs/${runId}`);
    const stats = json.feedback_stats;
    expect(stats.n).toMatchObject({ n: 4, avg: 2, min: 1, max: 4, stdev: Math.sqrt(3), errors: 1, values: {} });
    expect(stats.n.comments.sort()).toEqual(['one', '\ud800 two'].sort());
    expect(stats.n.sources).toEqual(['api', 'model']);
    expect(stats.label).toMatchObject({ n: 5, avg: null, min: null, stdev: null, errors: 0 });
    expect(Object.entries(stats.label.values)).toEqual([
      ['good', 3],
      ['__proto__', 1],
    ]);
    expect(Object.keys(stats)).toEqual(['__proto__', 'label', 'n']);
    expect(Object.getOwnPropertyDescriptor(stats, '__proto__')?.value).toMatchObject({ n: 1, avg: 0, stdev: null });
    expect(text).toContain('"__proto__":{"values":{},"comments":[],"n":1,"avg":0,');
  });

  it('have the exact deviation of large scores that hardly differ, and of equal ones', async () => {
    const { id: runId } = await makeRun('deviations');
    for (const score of [1e9, 1e9 + 1, 1e9 + 2]) await send({ run_id: runId, key: 'large', score });
    for (const score of [0.3, 0.3, 0.3]) await send({ run_id: runId, key: 'equal', score });
    for (const score of [1e308, 1e308]) await send({ run_id: runId, key: 'huge', score });
    for (const score of [1e308, -1e308]) await send({ run_id: runId, key: 'far', score });
    const { json } = await ask('GET', `/runs/${runId}`);
    expect(json.feedback_stats).toMatchObject({
      large: { avg: 1e9 + 1, stdev: 1 },
      equal: { avg: 0.3, stdev: 0 },
      huge: { avg: 1e308, min: 1e308, max: 1e308, stdev: 0 },
      far: { avg: 0, stdev: expect.closeTo(Math.SQRT2 * 1e308, -300) },
    });
  });

  it('are null without feedback, and separate for each run', async () => {
    const [rated, plain] = [await makeRun('two runs'), await makeRun('two runs')];
    await send({ run_id: rated.id, key: 'k', score: 1 });
    const { json } = await ask('POST', '/runs/query', { id: [rated.id, plain.id], select: ['id', 'feedback_stats'] });
    const byId = new Map(json.runs.map((run: { id: string; feedback_stats: object }) => [run.id, run.feedback_stats]));
    expect(byId).toEqual(
      new Map<string, unknown>([
        [rated.id, { k: expect.objectContaining({ n: 1, avg: 1 }) }],
        [plain.id, null],
      ]),
    );
  });
});

describe('a request that is sent again', () => {
  const times = { created_at: '2026-01-01T00:00:00Z', modified_at: '2026-01-01T00:00:00Z' };
  const read = async (id: string) => (await ask('GET', `/feedback/${id}`)).json;

  it('does not undo a newer change, also not by a later one', async () => {
    const first = { id: randomUUID(), run_id: randomUUID(), score: 1, ...times };
    await send(first);
    await ask('PATCH', `/feedback/${first.id}`, { comment: 'changed' });
    expect(await send(first)).toMatchObject({ id: first.id, comment: 'changed' });
    await ask('PATCH', `/feedback/${first.id}`, { score: 2 });
    expect(await read(first.id)).toMatchObject({ score: 2, comment: 'changed' });
  });

  it('does not restore deleted feedback', async () => {
    const first = { id: randomUUID(), run_id: randomUUID(), score: 1, ...times };
    await send(first);
    await ask('DELETE', `/feedback/${first.id}`);
    await send(first);
    expect((await ask('GET', `/feedback/${first.id}`)).status).toBe(404);
    await send({ ...first, score: 3 });
    expect(await read(first.id)).toMatchObject({ score: 3 });
  });
});
