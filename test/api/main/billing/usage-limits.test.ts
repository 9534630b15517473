import { randomUUID } from 'node:crypto';
import { beforeEach, describe, expect, it } from 'vitest';
import { settlesBeforeTimeout } from '../../../../infra/timeouts/with-timeout.ts';
import { runRollUp } from '../../../../pipelines/usage/rollup.ts';
import { UsageLimits } from '../../../../pipelines/usage/usage-limits.ts';
import { forSuite } from '../../../for-suite.ts';
import { deferred } from '../../../infra/deferred.ts';
import { until } from '../../../infra/until.ts';
import { openClient } from '../../open-client.ts';
import { addKey, addOrganization, type OrganizationUnderTest, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi({ config: { patchWaitMs: 0 } }));
let acme: OrganizationUnderTest;
beforeEach(async () => {
  acme = await addOrganization(api.database, `acme ${randomUUID()}`);
});

const ask = (method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE', url: string, payload?: object, key = acme.adminKey) =>
  api.ask(key, method, url, payload);

const newRun = (more: object = {}) => {
  const id = randomUUID();
  const start_time = new Date().toISOString();
  const dotted_order = `${start_time.replace(/[-:.]/g, '').replace('Z', '000Z')}${id}`;
  return { id, trace_id: id, dotted_order, name: 'run', run_type: 'chain', inputs: {}, start_time, ...more };
};

async function post(payload: object = newRun(), key = acme.adminKey) {
  const { statusCode, headers, body } = await api.server.inject({
    method: 'POST',
    url: '/runs',
    headers: { 'x-api-key': key },
    payload,
  });
  return { status: statusCode, headers, body: JSON.parse(body) };
}

/** Updates the usage with everything that was sent, and drops the cached limits of the workspace. */
async function count() {
  await api.settled();
  await runRollUp(api.services);
  api.services.usageLimits.forget(acme.workspaceIds[0]);
}
const limit = (limit_value: number, more: object = {}) =>
  ask('PUT', '/usage-limits', { limit_type: 'monthly_traces', limit_value, ...more });

describe('a hard limit', () => {
  it('refuses runs in every form once it is reached, and never before', async () => {
    expect((await limit(3)).body).toMatchObject({ limit_type: 'monthly_traces', limit_value: 3, is_hard: true });
    for (let sent = 0; sent < 3; sent += 1) {
      expect((await post()).status).toBe(202);
      await count();
    }
    const refused = await post();
    expect(refused.status).toBe(429);
    expect(refused.body).toMatchObject({
      code: 'USAGE_LIMIT_REACHED',
      error: expect.stringMatching(
        /^Usage limit exceeded: the workspace has 3 traces in \d{4}-\d\d \(UTC\), and its limit is 3/,
      ),
    });
    // The Python SDK does not retry such a request.
    expect(refused.headers['retry-after']).toBeUndefined();
    const run = newRun();
    const part = [
      '--cut',
      `Content-Disposition: form-data; name="post.${run.id}"`,
      'Content-Type: application/json',
      '',
      JSON.stringify(run),
      '--cut--',
      '',
    ].join('\r\n');
    const headers = { 'x-api-key': acme.adminKey };
    const others = [
      { method: 'POST', url: '/runs/batch', headers, payload: { post: [run] } },
      { method: 'PATCH', url: `/runs/${run.id}`, headers, payload: run },
      {
        method: 'POST',
        url: '/otel/v1/traces',
        headers: { ...headers, 'content-type': 'application/json' },
        payload: '{}',
      },
      {
        method: 'POST',
        url: '/runs/multipart',
        headers: { ...headers, 'content-type': 'multipart/form-data; boundary=cut' },
        payload: part,
      },
    ] as const;
    for (const request of others) {
      expect([request.url, (await api.server.inject(request)).statusCode]).toEqual([request.url, 429]);
    }
    expect((await ask('GET', '/workspaces/current/usage_limits')).body).toEqual({
      in_reject_set: true,
      usage_limit_type: 'user_defined_monthly_traces',
      tenant_limit: 3,
      soft_limit: null,
      soft_limit_exceeded: false,
      monthly_traces: 3,
    });
    // Reads, feedback and the other workspace are not affected.
    expect((await ask('POST', '/feedback', { run_id: run.id, key: 'k', score: 1 })).status).toBe(200);
    expect((await ask('POST', '/runs/query', {})).body.runs).toHaveLength(3);
    expect((await post(newRun(), acme.workspaceKeys[1])).status).toBe(202);
    // A higher limit applies at once.
    await limit(4);
    expect((await post()).status).toBe(202);
  });

  it('accepts a multipart body with feedback only, as the Python SDK sends it', async () => {
    await limit(0);
    const run = newRun();
    const part = `post.${run.id}`;
    const feedback = { id: randomUUID(), run_id: run.id, trace_id: run.id, key: 'thumb', score: 1 };
    const parts = { [part]: run, [`feedback.${feedback.id}`]: feedback, [`attachment.${run.id}.file`]: 'x' };
    const send = async (names: readonly string[]) => {
      const form = new FormData();
      for (const name of names) form.set(name, new Blob([JSON.stringify(parts[name])], { type: 'application/json' }));
      const multipart = new Response(form);
      const headers = { 'x-api-key': acme.adminKey, 'content-type': multipart.headers.get('content-type') ?? '' };
      const payload = Buffer.from(await multipart.arrayBuffer());
      return (await api.server.inject({ method: 'POST', url: '/runs/multipart', headers, payload })).statusCode;
    };
    const [, feedbackPart, attachmentPart] = Object.keys(parts) as [string, string, string];
    expect(await send([feedbackPart, part])).toBe(429);
    expect(await send([feedbackPart, attachmentPart])).toBe(429);
    expect((await ask('GET', `/feedback?run=${run.id}`)).body).toEqual([]);
    expect(await send([feedbackPart])).toBe(202);
    expect((await ask('GET', `/feedback?run=${run.id}`)).body).toMatchObject([{ key: 'thumb' }]);
  });

  it('counts traces, not runs, and only those of this month', async () => {
    await limit(2);
    const root = newRun();
    await post(root);
    const child = newRun();
    await post({
      ...child,
      trace_id: root.id,
      dotted_order: `${root.dotted_order}.${child.dotted_order}`,
      parent_run_id: root.id,
    });
    const start = new Date();
    start.setUTCDate(0);
    const old = newRun({ start_time: start.toISOString() });
    const stamp = start.toISOString().replace(/[-:.]/g, '').replace('Z', '000Z');
    await post({ ...old, dotted_order: `${stamp}${old.id}` });
    await count();
    expect((await ask('GET', '/workspaces/current/usage_limits')).body).toMatchObject({ monthly_traces: 1 });
    expect((await post()).status).toBe(202);
    await count();
    expect((await post()).status).toBe(429);
  });

  it('of 0 refuses everything; deleted, nothing', async () => {
    const { id } = (await limit(0)).body;
    expect((await post()).status).toBe(429);
    expect((await ask('DELETE', `/usage-limits/${id}`)).status).toBe(200);
    expect((await post()).status).toBe(202);
    expect((await ask('DELETE', `/usage-limits/${id}`)).status).toBe(404);
  });

  it('is reported to the stock SDK, which drops the runs', async () => {
    await limit(0);
    const callerOptions = { maxRetries: 0 };
    const client = await openClient(api, acme.adminKey, { autoBatchTracing: false, callerOptions });
    const run = { id: randomUUID(), name: 'run', run_type: 'chain', inputs: {} };
    await expect(client.createRun(run)).rejects.toThrow(/429|Usage limit exceeded/);
  });
});

describe('a soft limit', () => {
  it('warns and accepts', async () => {
    await limit(1, { is_hard: false });
    expect((await post()).headers['x-usage-warning']).toBeUndefined();
    await count();
    const { status, headers } = await post();
    expect([status, headers['x-usage-warning']]).toEqual([
      202,
      expect.stringMatching(/^1 traces in .*, soft limit 1$/),
    ]);
    expect((await ask('GET', '/workspaces/current/usage_limits')).body).toMatchObject({
      in_reject_set: false,
      soft_limit: 1,
      soft_limit_exceeded: true,
    });
  });
});

describe('the API of limits', () => {
  it('has one soft and one hard limit for a workspace', async () => {
    const hard = (await limit(10)).body;
    const soft = (await limit(5, { is_hard: false })).body;
    expect((await limit(20)).body).toMatchObject({ id: hard.id, limit_value: 20 });
    expect((await limit(6, { id: soft.id })).body).toMatchObject({ id: soft.id, limit_value: 6, is_hard: false });
    expect((await ask('GET', '/usage-limits')).body).toMatchObject([{ limit_value: 20 }, { limit_value: 6 }]);
    expect((await ask('GET', '/usage-limits/org')).body).toHaveLength(2);
    expect((await ask('GET', '/usage-limits/org', undefined, acme.workspaceKeys[1])).body).toEqual([]);
    expect((await ask('GET', '/usage-limits', undefined, acme.workspaceKeys[1])).body).toEqual([]);
  });

  it.each([
    [{ limit_type: 'monthly_traces' }, 422],
    [{ limit_type: 'monthly_traces', limit_value: -1 }, 422],
    [{ limit_type: 'monthly_traces', limit_value: 1.5 }, 422],
    [{ limit_type: 'monthly_longlived_traces', limit_value: 1 }, 400],
    [{ limit_type: 'daily_traces', limit_value: 1 }, 422],
    [{ limit_type: 'monthly_traces', limit_value: 1, id: randomUUID() }, 404],
  ])('refuses %j', async (payload, status) => {
    expect((await ask('PUT', '/usage-limits', payload)).status).toBe(status);
  });

  it('changes the kind of a limit by its id, unless the workspace has one of this kind', async () => {
    const { id } = (await limit(5)).body;
    expect((await limit(6, { id, is_hard: false })).body).toMatchObject({ id, limit_value: 6, is_hard: false });
    expect((await limit(7, { id })).body).toMatchObject({ id, limit_value: 7, is_hard: false });
    await limit(9);
    expect((await limit(8, { id, is_hard: true })).status).toBe(409);
    const values = (await ask('GET', '/usage-limits')).body.map((each: { limit_value: number }) => each.limit_value);
    expect(values).toEqual([9, 7]);
  });

  it('names the supported type if another one is sent', async () => {
    const { body } = await ask('PUT', '/usage-limits', { limit_type: 'monthly_longlived_traces', limit_value: 1 });
    expect(body.detail).toMatch(
      /`monthly_longlived_traces` are not supported, because .* Supported: `monthly_traces`\.$/,
    );
  });

  it('a key of a workspace cannot change its limit', async () => {
    const { id } = (await limit(0)).body;
    const [key] = acme.workspaceKeys;
    const payload = { limit_type: 'monthly_traces', limit_value: 9 };
    expect((await ask('PUT', '/usage-limits', payload, key)).status).toBe(403);
    expect((await ask('DELETE', `/usage-limits/${id}`, undefined, key)).status).toBe(403);
    const workspaceIds = [acme.workspaceIds[0]];
    const options = { database: api.database, organizationId: acme.id, userId: acme.userId, workspaceIds };
    const reader = await addKey({ ...options, permissions: ['workspaces:read'] });
    expect((await ask('GET', '/usage-limits', undefined, reader)).status).toBe(200);
  });
});

describe('UsageLimits', () => {
  /** Waits until states that are cached for 1 ms have expired. */
  const untilExpired = () => {
    const startMs = performance.now();
    return until('cached states to expire', () => performance.now() > startMs + 3);
  };

  it('accepts if it cannot read the limits, and keeps the last state', async () => {
    await limit(0);
    const warnings: string[] = [];
    const logger = { warn: (_line: object, message: string) => void warnings.push(message) };
    let isDown = true;
    const database = Object.create(api.database, {
      query: {
        value: (...args: Parameters<typeof api.database.query>) =>
          isDown ? Promise.reject(new Error('down')) : api.database.query(...args),
      },
    });
    const limits = new UsageLimits(
      { database, clickhouse: api.services.clickhouse, logger: logger as never },
      { ttlMs: 1 },
    );
    const [workspaceId] = acme.workspaceIds;
    const check = async () => {
      await untilExpired();
      return limits.check(workspaceId);
    };
    expect(await check()).toBeUndefined();
    isDown = false;
    await expect(check()).rejects.toMatchObject({ code: 'USAGE_LIMIT_REACHED' });
    await expect(check()).rejects.toMatchObject({ code: 'USAGE_LIMIT_REACHED' });
    isDown = true;
    await expect(check()).rejects.toMatchObject({ code: 'USAGE_LIMIT_REACHED' });
    expect(warnings).toEqual([
      'usage limits cannot be read',
      // This is logged only once.
      'hard usage limit exceeded',
      'usage limits cannot be read',
    ]);
  });

  it('does not refuse by the traces of the month before, neither cached nor when it cannot read the limits', async () => {
    await limit(1);
    await post();
    await count();
    const logger = { warn: () => undefined } as never;
    let isDown = false;
    const database = Object.create(api.database, {
      query: {
        value: (...args: Parameters<typeof api.database.query>) =>
          isDown ? Promise.reject(new Error('down')) : api.database.query(...args),
      },
    });
    const today = new Date();
    const nextMonthMs = Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + 1);
    let nowMs = nextMonthMs - 1;
    const deps = { database, clickhouse: api.services.clickhouse, logger };
    const [workspaceId] = acme.workspaceIds;
    const [caching, limits] = [600_000, 1].map((ttlMs) => new UsageLimits(deps, { ttlMs, now: () => nowMs }));
    const check = async (of = limits) => {
      await untilExpired();
      return of?.check(workspaceId);
    };
    for (const each of [caching, limits])
      await expect(check(each)).rejects.toMatchObject({ code: 'USAGE_LIMIT_REACHED' });
    nowMs = nextMonthMs;
    isDown = true;
    for (const each of [caching, limits]) expect(await check(each)).toBeUndefined();
    // A limit of none refuses in each month.
    isDown = false;
    await limit(0);
    await expect(check()).rejects.toMatchObject({ code: 'USAGE_LIMIT_REACHED' });
    nowMs = Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + 2);
    isDown = true;
    await expect(check()).rejects.toMatchObject({ code: 'USAGE_LIMIT_REACHED' });
  });

  it('does not refuse by a limit that was deleted, also if the next read is slow', async () => {
    await limit(0);
    let reading: Promise<void> | undefined;
    const database = Object.create(api.database, {
      query: {
        value: async (...args: Parameters<typeof api.database.query>) => {
          await reading;
          return api.database.query(...args);
        },
      },
    });
    const { clickhouse } = api.services;
    const limits = new UsageLimits({ database, clickhouse, logger: { warn: () => undefined } as never });
    const [workspaceId] = acme.workspaceIds;
    await expect(limits.check(workspaceId)).rejects.toMatchObject({ code: 'USAGE_LIMIT_REACHED' });
    const [{ id }] = (await ask('GET', '/usage-limits')).body;
    expect((await ask('DELETE', `/usage-limits/${id}`)).status).toBe(200);
    limits.forget(workspaceId);
    const slow = deferred();
    reading = slow.promise;
    const checked = limits.check(workspaceId);
    // Longer than a request waits if an older state is known.
    expect(await settlesBeforeTimeout(checked, 1_000)).toBe(false);
    slow.resolve();
    expect(await checked).toBeUndefined();
  });
});
