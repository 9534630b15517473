/**
 * Runlake on two ClickHouse shards, from requests to pages, usage and an exported file. It is short, so that each
 * `make test` runs it; the long suites on two shards are `test/infra/clickhouse/two-shards.test.ts`,
 * `test/crash/shards.test.ts` and `make shards`.
 */
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { type ClickHouse, openClickHouse } from '../../infra/clickhouse/client.ts';
import { askRunlake } from '../ask-runlake.ts';
import { type DedicatedShards, startDedicatedShards } from '../engines/own-shards.ts';
import { folderForSuite } from '../folders.ts';
import { until } from '../infra/until.ts';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';
import { logger } from '../silent-logger.ts';

vi.setConfig({ testTimeout: 120_000 });

const folder = folderForSuite();
let shards: DedicatedShards;
let runlake: RunlakeProcess;
let clickhouse: ClickHouse;

beforeAll(async () => {
  shards = await startDedicatedShards(folder, 2);
  const { clickhouseUrl: url, clickhouseCluster: cluster } = shards.addresses;
  clickhouse = openClickHouse({ url, cluster, logger, timeoutMs: 30_000 });
  runlake = await startRunlake({
    environment: {
      RUNLAKE_CLICKHOUSE_URL: url,
      RUNLAKE_CLICKHOUSE_CLUSTER: cluster,
      RUNLAKE_LOCAL_EXPORT_ROOT: folder,
    },
  });
});
afterAll(async () => {
  await runlake?.remove();
  await clickhouse?.close();
  await shards?.stop();
});

const ask = <T = { id: string }>(method: string, path: string, body?: object) =>
  askRunlake<T>(runlake, `/api/v1${path}`, { method, body });

const traces = 40;
const beginMs = Math.floor(Date.now() / 86_400_000 - 1) * 86_400_000;
const toSegment = (ms: number, id: string) =>
  `${new Date(ms).toISOString().replace(/[-:.]/g, '').replace('Z', '000Z')}${id}`;

interface SentRun {
  readonly id: string;
  readonly trace_id: string;
  readonly dotted_order: string;
  readonly outputs: object;
}

/** Returns a trace of two runs: the root, and its child. */
function makeTrace(session: string, trace: number) {
  const startMs = beginMs + trace * 60_000;
  const [rootId, childId] = [randomUUID(), randomUUID()];
  const rootOrder = toSegment(startMs, rootId);
  const own = { trace_id: rootId, session_id: session, run_type: 'chain', inputs: { trace } };
  const start_time = new Date(startMs).toISOString();
  return [
    { ...own, id: rootId, name: `root ${trace}`, start_time, dotted_order: rootOrder },
    {
      ...{ ...own, id: childId, name: `child ${trace}`, start_time, parent_run_id: rootId },
      dotted_order: `${rootOrder}.${toSegment(startMs, childId)}`,
    },
  ];
}

test('runs and their patches are on pages, in usage and in an export, from both shards', async () => {
  const { id: session } = await ask('POST', '/sessions', { name: 'on two shards' });
  const post = Array.from({ length: traces }, (_, trace) => makeTrace(session, trace)).flat();
  const patch = post.map(({ id, trace_id, dotted_order, name }): SentRun => {
    return { id, trace_id, dotted_order, outputs: { of: name } };
  });
  await ask('POST', '/runs/batch', { post });
  await ask('POST', '/runs/batch', { patch });
  // The repeat does not undo the newer patches.
  const newer = patch.filter((_, index) => index % 4 === 0).map((run) => ({ ...run, outputs: { newer: true } }));
  await ask('POST', '/runs/batch', { patch: newer });
  await ask('POST', '/runs/batch', { patch });
  const isNewer = new Set(newer.map(({ id }) => id));
  const expected = patch.map(({ id, outputs }) => ({ id, outputs: isNewer.has(id) ? { newer: true } : outputs }));

  const found: { id: string; outputs: object }[] = [];
  for (let cursor: string | null | undefined = null; cursor !== undefined; ) {
    type Page = { runs: { id: string; outputs: object }[]; cursors: { next?: string | null } };
    const page: Page = await ask('POST', '/runs/query', { session: [session], limit: 30, cursor });
    found.push(...page.runs);
    cursor = page.cursors.next ?? undefined;
  }
  const byId = (one: { id: string }, other: { id: string }) => (one.id < other.id ? -1 : 1);
  expect(found.map(({ id, outputs }) => ({ id, outputs })).sort(byId)).toEqual(expected.sort(byId));

  const period = `starting_on=${new Date(beginMs).toISOString()}&ending_before=${new Date(beginMs + 86_400_000).toISOString()}`;
  interface Usage {
    groups: Record<string, number>;
  }
  let counted: readonly number[] = [];
  await until('the usage of all traces', async () => {
    const usage = await ask<Usage[]>('GET', `/orgs/current/billing/usage?${period}`);
    counted = usage.flatMap(({ groups }) => Object.values(groups));
    return counted.reduce((sum, count) => sum + count, 0) >= traces;
  });
  expect(counted.reduce((sum, count) => sum + count, 0)).toBe(traces);

  const { id: destination } = await ask('POST', '/bulk-exports/destinations', {
    ...{ destination_type: 'local', display_name: 'here', config: { prefix: 'exports' } },
  });
  const { id } = await ask('POST', '/bulk-exports', {
    ...{ bulk_export_destination_id: destination, session_id: session },
    ...{ start_time: new Date(beginMs).toISOString(), end_time: new Date(beginMs + 86_400_000).toISOString() },
  });
  await until('the end of the export', async () => {
    const { status } = await ask<{ status: string }>('GET', `/bulk-exports/${id}`);
    return !['CREATED', 'RUNNING'].includes(status);
  });
  expect(await ask('GET', `/bulk-exports/${id}`)).toMatchObject({
    ...{ status: 'COMPLETED', progress: { rows_written: post.length, files: 1 } },
  });
  const [run] = await ask<{ metadata: { result: { exported_files: string[] } } }[]>('GET', `/bulk-exports/${id}/runs`);
  const [file = ''] = run?.metadata.result.exported_files ?? [];
  expect((await readFile(join(folder, file))).subarray(0, 4).toString()).toBe('PAR1');

  // Otherwise this suite would prove nothing.
  const stored = await Promise.all(
    clickhouse.servers.map((server) =>
      server.query<{ id: string }>({ name: 'test', sql: 'SELECT DISTINCT id FROM runs_local' }),
    ),
  );
  expect(stored.map((runs) => runs.length > 0)).toEqual([true, true]);
  expect(stored.flat()).toHaveLength(post.length);
});
