import { randomUUID } from 'node:crypto';
import { describe, expect, it, vi } from 'vitest';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import { acceptMultipart } from '../../../../pipelines/ingest/accept/accept-multipart.ts';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addKey, addOrganization, askAs, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi({ config: { patchWaitMs: 0 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const client = forSuite(() => openClient(api, acme.adminKey, { autoBatchTracing: false }));

const ask = askAs(api, acme);
const readFeedbackConfig = async (key: string) =>
  (await ask('GET', `/feedback-configs?key=${key}`)).body[0]?.feedback_config;
const continuous = { type: 'continuous' as const, min: 0, max: 1, categories: null };

/** Builds a multipart body with feedback only, as the Python SDK sends it. */
const multipart = (feedback: object) =>
  api.server.inject({
    method: 'POST',
    url: '/runs/multipart',
    headers: { 'x-api-key': acme.adminKey, 'content-type': 'multipart/form-data; boundary=cut' },
    payload: [
      '--cut',
      'Content-Disposition: form-data; name="feedback.1"',
      'Content-Type: application/json',
      '',
      JSON.stringify(feedback),
      '--cut--',
      '',
    ].join('\r\n'),
  });

describe('a config that is sent with feedback', () => {
  it('is kept as the config of its key by the stock SDK, also with a model as source', async () => {
    const runId = randomUUID();
    const sourceRunId = randomUUID();
    const made = await client.createFeedback({
      runId,
      sessionId: randomUUID(),
      key: 'correctness',
      score: 1,
      feedbackConfig: continuous,
      feedbackSourceType: 'model',
      sourceInfo: { model: 'judge' },
      sourceRunId,
    });
    expect(await readFeedbackConfig('correctness')).toEqual(continuous);
    expect((await ask('GET', `/feedback/${made.id}`)).body).toMatchObject({
      score: 1,
      feedback_source: { type: 'model', metadata: { model: 'judge', __run: { run_id: sourceRunId } } },
    });
    const listed: string[] = [];
    for await (const { id } of client.listFeedback({ runIds: [runId], feedbackSourceTypes: ['model'] }))
      listed.push(id);
    expect(listed).toEqual([made.id]);
    expect((await ask('GET', `/feedback?run=${runId}&source=app&source=api`)).body).toEqual([]);
  });

  it.each(['/feedback', '/feedback/eager'])('does not replace another config: POST %s', async (url) => {
    const key = `first ${url}`;
    const give = (feedback_config: object) =>
      ask('POST', url, { run_id: randomUUID(), key, score: 2, feedback_config });
    expect((await give({ type: 'freeform' })).status).toBe(200);
    expect((await give(continuous)).status).toBe(200);
    expect(await readFeedbackConfig(encodeURIComponent(key))).toMatchObject({ type: 'freeform' });
  });

  it.each(['feedback_key', 'id'])('is kept again after the config of its key was deleted by %s', async (name) => {
    const key = `deleted by ${name}`;
    const sendConfig = (max: number) =>
      ask('POST', '/feedback', { run_id: randomUUID(), key, score: 1, feedback_config: { ...continuous, max } });
    await sendConfig(1);
    const [config] = (await ask('GET', `/feedback-configs?key=${encodeURIComponent(key)}`)).body;
    expect((await ask('DELETE', `/feedback-configs?${name}=${encodeURIComponent(config[name])}`)).status).toBe(204);
    await sendConfig(5);
    expect(await readFeedbackConfig(encodeURIComponent(key))).toEqual({ ...continuous, max: 5 });
  });

  it('is kept from multipart ingest, and from PATCH', async () => {
    const id = randomUUID();
    const feedback = { id, run_id: randomUUID(), key: 'in parts', score: 1 };
    expect((await multipart({ ...feedback, feedback_config: continuous })).statusCode).toBe(202);
    expect(await readFeedbackConfig('in%20parts')).toEqual(continuous);
    const refused = await multipart({ ...feedback, feedback_config: { type: 'other' } });
    expect([refused.statusCode, refused.json().code]).toEqual([422, 'INVALID_FEEDBACK']);

    const patched = await api.ask(acme.adminKey, 'POST', '/feedback', {
      run_id: randomUUID(),
      key: 'patched',
      score: 1,
    });
    const change = { score: 0, feedback_config: { type: 'freeform' } };
    expect((await ask('PATCH', `/feedback/${patched.body.id}`, change)).status).toBe(200);
    expect(await readFeedbackConfig('patched')).toMatchObject({ type: 'freeform' });
  });

  it('is refused if it contradicts itself, and does not bypass one that is enforced', async () => {
    const key = 'strict';
    const give = (more: object) => ask('POST', '/feedback', { run_id: randomUUID(), key, ...more });
    expect((await give({ score: 1, feedback_config: { ...continuous, min: 2 } })).body).toMatchObject({
      code: 'INVALID_FEEDBACK',
      detail: [{ msg: expect.stringContaining('has a min above its max') }],
    });
    const feedbackConfig = continuous;
    await ask('POST', '/feedback-configs', { feedback_key: key, feedback_config: feedbackConfig, is_enforced: true });
    expect((await give({ score: 5, feedback_config: { ...continuous, max: 9 } })).status).toBe(422);
    expect((await give({ score: 1 })).status).toBe(200);
  });
});

it('a config of more than a mebibyte is refused before it is parsed', async () => {
  const [id, run_id] = [randomUUID(), randomUUID()];
  const send = (feedback_config: object) => {
    const feedback = { id, run_id, key: 'large', score: 1, feedback_config };
    const url = `/feedback/${id}`;
    return [
      () => ask('POST', '/feedback', feedback),
      () => ask('PATCH', url, { feedback_config }),
      async () => {
        const { statusCode: status, json } = await multipart(feedback);
        return { status, body: json() };
      },
    ];
  };
  const listed = Array(200_000).fill([]);
  for (const answer of send({ type: 'freeform', unknown: listed })) expect((await answer()).status).toBeLessThan(300);
  for (const answer of send({ type: 'freeform', unknown: [...listed, ...listed] })) {
    const { status, body } = await answer();
    expect([status, body.code, JSON.stringify(body)]).toEqual([
      ...[422, 'INVALID_FEEDBACK', expect.stringContaining('feedback_config is longer than 1048576 bytes')],
    ]);
  }
});

describe('feedback links', () => {
  const leave = (url: string, body: object) =>
    fetch(url, { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } });

  it('the stock SDK creates and lists them, and they need no key', async () => {
    const runId = randomUUID();
    const made = await client.createPresignedFeedbackToken(runId, 'thumbs', {
      expiration: { minutes: 5 },
      feedbackConfig: continuous,
    });
    expect(Date.parse(made.expires_at) - Date.now()).toBeGreaterThan(4 * 60_000);
    expect(Date.parse(made.expires_at) - Date.now()).toBeLessThanOrEqual(5 * 60_000);
    expect(await readFeedbackConfig('thumbs')).toEqual(continuous);
    const other = await client.createPresignedFeedbackToken(runId, 'comment');
    const listed: object[] = [];
    for await (const token of client.listPresignedFeedbackTokens(runId)) listed.push(token);
    expect(listed).toEqual([made, other].map((token) => expect.objectContaining(token)));
    expect((await leave(made.url, { score: 1, comment: 'good' })).status).toBe(200);
    await api.settled();
    expect((await ask('GET', `/feedback?run=${runId}`)).body).toMatchObject([{ key: 'thumbs', comment: 'good' }]);
    const [, stranger] = acme.workspaceKeys;
    expect((await api.ask(stranger, 'GET', `/feedback/tokens?run_id=${runId}`)).body).toEqual([]);
  });

  it('accept only what matches their own config, whatever the config of the key', async () => {
    const id = randomUUID();
    const link = { id, run_id: randomUUID(), feedback_key: 'thumbs', feedback_config: { ...continuous, max: 5 } };
    const create = async (body: object) => (await ask('POST', '/feedback/tokens', body)).body;
    await create(link);
    const token = await create(link);
    expect(token.id).toBe(id);
    expect((await ask('POST', '/feedback/tokens', { ...link, feedback_config: continuous })).status).toBe(409);
    const submit = async ({ url }: { url: string }, payload: object) => {
      const { pathname } = new URL(url);
      return (await api.server.inject({ method: 'POST', url: pathname, payload })).statusCode;
    };
    const click = async (score: number) =>
      (await api.server.inject(`/feedback/tokens/${id}?score=${score}`)).statusCode;
    expect([await submit(token, { score: 6 }), await click(-1)]).toEqual([422, 422]);
    expect([await submit(token, { score: 5 }), await click(4)]).toEqual([200, 200]);
    const categories = [
      { value: 1, label: 'up' },
      { value: 0, label: 'down' },
    ];
    const choice = await create({
      ...{ run_id: randomUUID(), feedback_key: `choice ${id}` },
      feedback_config: { type: 'categorical', categories },
    });
    expect([await submit(choice, { value: 'sideways' }), await submit(choice, { score: 2 })]).toEqual([422, 422]);
    expect(await submit(choice, { score: 1, value: 'up' })).toBe(200);
    const impossible = { ...link, id: randomUUID(), feedback_config: { ...continuous, min: 2, max: 1 } };
    expect((await ask('POST', '/feedback/tokens', impossible)).status).toBe(400);
    const free = await create({ run_id: link.run_id, feedback_key: 'thumbs' });
    expect(await submit(free, { score: 6 })).toBe(200);
  });

  it('have a UUID as token, which the Python SDK requires; it expires', async () => {
    const { body } = await ask('POST', '/feedback/tokens', { run_id: randomUUID(), feedback_key: 'thumbs' });
    expect(new URL(body.url).pathname).toBe(`/api/v1/feedback/tokens/${body.id}`);
    const leaveWith = async (token: string) =>
      (await api.server.inject({ method: 'POST', url: `/feedback/tokens/${token}`, payload: { score: 1 } })).statusCode;
    expect(await leaveWith(body.id.toUpperCase())).toBe(200);
    expect(await leaveWith(randomUUID())).toBe(404);
    await api.database.execute('UPDATE feedback_tokens SET expires_at = now() WHERE id = $1', [body.id]);
    expect(await leaveWith(body.id)).toBe(403);
  });

  it('a list gets a list, all or none', async () => {
    const run_id = randomUUID();
    const id = randomUUID();
    const keys = Array.from({ length: 50 }, (_, at) => `key ${at}`);
    const made = await ask('POST', '/feedback/tokens', [
      { id, run_id, feedback_key: 'named', expires_at: new Date(Date.now() + 60_000).toISOString() },
      ...keys.map((feedback_key) => ({ run_id, feedback_key })),
    ]);
    expect(made.body.map((token: { feedback_key: string }) => token.feedback_key)).toEqual(['named', ...keys]);
    expect(made.body[0].id).toBe(id);
    const again = await ask('POST', '/feedback/tokens', [
      { run_id, feedback_key: 'new' },
      { id, run_id, feedback_key: 'named' },
    ]);
    expect(again.status).toBe(409);
    expect((await ask('GET', `/feedback/tokens?run_id=${run_id}`)).body).toHaveLength(51);
  });

  it('are listed in pages', async () => {
    const run_id = randomUUID();
    const keys = ['a', 'b', 'c'];
    for (const feedback_key of keys) await ask('POST', '/feedback/tokens', { run_id, feedback_key });
    const list = async (page: string) =>
      (await ask('GET', `/feedback/tokens?run_id=${run_id}&${page}`)).body.map(
        (token: { feedback_key: string }) => token.feedback_key,
      );
    expect(await list('limit=2')).toEqual(['a', 'b']);
    expect(await list('limit=2&offset=2')).toEqual(['c']);
    const listed: string[] = [];
    for await (const token of client.listPresignedFeedbackTokens(run_id)) listed.push(token.id);
    expect(new Set(listed).size).toBe(3);
  });

  it('expired links are not listed, and are removed', async () => {
    const run_id = randomUUID();
    const { body } = await ask('POST', '/feedback/tokens', { run_id, feedback_key: 'old' });
    await api.database.execute("UPDATE feedback_tokens SET expires_at = now() - interval '1 second' WHERE id = $1", [
      body.id,
    ]);
    expect((await ask('GET', `/feedback/tokens?run_id=${run_id}`)).body).toEqual([]);
    await ask('POST', '/feedback/tokens', { run_id, feedback_key: 'new' });
    expect(await api.database.query('SELECT FROM feedback_tokens WHERE id = $1', [body.id])).toEqual([]);
  });

  it.each([
    [{ feedback_key: 'k' }, 422],
    [{ run_id: randomUUID(), feedback_key: '' }, 422],
    [{ run_id: randomUUID(), feedback_key: 'k', expires_in: { hours: -1 } }, 422],
    [{ run_id: randomUUID(), feedback_key: 'k', expires_in: {} }, 400],
    [{ run_id: randomUUID(), feedback_key: 'k', expires_in: { days: 400 } }, 400],
    [{ run_id: randomUUID(), feedback_key: 'k', expires_at: '2020-01-01T00:00:00Z' }, 400],
    [{ run_id: randomUUID(), feedback_key: 'k', feedback_config: { type: 'x' } }, 422],
    [[], 422],
  ])('refuses %j', async (body, status) => {
    expect((await ask('POST', '/feedback/tokens', body)).status).toBe(status);
  });

  it('need the permission to write feedback', async () => {
    const reader = await addKey({
      database: api.database,
      organizationId: acme.id,
      userId: acme.userId,
      workspaceIds: [acme.workspaceIds[0]],
      permissions: ['feedback:read'],
    });
    expect((await api.ask(reader, 'GET', `/feedback/tokens?run_id=${randomUUID()}`)).status).toBe(403);
  });
});

describe('many configs in one multipart body', () => {
  const sendMany = async (keys: readonly string[]) => {
    const run_id = randomUUID();
    const parts = keys.map((key, index) =>
      [
        `--cut\r\nContent-Disposition: form-data; name="feedback.${index}"\r\nContent-Type: application/json\r\n\r\n`,
        `${JSON.stringify({ id: randomUUID(), run_id, key, score: 1, feedback_config: continuous })}\r\n`,
      ].join(''),
    );
    const keep = vi.spyOn(api.services.sentConfigs, 'keep');
    const answer = await api.server.inject({
      method: 'POST',
      url: '/runs/multipart',
      headers: { 'x-api-key': acme.adminKey, 'content-type': 'multipart/form-data; boundary=cut' },
      payload: `${parts.join('')}--cut--\r\n`,
    });
    const attempts = keep.mock.calls.length;
    keep.mockRestore();
    const { rejected = [] } = answer.json<{ rejected?: { run: string; code: string }[] }>();
    return { status: answer.statusCode, attempts, rejected: rejected.map(({ run, code }) => `${run} ${code}`) };
  };

  it('stores those of 1,000 distinct keys', async () => {
    const keys = Array.from({ length: 1_000 }, (_, index) => `many ${index}`);
    expect(await sendMany([...keys, 'many 0', 'one more', 'another'])).toEqual({
      status: 202,
      attempts: 1_000,
      rejected: ['feedback.1001 TOO_MANY_PARTS', 'feedback.1002 TOO_MANY_PARTS'],
    });
    expect(await sendMany([...keys, 'one more'])).toEqual({ status: 202, attempts: 1, rejected: [] });
  });

  it('stores none after the client has left', async () => {
    const keep = vi.spyOn(api.services.sentConfigs, 'keep');
    const feedback = { id: randomUUID(), run_id: randomUUID(), key: 'left', score: 1, feedback_config: continuous };
    const text = `--cut\r\nContent-Disposition: form-data; name="feedback.1"\r\n\r\n${JSON.stringify(feedback)}\r\n--cut--`;
    const accepting = acceptMultipart(
      { workspaceId: acme.workspaceIds[0], userId: acme.userId, keyId: randomUUID() },
      {
        body: Buffer.from(text),
        contentType: 'multipart/form-data; boundary=cut',
        memory: { take: () => {}, addItem: () => {}, addValue: () => {} },
        disconnected: AbortSignal.abort(runlakeError('BAD_REQUEST', { reason: 'The client has left.' })),
      },
      api.services.accept,
    );
    await expect(accepting).rejects.toThrow('The client has left.');
    expect(keep).not.toHaveBeenCalled();
    keep.mockRestore();
  });

  it('stores no others after the organisation has reached its limit', async () => {
    await api.database.query(
      `INSERT INTO feedback_configs (workspace_id, feedback_key, feedback_config, is_lower_score_better, is_enforced)
       SELECT $1, 'filler ' || number, '{"type":"freeform"}', false, false FROM generate_series(1, 10000) AS number`,
      [acme.workspaceIds[0]],
    );
    expect(await sendMany(['limit 1', 'limit 2', 'many 5', 'limit 3'])).toEqual({
      status: 202,
      attempts: 1,
      rejected: ['feedback.0 LIMIT_REACHED', 'feedback.1 LIMIT_REACHED', 'feedback.3 LIMIT_REACHED'],
    });
  });
});
