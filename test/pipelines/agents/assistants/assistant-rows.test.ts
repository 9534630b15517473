import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Database } from '../../../../infra/postgres/database.ts';
import { type Assistant, resolveAssistant } from '../../../../pipelines/agents/assistants/assistant.ts';
import {
  type AssistantSearch,
  countAssistants,
  listAssistantVersions,
  searchAssistants,
} from '../../../../pipelines/agents/assistants/read-assistants.ts';
import {
  createAssistant,
  deleteAssistant,
  ensureSystemAssistants,
  type NewAssistant,
  setAssistantVersion,
  updateAssistant,
} from '../../../../pipelines/agents/assistants/write-assistants.ts';
import { claimRuns } from '../../../../pipelines/agents/runs/claim-runs.ts';
import { endRun } from '../../../../pipelines/agents/runs/end-run.ts';
import { claimUnpublishedEnds } from '../../../../pipelines/agents/runs/published-ends.ts';
import { readRun } from '../../../../pipelines/agents/runs/read-run.ts';
import { readThread } from '../../../../pipelines/agents/threads/thread.ts';
import { createThread } from '../../../../pipelines/agents/threads/write-threads.ts';
import { createProxyTo, forSuite } from '../../../for-suite.ts';
import { leaseMs, openRows, processId } from '../runs/run-rows.ts';

const rows = forSuite(() => openRows());
const database = createProxyTo(() => rows.database);
let org: string;

const make = (more: Partial<NewAssistant> = {}) =>
  createAssistant(database, org, { graphId: 'agent', ifExists: 'raise', ...more }, { maxAssistants: 1_000 });
const missing = { code: 'ASSISTANT_NOT_FOUND', status: 404 };
const system = { graphId: 'agent', name: 'Agent', description: 'helps', config: { tags: ['a'] } };

it('assistants never exceed the limit, also with concurrent creation', async () => {
  const deploymentId = await rows.newDeployment();
  const make = (assistantId?: string) =>
    createAssistant(
      database,
      deploymentId,
      { graphId: 'agent', ifExists: 'do_nothing', ...(assistantId && { assistantId }) },
      { maxAssistants: 3 },
    );
  const made = await Promise.allSettled(Array.from({ length: 12 }, () => make()));
  const existing = made.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
  expect(existing).toHaveLength(3);
  for (const each of made) {
    if (each.status === 'rejected') expect(each.reason).toMatchObject({ code: 'LIMIT_REACHED', status: 422 });
  }
  // An existing assistant is returned, and is counted only once.
  expect(await make(existing[0]?.assistant_id)).toEqual(existing[0]);
  await expect(make()).rejects.toMatchObject({ code: 'LIMIT_REACHED' });
});

describe('assistants', () => {
  beforeAll(async () => {
    org = await rows.newDeployment();
  });

  it('are created for each graph at startup, with fixed ids, and keep later changes', async () => {
    await Promise.all([
      ensureSystemAssistants(database, org, [system]),
      ensureSystemAssistants(database, org, [system]),
    ]);
    const made = await resolveAssistant(database, org, 'agent');
    expect(made).toMatchObject({
      graph_id: 'agent',
      name: 'Agent',
      description: 'helps',
      config: { tags: ['a'] },
      context: {},
      metadata: { created_by: 'system' },
      version: 1,
    });
    expect(await resolveAssistant(database, org, made.assistant_id.toUpperCase())).toEqual(made);
    const changed = await updateAssistant(database, org, 'agent', { config: { recursion_limit: 7 } });
    await ensureSystemAssistants(database, org, [system]);
    expect(await resolveAssistant(database, org, 'agent')).toEqual(changed);
    for (const unknown of ['other', randomUUID(), "'; --", '\u0000']) {
      await expect(resolveAssistant(database, org, unknown)).rejects.toMatchObject(missing);
    }
  });

  it('are created once per id, and visible in their deployment only', async () => {
    const assistantId = randomUUID();
    const made = await make({ assistantId, name: 'N', context: [1], metadata: { a: 1 }, description: 'd' });
    expect(made).toMatchObject({ assistant_id: assistantId, name: 'N', context: [1], metadata: { a: 1 }, version: 1 });
    await expect(make({ assistantId })).rejects.toMatchObject({ code: 'ASSISTANT_EXISTS', status: 409 });
    expect(await make({ assistantId, name: 'other', ifExists: 'do_nothing' })).toEqual(made);
    await expect(make({ metadata: { a: '\u0000' } })).rejects.toMatchObject({ code: 'INVALID_REQUEST' });
    const { foreignOrg } = rows;
    const foreign: (() => Promise<unknown>)[] = [
      () => resolveAssistant(database, foreignOrg, assistantId),
      () => updateAssistant(database, foreignOrg, assistantId, { name: 'x' }),
      () => setAssistantVersion(database, foreignOrg, assistantId, 1),
      () => deleteAssistant(database, foreignOrg, assistantId, {}),
    ];
    for (const attempt of foreign) await expect(attempt()).rejects.toMatchObject(missing);
    expect(await listAssistantVersions(database, foreignOrg, assistantId, { limit: 9, offset: 0 })).toEqual([]);
    expect(await resolveAssistant(database, org, assistantId)).toEqual(made);
  });

  it('have versions: each change creates one, any can be set, and each number is used once', async () => {
    const { assistant_id: id } = await make({ metadata: { a: 1 }, context: { x: 1 }, config: { tags: ['one'] } });
    const second = await updateAssistant(database, org, id, { metadata: { b: 2 }, name: 'two', context: null });
    expect(second).toMatchObject({
      version: 2,
      name: 'two',
      metadata: { a: 1, b: 2 },
      context: {},
      config: { tags: ['one'] },
    });
    expect(await setAssistantVersion(database, org, id, 1)).toMatchObject({
      version: 1,
      name: 'agent',
      metadata: { a: 1 },
      context: { x: 1 },
    });
    const changes = [1, 2, 3, 4].map((n) => updateAssistant(database, org, id, { description: `d${n}` }));
    expect((await Promise.all(changes)).map(({ version }) => version).sort()).toEqual([3, 4, 5, 6]);
    const versions = await listAssistantVersions(database, org, id, { limit: 3, offset: 2 });
    expect(versions.map(({ version }) => version)).toEqual([4, 3, 2]);
    expect(versions[2]).not.toHaveProperty('updated_at');
    const versionsWithB = await listAssistantVersions(database, org, id, { metadata: { b: 2 }, limit: 9, offset: 0 });
    expect(versionsWithB.map(({ version }) => version)).toEqual([2]);
    await expect(setAssistantVersion(database, org, id, 99)).rejects.toMatchObject(missing);
  });

  it.each([
    { deleteThreads: false, what: 'with their runs' },
    { deleteThreads: true, what: 'with their threads' },
  ])('are deleted $what', async ({ deleteThreads }) => {
    const other = await make();
    const gone: Assistant = await make();
    const [shared, own] = [await rows.newThread(org), await rows.newThread(org)];
    const running = await rows.run(own, { assistant: gone }, org);
    const claims = await claimRuns(database, org, { slots: 9, processId });
    const claimed = claims.find(({ runId }) => runId === running.run_id) as (typeof claims)[number];
    const waiting = await rows.run(shared, { assistant: gone }, org);
    const stays = await rows.run(shared, { assistant: other }, org);
    await deleteAssistant(database, org, gone.assistant_id, { deleteThreads });

    await expect(resolveAssistant(database, org, gone.assistant_id)).rejects.toMatchObject(missing);
    expect(await listAssistantVersions(database, org, gone.assistant_id, { limit: 9, offset: 0 })).toEqual([]);
    expect(await endRun(database, claimed, { status: 'success', values: '{}' })).toBeUndefined();
    const ends = (await claimUnpublishedEnds(database, org, leaseMs)).map(({ runId }) => runId);
    for (const run of [running, waiting]) {
      const lookUp = readRun(database, org, { threadId: run.thread_id, runId: run.run_id });
      await expect(lookUp).rejects.toMatchObject({ code: 'RUN_NOT_FOUND' });
      expect(ends).toContain(run.run_id);
    }
    expect(await readRun(database, org, { threadId: shared, runId: stays.run_id })).toMatchObject({
      status: 'pending',
    });
    expect(await readThread(database, org, shared)).toMatchObject({ status: 'busy' });
    if (deleteThreads) await expect(readThread(database, org, own)).rejects.toMatchObject({ code: 'THREAD_NOT_FOUND' });
    else expect(await readThread(database, org, own)).toMatchObject({ status: 'idle' });
    expect((await claimRuns(database, org, { slots: 9, processId })).map(({ runId }) => runId)).toEqual([stays.run_id]);
  });
});

it('an assistant with very many runs, and new ones meanwhile, is deleted in transactions that lock few threads', async () => {
  const deploymentId = await rows.newDeployment();
  const { assistant_id: id } = await createAssistant(
    ...[database, deploymentId, { graphId: 'agent', ifExists: 'raise' } as const, { maxAssistants: 9 }],
  );
  await database.execute(
    `WITH thread AS (
       INSERT INTO agents.threads (deployment_id, thread_id, status)
       SELECT $1, gen_random_uuid(), 'busy' FROM generate_series(1, 250) RETURNING thread_id)
     INSERT INTO agents.runs (deployment_id, thread_id, run_id, assistant_id, graph_id, kwargs, status, end_published)
     SELECT $1, thread_id, gen_random_uuid(), $2, 'agent', '{}', status, status = 'success' OR NULL
     FROM thread, (VALUES ('success'), ('pending')) AS run (status)`,
    [deploymentId, id],
  );
  const locked: number[] = [];
  const counting: Database = {
    ...database,
    transaction: async (work, options) => {
      if (locked.length > 20) throw new Error('the deletion does not end');
      const { thread_id: threadId } = await createThread(database, deploymentId, { metadata: {}, ifExists: 'raise' });
      await rows.run(threadId, { assistant: { assistant_id: id, graph_id: 'agent' } }, deploymentId);
      return database.transaction(async (tx) => {
        const result = await work(tx);
        const [held] = await tx.query<{ threads: number }>(
          'SELECT count(*) AS threads FROM agents.threads WHERE deployment_id = $1 AND xmin = pg_current_xact_id()::xid',
          [deploymentId],
        );
        locked.push(held!.threads);
        return result;
      }, options);
    },
  };
  await deleteAssistant(counting, deploymentId, id);
  expect(Math.max(...locked)).toBeLessThanOrEqual(100);
  expect(locked.reduce((sum, count) => sum + count)).toBe(250 + locked.length);
  const left = (condition: string) =>
    database.query(`SELECT FROM agents.runs WHERE deployment_id = $1 AND ${condition}`, [deploymentId]);
  expect(await left('NOT removed')).toHaveLength(0);
  expect(await left(`removed AND status = 'interrupted'`)).toHaveLength(250 + locked.length);
  const busy = await database.query(`SELECT FROM agents.threads WHERE deployment_id = $1 AND status = 'busy'`, [
    deploymentId,
  ]);
  expect(busy).toHaveLength(0);
});

describe('search', () => {
  const names = ['Alpha', 'beta', 'ALPHABET', '100%_'];
  beforeAll(async () => {
    org = await rows.newDeployment();
    for (const [n, name] of names.entries()) {
      await make({ name, graphId: n === 1 ? 'other' : 'agent', metadata: { n, tags: ['t', { n }] } });
    }
  });

  it.each([
    ['all', {}, [3, 2, 1, 0]],
    ['a graph', { graphId: 'other' }, [1]],
    ['a part of the name, in any case', { name: 'alpha' }, [2, 0]],
    ['a name with LIKE wildcards', { name: '%_' }, [3]],
    ['metadata', { metadata: { tags: [{ n: 2 }] } }, [2]],
    ['by name', { sortBy: 'graph_id', sortOrder: 'desc', limit: 1 }, [1]],
    ['a page', { limit: 2, offset: 1 }, [2, 1]],
    ['nothing', { graphId: 'none' }, []],
  ] as [string, Partial<AssistantSearch>, number[]][])('finds %s', async (_name, search, expected) => {
    const whole = { sortBy: 'created_at', sortOrder: 'desc', limit: 10, offset: 0, ...search } as const;
    const { assistants, total } = await searchAssistants(database, org, whole);
    expect(assistants.map(({ name }) => names.indexOf(name))).toEqual(expected);
    expect(total).toBe('limit' in search ? names.length : expected.length);
    expect(await countAssistants(database, org, whole)).toBe(total);
    expect((await searchAssistants(database, rows.foreignOrg, whole)).total).toBe(0);
  });
});
