/** Limits per organisation on each kind of resource, also under concurrent creation. */
import { randomUUID } from 'node:crypto';
import { createServer, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { folderForSuite } from '../../folders.ts';
import { listenOnLoopback } from '../../infra/listen-on-loopback.ts';
import { until } from '../../infra/until.ts';
import { type ApiUnderTest, addOrganization, type OrganizationUnderTest, startApi } from '../start-api.ts';
import { rootRun } from './ingest/wire.ts';

let api: ApiUnderTest;
const root = folderForSuite();
beforeAll(async () => {
  const config = {
    localExportRoot: root,
    allowPrivateEndpoints: true,
    maxWorkspaces: 4,
    maxMembers: 4,
    maxApiKeys: 6,
    maxProjects: 3,
    exportMaxDestinations: 3,
    exportMaxSchedules: 3,
    exportMaxUnfinished: 2,
  };
  api = await startApi({ config });
});
afterAll(async () => {
  await api?.close();
});

const ask: ApiUnderTest['ask'] = (...request) => api.ask(...request);
let organizations = 0;
const newOrganization = () => addOrganization(api.database, `limits-${organizations++}`);

/** Creates a project, and a destination in the workspace of the given index. */
async function createExportTarget({ workspaceKeys }: OrganizationUnderTest, index: 0 | 1 = 0) {
  const key = workspaceKeys[index];
  const project = await ask(key, 'POST', '/sessions', { name: randomUUID() });
  const destination = await ask(key, 'POST', '/bulk-exports/destinations', local());
  return { key, bulk_export_destination_id: destination.body.id, session_id: project.body.id };
}
const local = () => ({ destination_type: 'local', display_name: 'd', config: { prefix: randomUUID() } });
const start = { start_time: '2026-03-05T00:00:00Z' };

interface Kind {
  readonly what: string;
  /** Number of resources that can be created. */
  readonly limit: number;
  /** Prepares the creation; each call of the result then creates one in the organisation. */
  prepare(of: OrganizationUnderTest): Promise<() => ReturnType<typeof ask>>;
  /** Frees one slot. Absent if no operation can do that. */
  free?(of: OrganizationUnderTest, made: { readonly id: string }): Promise<unknown>;
}
const kinds: Kind[] = [
  {
    what: 'workspaces',
    limit: 2,
    prepare: async (of) => () => ask(of.adminKey, 'POST', '/workspaces', { display_name: 'w' }),
    async free(of, { id }) {
      await ask(of.adminKey, 'DELETE', `/workspaces/${id}`);
      // A deleted workspace counts until its second purge has deleted its data.
      for (const purge of ['NULL', 'deleted_at', `deleted_at + interval '59 minutes'`]) {
        await api.database.execute(`UPDATE workspaces SET purged_at = ${purge} WHERE id = $1`, [id]);
        expect((await ask(of.adminKey, 'POST', '/workspaces', { display_name: 'w' })).status).toBe(422);
      }
      await api.database.execute(`UPDATE workspaces SET purged_at = deleted_at + interval '1 hour' WHERE id = $1`, [
        id,
      ]);
    },
  },
  {
    what: 'users',
    limit: 3,
    prepare: async (of) => {
      let made = 0;
      // Alternates between the two operations.
      return () => {
        const email = `${randomUUID()}@example.com`;
        return made++ % 2 === 0
          ? ask(of.adminKey, 'POST', '/orgs/current/members', { email })
          : ask(of.adminKey, 'POST', '/api-key', { description: 'k', user_email: email });
      };
    },
  },
  {
    what: 'API keys',
    limit: 3,
    prepare: async (of) => () => ask(of.adminKey, 'POST', '/api-key', { description: 'k' }),
    free: (of, { id }) => ask(of.adminKey, 'DELETE', `/api-key/${id}`),
  },
  {
    what: 'tracing projects',
    limit: 3,
    prepare: async (of) => () => ask(of.adminKey, 'POST', '/sessions', { name: randomUUID() }),
    free: (of, { id }) => ask(of.adminKey, 'DELETE', `/sessions/${id}`),
  },
  {
    what: 'destinations of bulk exports',
    limit: 3,
    prepare: async (of) => () => ask(of.adminKey, 'POST', '/bulk-exports/destinations', local()),
    free: (of, { id }) => ask(of.adminKey, 'DELETE', `/bulk-exports/destinations/${id}`),
  },
  {
    what: 'scheduled bulk exports',
    limit: 3,
    prepare: async (of) => {
      // In either workspace: the limit applies to the organisation.
      const each = [await createExportTarget(of, 0), await createExportTarget(of, 1)];
      let made = 0;
      return () => {
        const { key, ...to } = each[made++ % 2] as Awaited<ReturnType<typeof createExportTarget>>;
        return ask(key, 'POST', '/bulk-exports', { ...start, ...to, interval_hours: 24 });
      };
    },
    free: async (of, { id }) =>
      Promise.all(of.workspaceKeys.map((key) => ask(key, 'PATCH', `/bulk-exports/${id}`, { status: 'Cancelled' }))),
  },
  {
    what: 'bulk exports that are not finished',
    limit: 2,
    prepare: async (of) => {
      const { key, ...to } = await createExportTarget(of);
      return () => ask(key, 'POST', '/bulk-exports', { ...start, ...to, end_time: '2026-03-06T00:00:00Z' });
    },
    free: (of, { id }) => ask(of.workspaceKeys[0], 'PATCH', `/bulk-exports/${id}`, { status: 'Cancelled' }),
  },
];

describe.each(kinds)('$what', ({ what, limit, prepare, free }) => {
  it('never exceed the limit, also under concurrent creation', async () => {
    const of = await newOrganization();
    const make = await prepare(of);
    const answers = await Promise.all(Array.from({ length: 12 }, make));
    const made = answers.filter(({ status }) => status < 300);
    expect(made).toHaveLength(limit);
    for (const { status, body } of answers.filter((each) => !made.includes(each))) {
      expect(status).toBe(422);
      expect(JSON.stringify(body)).toContain(` ${what}.`);
    }
    // Another organisation is not affected.
    expect((await (await prepare(await newOrganization()))()).status).toBeLessThan(300);
    if (free === undefined) return;
    await free(of, made[0]?.body);
    expect((await make()).status).toBeLessThan(300);
    expect((await make()).status).toBe(422);
  });
});

describe('checks of destinations', () => {
  it('are limited in number, so that a store that hangs blocks no other organisation', async () => {
    const [one, other] = [await newOrganization(), await newOrganization()];
    const sockets: Socket[] = [];
    const silent = createServer((socket) => void sockets.push(socket.on('error', () => undefined)));
    const port = await listenOnLoopback(silent);
    const hangingDestination = {
      display_name: 'd',
      config: { bucket_name: 'bucket', endpoint_url: `http://127.0.0.1:${port}` },
      credentials: { access_key_id: 'a', secret_access_key: 'b' },
    };
    const make = (of: OrganizationUnderTest, body: object) =>
      ask(of.adminKey, 'POST', '/bulk-exports/destinations', body);
    const waiting = Array.from({ length: 16 }, () => make(one, hangingDestination));
    await until('all checks hang', () => sockets.length >= 16);
    expect(await make(one, local())).toMatchObject({ status: 503, body: { code: 'OVERLOADED' } });
    expect((await make(other, local())).status).toBe(200);
    silent.close();
    for (const socket of sockets) socket.destroy();
    for (const { status } of await Promise.all(waiting)) expect(status).toBe(400);
    expect((await make(one, local())).status).toBe(200);
  });
});

describe('tracing projects created by runs', () => {
  it('respect the limit: runs of other projects are named in the response, runs of existing projects are accepted', async () => {
    const of = await newOrganization();
    const run = (project: string) => ({
      id: randomUUID(),
      name: 'r',
      run_type: 'chain',
      inputs: {},
      session_name: project,
    });
    const post = (body: object) => ask(of.adminKey, 'POST', '/runs', body);
    for (const project of ['a', 'b', 'c']) expect((await post(run(project))).status).toBe(202);
    const refused = await post(run('d'));
    expect(refused.status).toBe(422);
    expect(JSON.stringify(refused.body)).toContain('tracing projects');
    expect((await post(run('a'))).status).toBe(202);
  });

  it('are no longer tried once the limit is reached, and one request looks up a limited number', async () => {
    const of = await newOrganization();
    const run = (project: string) => rootRun({ session_name: project });
    const transactions = vi.spyOn(api.database, 'transaction');
    const queries = vi.spyOn(api.database, 'query');
    try {
      const post = Array.from({ length: 1_100 }, (_, index) => run(`new-${index}`));
      const refused = await ask(of.adminKey, 'POST', '/runs/batch', { post: [...post, run('new-0')] });
      expect(refused).toMatchObject({ status: 202, body: { message: expect.stringMatching(/^4 of 1101 items/) } });
      expect(transactions.mock.calls.length).toBeLessThanOrEqual(3 + 2);
      expect(queries.mock.calls.filter(([sql]) => sql.includes('project_former_names'))).toHaveLength(1_000);
    } finally {
      transactions.mockRestore();
      queries.mockRestore();
    }
    const again = await ask(of.adminKey, 'POST', '/runs/batch', { post: ['new-9', 'new-1', 'new-8'].map(run) });
    expect(again).toMatchObject({ status: 202, body: { message: expect.stringMatching(/^1 of 3 items/) } });
    expect(again.body.rejected).toMatchObject([{ code: 'LIMIT_REACHED' }, { code: 'LIMIT_REACHED' }]);
  });

  it('are created once if concurrent requests name the same one, with one slot left', async () => {
    const of = await newOrganization();
    const names = await Promise.all(
      Array.from({ length: 3 }, () => ask(of.adminKey, 'POST', '/sessions', { name: randomUUID() })),
    );
    await ask(of.adminKey, 'DELETE', `/sessions/${names[0]?.body.id}`);
    const made = await Promise.all(
      Array.from({ length: 8 }, () => ask(of.adminKey, 'POST', '/sessions?upsert=true', { name: 'same' })),
    );
    expect(made.map(({ status }) => status)).toEqual(made.map(() => 200));
    expect(new Set(made.map(({ body }) => body.id)).size).toBe(1);
  });
});
