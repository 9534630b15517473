import { beforeAll, describe, expect, it } from 'vitest';
import type { RunEvent } from '../../../pipelines/ingest/run-event/run-event.ts';
import type { RunQuery } from '../../../pipelines/runs/query-runs.ts';
import { runOnStoredTable } from '../../engines/on-stored-table.ts';
import { forSuite } from '../../for-suite.ts';
import { deletedProjectId, foreignProjectId, foreignTenantId, openReading } from './reading.ts';
import {
  deriveUuid,
  insertEvents,
  json,
  noonMicros,
  otherProjectId,
  projectId,
  runEvent,
  tenantId,
} from './run-events.ts';

const reading = forSuite(() => openReading());

/** Stores each list of events as a separate insert batch. */
async function store(...batches: RunEvent[][]): Promise<void> {
  for (const batch of batches) await insertEvents(reading.stores.clickhouse, batch);
}

async function readOne(runId: string): Promise<Record<string, unknown> | undefined> {
  return (await reading.page({ runIds: [runId] })).runs[0];
}

describe('post and patch', () => {
  const second = 1_000_000;
  const post = (runId: string) =>
    runEvent({
      runId,
      values: {
        name: 'posted',
        runType: 'llm',
        startedAtMicros: noonMicros + 5,
        inputs: json({ from: 'post' }),
        extra: json({ metadata: { thread_id: 't1' } }),
      },
    });
  const patch = (runId: string) =>
    runEvent({
      runId,
      kind: 'patch',
      receivedAtMicros: noonMicros + 9 * second,
      values: { endedAtMicros: noonMicros + second, outputs: json({ from: 'patch' }), inputs: json({ from: 'patch' }) },
    });
  const merged = {
    name: 'posted',
    run_type: 'llm',
    start_time: '2026-03-05T12:00:00.000005',
    end_time: '2026-03-05T12:00:01.000000',
    status: 'success',
    inputs: { from: 'patch' },
    outputs: { from: 'patch' },
    extra: { metadata: { thread_id: 't1' } },
    thread_id: 't1',
    trace_first_received_at: '2026-03-05T12:00:01.000000',
  };

  const orders: [string, (id: string) => RunEvent[][]][] = [
    ['post, patch', (id) => [[post(id)], [patch(id)]]],
    ['patch, post', (id) => [[patch(id)], [post(id)]]],
    ['in one insert batch', (id) => [[post(id), patch(id)]]],
    ['in one insert batch, patch first', (id) => [[patch(id), post(id)]]],
    ['a late repeat of the post', (id) => [[post(id)], [patch(id)], [post(id)]]],
    [
      'everything twice',
      (id) => [
        [post(id), patch(id)],
        [post(id), patch(id)],
      ],
    ],
  ];
  it.each(orders)('%s: the same run', async (name, batches) => {
    const runId = deriveUuid('order', name);
    await store(...batches(runId));
    expect(await readOne(runId)).toMatchObject(merged);
    await runOnStoredTable(reading.stores.clickhouse, 'runs', (stored) => `OPTIMIZE TABLE ${stored} FINAL`);
    expect(await readOne(runId)).toMatchObject(merged);
  });

  it('the later of two patches wins, field by field', async () => {
    const runId = deriveUuid('two patches');
    const first = { outputs: json({ n: 1 }), error: Buffer.from('"first"') };
    await store(
      [post(runId)],
      [{ ...patch(runId), values: first }],
      [{ ...patch(runId), values: { outputs: json({ n: 2 }) } }],
    );
    expect(await readOne(runId)).toMatchObject({ outputs: { n: 2 }, error: 'first', status: 'error' });
  });

  it('a run known only by a patch has the fields that clients need', async () => {
    const runId = deriveUuid('patch only');
    await store([runEvent({ runId, kind: 'patch', values: { outputs: json({ a: 1 }) } })]);
    expect(await readOne(runId)).toMatchObject({
      name: '',
      run_type: 'chain',
      status: 'pending',
      start_time: '2026-03-05T12:00:00.000000',
      end_time: null,
      inputs: {},
      outputs: { a: 1 },
      total_tokens: 0,
      total_cost: null,
    });
    const chains = await reading.all({ filter: { runType: 'chain' } });
    expect(chains.ids).toContain(runId);
  });

  it.each([
    ['an error', { error: Buffer.from('"boom"'), endedAtMicros: noonMicros }, 'error'],
    ['an empty error', { error: Buffer.from('""') }, 'error'],
    ['an end', { endedAtMicros: noonMicros }, 'success'],
    ['neither', {}, 'pending'],
  ] as const)('status with %s', async (name, values, status) => {
    const runId = deriveUuid('status', name);
    await store([runEvent({ runId, values })]);
    expect((await readOne(runId))?.status).toBe(status);
  });

  it('a deleted run stays deleted, even if a late patch follows', async () => {
    const runId = deriveUuid('deleted run');
    await store([post(runId)], [{ ...patch(runId), deletedAtMicros: noonMicros, values: {} }], [patch(runId)]);
    expect(await readOne(runId)).toBeUndefined();
  });
});

describe('tokens, costs and times', () => {
  it('are returned as in the schema', async () => {
    const runId = deriveUuid('usage');
    const usageDetails = json({
      prompt_token_details: { cache_read: 5 },
      prompt_cost_details: { cache_read: 0.000001, audio: '0.5' },
    });
    await store([
      runEvent({
        runId,
        values: {
          runType: 'llm',
          promptTokens: 20,
          completionTokens: 1,
          totalTokens: 21,
          promptCost: '0.0000350',
          totalCost: '12345678901234567890.12345678',
          usageDetails,
          firstTokenTimeMicros: noonMicros + 1,
          referenceExampleId: deriveUuid('example'),
          tags: json(['a', 'b']),
        },
      }),
    ]);
    expect(await readOne(runId)).toMatchObject({
      prompt_tokens: 20,
      completion_tokens: 1,
      total_tokens: 21,
      prompt_cost: '0.0000350',
      completion_cost: null,
      total_cost: '12345678901234567890.12345678',
      prompt_token_details: { cache_read: 5 },
      completion_token_details: null,
      prompt_cost_details: { cache_read: '0.000001', audio: '0.5' },
      first_token_time: '2026-03-05T12:00:00.000001',
      reference_example_id: deriveUuid('example'),
      tags: ['a', 'b'],
      app_path: `/o/${tenantId}/projects/p/${projectId}/r/${runId}?trace_id=${runId}&start_time=2026-03-05T12%3A00%3A00.000000`,
    });
  });

  it.each([
    [{ thread_id: 'a', session_id: 'b', conversation_id: 'c' }, 'a'],
    [{ session_id: 'b', conversation_id: 'c' }, 'b'],
    [{ thread_id: '', conversation_id: 'c' }, 'c'],
    [{ thread_id: 7 }, '7'],
    [{ thread_id: null, session_id: 'b' }, 'b'],
    [{}, null],
  ])('thread of metadata %j', async (metadata, threadId) => {
    const runId = deriveUuid('thread', JSON.stringify(metadata));
    await store([runEvent({ runId, values: { extra: json({ metadata }) } })]);
    const { runs } = await reading.page({ runIds: [runId], select: ['thread_id'] });
    expect(runs[0]?.thread_id).toBe(threadId);
  });
});

describe('the scope of a query', () => {
  const ids = (...names: string[]) => names.map((name) => deriveUuid('scope', name));
  const [mine, others, deleted, foreign] = ids('mine', 'others', 'deleted', 'foreign') as [
    string,
    string,
    string,
    string,
  ];
  beforeAll(async () => {
    await store([
      runEvent({ runId: mine, startTimeMicros: noonMicros + 100 }),
      runEvent({ runId: others, startTimeMicros: noonMicros + 100, projectId: otherProjectId }),
      runEvent({ runId: deleted, startTimeMicros: noonMicros + 100, projectId: deletedProjectId }),
      runEvent({
        runId: foreign,
        startTimeMicros: noonMicros + 100,
        tenantId: foreignTenantId,
        projectId: foreignProjectId,
      }),
    ]);
  });
  const from = { filter: { startedFromMicros: noonMicros + 100 } };
  const everything = { runIds: [mine, others, deleted, foreign] };

  const cases: [string, Partial<RunQuery>, string[]][] = [
    ['one project', { ...from, projectIds: [projectId] }, [mine]],
    ['two projects', { ...from, projectIds: [projectId, otherProjectId] }, [mine, others]],
    ['all projects', from, [mine, others]],
    ['a deleted project', { ...from, projectIds: [deletedProjectId] }, []],
    ['a foreign project', { ...from, projectIds: [foreignProjectId] }, []],
    ['an unknown project', { ...from, projectIds: [deriveUuid('unknown')] }, []],
    ['ids', everything, [mine, others]],
    ['ids in a project', { ...everything, projectIds: [otherProjectId] }, [others]],
    ['ids and a condition', { ...everything, filter: { hasError: true } }, []],
    ['ids, queried by another organisation', { ...everything, tenantId: foreignTenantId }, [foreign]],
    ['unknown ids', { runIds: [deriveUuid('nobody')] }, []],
    ['a foreign trace', { filter: { traceId: foreign } }, []],
    ['a foreign parent', { filter: { parentRunId: foreign } }, []],
    ['a trace of a deleted project', { filter: { traceId: deleted } }, []],
  ];
  it.each(cases)('%s', async (_name, query, expected) => {
    const { ids: found } = await reading.all(query);
    expect(found.sort()).toEqual([...expected].sort());
  });

  it('thousands of projects', async () => {
    const many = [...Array(3_000).keys()].map((n) => deriveUuid('one of many', n));
    await reading.stores.database.execute(
      'INSERT INTO projects (id, workspace_id, name) SELECT id, $2, id::text FROM unnest($1::uuid[]) AS id',
      [many, tenantId],
    );
    const runId = deriveUuid('in the last project');
    await store([runEvent({ runId, projectId: many.at(-1) as string, startTimeMicros: noonMicros + 200 })]);
    const found = await reading.all({ filter: { startedFromMicros: noonMicros + 200 } });
    expect(found.ids).toEqual([runId]);
    await reading.stores.database.execute('UPDATE projects SET deleted_at = now() WHERE id = ANY ($1)', [many]);
  });
});

describe('conditions', () => {
  const day = 86_400_000_000;
  const at = noonMicros + 10 * day;
  const root = deriveUuid('tree', 'root');
  const child = deriveUuid('tree', 'child');
  const grandchild = deriveUuid('tree', 'grandchild');
  const orphan = deriveUuid('tree', 'orphan');
  const secondRoot = deriveUuid('tree', 'lonely');
  const missing = deriveUuid('tree', 'missing');
  const member = { traceId: root, traceTimeMicros: at };
  beforeAll(async () => {
    await store(
      [
        runEvent({ runId: root, startTimeMicros: at, values: { runType: 'chain', endedAtMicros: at + 50 } }),
        runEvent({ ...member, runId: child, startTimeMicros: at + 10, values: { runType: 'llm', parentRunId: root } }),
        runEvent({
          ...member,
          runId: grandchild,
          startTimeMicros: at + 40 * day,
          dottedOrder: undefined,
          values: { runType: 'tool', parentRunId: child, referenceExampleId: deriveUuid('e1') },
        }),
        runEvent({
          runId: orphan,
          traceId: missing,
          traceTimeMicros: at,
          startTimeMicros: at + 30,
          dottedOrder: undefined,
          values: { parentRunId: missing, runType: 'llm' },
        }),
        runEvent({ runId: secondRoot, startTimeMicros: at + 20, values: { runType: 'llm', endedAtMicros: at + 90 } }),
      ],
      // The run type and the error arrive later, by patch.
      [
        runEvent({
          ...member,
          runId: child,
          startTimeMicros: at + 10,
          kind: 'patch',
          values: { runType: 'retriever' },
        }),
        runEvent({
          runId: secondRoot,
          startTimeMicros: at + 20,
          kind: 'patch',
          values: { error: Buffer.from('"late"') },
        }),
      ],
    );
  });

  const cases: [string, RunQuery['filter'], string[]][] = [
    ['nothing', {}, [root, child, secondRoot, orphan, grandchild]],
    ['trace', { traceId: root }, [root, child, grandchild]],
    ['trace without its root', { traceId: root, isRoot: false }, [child, grandchild]],
    ['unknown trace', { traceId: deriveUuid('no such trace') }, []],
    ['parent', { parentRunId: root }, [child]],
    ['parent that never arrived', { parentRunId: missing }, [orphan]],
    ['roots', { isRoot: true }, [root, secondRoot]],
    ['not roots', { isRoot: false }, [child, orphan, grandchild]],
    ['run type by post', { runType: 'llm' }, [secondRoot, orphan]],
    ['run type by patch', { runType: 'retriever' }, [child]],
    ['errors', { hasError: true }, [secondRoot]],
    ['no errors', { hasError: false }, [root, child, orphan, grandchild]],
    ['from a time on, inclusive', { startedFromMicros: at + 20 }, [secondRoot, orphan, grandchild]],
    ['ended until a time, inclusive', { endedUntilMicros: at + 50 }, [root]],
    ['ended until a time in 2255', { endedUntilMicros: 9e15 }, [root, secondRoot]],
    ['ended before 1970', { endedUntilMicros: -1 }, []],
    ['from beyond the maximum time', { startedFromMicros: 253_402_300_799_000_000 }, []],
    ['example', { referenceExampleIds: [deriveUuid('e0'), deriveUuid('e1')] }, [grandchild]],
    ['several at once', { hasError: true, runType: 'llm', isRoot: true, startedFromMicros: at }, [secondRoot]],
  ];
  for (const order of ['asc', 'desc'] as const) {
    it.each(cases)(`${order}: %s`, async (_name, filter, expected) => {
      const { ids } = await reading.all({
        order,
        limitRows: 2,
        filter: { startedFromMicros: at, ...filter },
      });
      expect(ids).toEqual(order === 'asc' ? expected : [...expected].reverse());
    });
  }

  it('ancestors and descendants, also without dotted_order', async () => {
    const { runs } = await reading.page({
      order: 'asc',
      runIds: [root, child, grandchild, orphan],
      select: ['parent_run_ids', 'parent_run_id', 'child_run_ids', 'direct_child_run_ids', 'trace_min_max_start_time'],
    });
    expect(runs.map((run) => run.parent_run_ids)).toEqual([[], [root], [missing], [root, child]]);
    expect(runs.map((run) => run.parent_run_id)).toEqual([null, root, missing, child]);
    expect(runs.map((run) => run.child_run_ids)).toEqual([[child, grandchild], [grandchild], [], []]);
    expect(runs.map((run) => run.direct_child_run_ids)).toEqual([[child], [grandchild], [], []]);
    expect(runs[3]?.dotted_order).toBe(
      `20260315T120000000000Z${root}.20260315T120000000010Z${child}.20260424T120000000000Z${grandchild}`,
    );
    expect(runs[2]?.dotted_order).toBe(`20260315T120000000000Z${missing}.20260315T120000000030Z${orphan}`);
    expect(runs[0]).toMatchObject({
      trace_min_start_time: '2026-03-15T12:00:00.000000',
      trace_max_start_time: '2026-04-24T12:00:00.000000',
    });
  });

  it('feedback and attachments come from their providers, which are called only if selected', async () => {
    const calls: string[] = [];
    const extras = {
      feedbackStats: async (_tenant: string, runIds: readonly string[]) => {
        calls.push('feedback');
        return new Map([[runIds[0] ?? '', '{"score":{"n":1,"avg":0.5}}']]);
      },
      attachmentUrls: async (_tenant: string, runIds: readonly string[]) => {
        calls.push('attachments');
        return new Map([[runIds[0] ?? '', '{"attachment.a":{"presigned_url":"/x"}}']]);
      },
      shares: async (_tenant: string, traceIds: readonly string[]) => {
        calls.push('shares');
        return new Map([[traceIds[0] ?? '', { token: 'token', url: '/token' }]]);
      },
      uses: async (_tenant: string, runIds: readonly string[]) => {
        calls.push('uses');
        return new Map([[runIds[0] ?? '', { inDataset: true, lastQueuedMicros: noonMicros }]]);
      },
      datasets: async (_tenant: string, projectIds: readonly string[]) => {
        calls.push('datasets');
        return new Map([[projectIds[0] ?? '', 'dataset']]);
      },
    };
    await reading.page({ runIds: [root], select: ['name'] }, { extras });
    expect(calls).toEqual([]);
    const { runs } = await reading.page({ runIds: [root] }, { extras });
    expect(runs[0]).toMatchObject({
      feedback_stats: { score: { n: 1, avg: 0.5 } },
      s3_urls: { 'attachment.a': { presigned_url: '/x' } },
      share_token: 'token',
    });
  });
});
