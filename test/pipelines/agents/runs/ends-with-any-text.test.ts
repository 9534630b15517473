import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { claimRuns } from '../../../../pipelines/agents/runs/claim-runs.ts';
import { createRun } from '../../../../pipelines/agents/runs/create-run.ts';
import { sweepRuns } from '../../../../pipelines/agents/runs/delete-run.ts';
import { endRun, releaseRun } from '../../../../pipelines/agents/runs/end-run.ts';
import { readRun } from '../../../../pipelines/agents/runs/read-run.ts';
import type { RunKwargs } from '../../../../pipelines/agents/runs/run.ts';
import type { ClaimedRun } from '../../../../pipelines/agents/runs/run-row.ts';
import { deleteThread } from '../../../../pipelines/agents/threads/delete-thread.ts';
import { createProxyTo, forSuite } from '../../../for-suite.ts';
import { kwargs, newRun, openRows, processId } from './run-rows.ts';

/** No text that a run contains can prevent its end, and no run can prevent the end of others. */

const rows = forSuite(() => openRows());
const database = createProxyTo(() => rows.database);
let org: string;
beforeAll(() => {
  ({ org } = rows);
});

async function claim(runId: string): Promise<ClaimedRun> {
  const claimed = (await claimRuns(database, org, { slots: 100, processId })).find((run) => run.runId === runId);
  if (claimed === undefined) throw new Error('not claimed');
  return claimed;
}

describe('runs with text that Postgres cannot store as jsonb', () => {
  const input = { text: '\u0000 \ud800' };
  const project = '\u{10ffff}'.repeat(3_000);
  const tracer = { project_name: project, example_id: randomUUID() };

  async function claimNew(more: Partial<RunKwargs> = {}): Promise<ClaimedRun> {
    const run = await createRun(database, org, newRun(await rows.newThread(), { kwargs: kwargs({ input, ...more }) }));
    return claim(run.run_id);
  }

  async function countUsage(): Promise<Readonly<Record<string, number>>> {
    const counted = await database.query<{ project_name: string; runs: number }>(
      `SELECT project_name, sum(agent_runs)::int AS runs FROM agents.usage_hourly
       WHERE deployment_id = $1 GROUP BY project_name`,
      [org],
    );
    return Object.fromEntries(counted.map(({ project_name, runs }) => [project_name, runs]));
  }

  it.each<[how: string, status: string | undefined, end: (run: ClaimedRun) => Promise<unknown>]>([
    ['its graph finishes', 'success', (run) => endRun(database, run, { status: 'success', values: '{}' })],
    ['the thread is deleted', undefined, ({ threadId }) => deleteThread(database, org, threadId)],
    [
      'three attempts are lost',
      'error',
      async (run) => {
        await releaseRun(database, run, { alone: false, countsAsLost: true });
        await releaseRun(database, await claim(run.runId), { alone: false, countsAsLost: true });
        await rows.expire((await claim(run.runId)).leaseToken);
        expect(await sweepRuns(database, org)).toBe(1);
      },
    ],
  ])('end and count once when %s', async (_, status, end) => {
    const run = await claimNew();
    const { [run.graphId]: before = 0 } = await countUsage();
    await end(run);
    const reading = readRun(database, org, run);
    if (status === undefined) await expect(reading).rejects.toMatchObject({ code: 'RUN_NOT_FOUND' });
    else expect(await reading).toMatchObject({ status, kwargs: { input } });
    expect(await countUsage()).toMatchObject({ [run.graphId]: before + 1 });
  });

  it('count for the project of the request, of whose name usage keeps 512 characters', async () => {
    await endRun(database, await claimNew({ langsmith_tracer: tracer }), { status: 'success' });
    expect(await countUsage()).toMatchObject({ ['\u{10ffff}'.repeat(512)]: 1 });
  });
});

it('requeues the other runs of a lost process if one cannot be requeued', async () => {
  const other = await rows.newDeployment();
  const claims = [];
  for (const _ of [1, 2]) {
    await rows.run(await rows.newThread(other), {}, other);
    claims.push(...(await claimRuns(database, other, { slots: 1, processId: randomUUID() })));
  }
  // Breaks the first run: its losses cannot be increased.
  const [broken, intact] = claims as [ClaimedRun, ClaimedRun];
  await database.execute('UPDATE agents.runs SET losses = 2147483647 WHERE run_id = $1', [broken.runId]);
  await expect(sweepRuns(database, other)).rejects.toMatchObject({ code: 'DATABASE_QUERY_FAILED' });
  expect(await readRun(database, other, broken)).toMatchObject({ status: 'running' });
  expect(await readRun(database, other, intact)).toMatchObject({ status: 'pending' });
});
