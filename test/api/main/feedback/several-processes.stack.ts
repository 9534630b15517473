import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RoleServers, sharedServers } from '../../../crash/servers-of-roles.ts';
import { stackPart } from '../../../engines/stack.ts';
import { folderForSuite } from '../../../folders.ts';
import { type RoleProcess, startRole } from '../../../role-process.ts';

describe.runIf(stackPart('kafka') && stackPart('registry'))('two API processes', () => {
  const apiKey = 'test-key-of-two-api-processes';
  let servers: RoleServers;
  const root = folderForSuite();
  let apis: [RoleProcess, RoleProcess];
  let sink: RoleProcess;

  const start = (role: 'api' | 'ingest', folder: string) =>
    startRole(role, {
      ...servers.environment,
      RUNLAKE_CLICKHOUSE_URL: servers.clickhouseUrl,
      RUNLAKE_DATABASE_URL: servers.databaseUrl,
      RUNLAKE_SECRET_KEY: 'a secret key of two API processes',
      RUNLAKE_BOOTSTRAP_API_KEY: apiKey,
      RUNLAKE_DATA_DIR: join(root, folder),
    });

  beforeAll(async () => {
    servers = await sharedServers();
    const first = await start('api', 'first');
    const [second, ingest] = await Promise.all([start('api', 'second'), start('ingest', 'ingest')]);
    apis = [first, second];
    sink = ingest;
  }, 240_000);
  afterAll(async () => {
    await Promise.all([...(apis ?? []), sink].map((role) => role?.end()));
    await servers?.release();
  });

  /** Sends a request to one of the processes, again as clients do while a slow machine stores what was sent. */
  async function request(
    index: number,
    method: 'GET' | 'POST' | 'PATCH' | 'DELETE',
    path: string,
    payload?: object,
    // biome-ignore lint/suspicious/noExplicitAny: each operation has its own response type.
  ): Promise<{ status: number; body: any }> {
    const answer = await fetch(`${apis[index % 2]!.url}${path}`, {
      method,
      headers: { 'x-api-key': apiKey, 'content-type': 'application/json' },
      ...(payload && { body: JSON.stringify(payload) }),
    });
    const body = await answer.json();
    return answer.status === 503 ? request(index, method, path, payload) : { status: answer.status, body };
  }

  async function create(): Promise<string> {
    const { status, body } = await request(0, 'POST', '/feedback', { key: 'k', run_id: randomUUID(), score: 0 });
    expect(status).toBe(200);
    return `/feedback/${body.id}`;
  }

  const changes = [{ score: 1 }, { value: 'v' }, { comment: 'c' }, { correction: 'd' }];

  it('keep changes of the other one that are not stored yet, also a deletion', async () => {
    const path = await create();
    for (const [index, change] of changes.entries())
      expect(await request(index, 'PATCH', path, change)).toMatchObject({ status: 200 });
    expect((await request(0, 'PATCH', path, {})).body).toMatchObject(Object.assign({}, ...changes));
    expect((await request(0, 'DELETE', path)).status).toBe(200);
    expect((await request(1, 'PATCH', path, { score: 2 })).status).toBe(404);
  });

  it('keep changes that the other one accepts at the same time, also a deletion', async () => {
    const path = await create();
    for (let round = 0; round < 3; round++) {
      const changed = changes.map((change, index) => request(index, 'PATCH', path, { ...change, score: round }));
      expect((await Promise.all(changed)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
      const { body } = await request(round, 'PATCH', path, {});
      expect(body).toMatchObject({ ...Object.assign({}, ...changes), score: round });
      const removed = ['value', 'comment', 'correction'].map((name, at) =>
        request(at, 'PATCH', path, { [name]: null }),
      );
      await Promise.all(removed);
      const cleared = await request(round, 'PATCH', path, {});
      expect(cleared.body).toMatchObject({ value: null, comment: null, correction: null });
    }
    const [changed, deleted] = await Promise.all([request(0, 'PATCH', path, { score: 9 }), request(1, 'DELETE', path)]);
    expect([200, 404]).toContain(changed.status);
    expect(deleted.status).toBe(200);
    expect((await request(0, 'PATCH', path, {})).status).toBe(404);
  });

  it('store one entry of those that they accept at the same time under one id, for several runs', async () => {
    const runIds = Array.from({ length: 4 }, () => randomUUID());
    const id = randomUUID();
    const sent = runIds.map((run_id, index) => request(index, 'POST', '/feedback', { id, key: 'k', run_id }));
    expect((await Promise.all(sent)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    // A change waits until all of them are stored.
    const { body } = await request(0, 'PATCH', `/feedback/${id}`, {});
    const listed = await request(1, 'GET', `/feedback?${runIds.map((runId) => `run=${runId}`).join('&')}`);
    expect(listed.body).toMatchObject([{ id, run_id: body.run_id }]);
  });
});
