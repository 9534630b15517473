/** How a claim shares slots between callers: first single cases, then random steps against a model. */

import { randomUUID } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type ClaimCapacity, claimRuns, getMsToNextRun } from '../../../../pipelines/agents/runs/claim-runs.ts';
import { createRun } from '../../../../pipelines/agents/runs/create-run.ts';
import { endRun, releaseRun } from '../../../../pipelines/agents/runs/end-run.ts';
import type { ClaimedRun } from '../../../../pipelines/agents/runs/run-row.ts';
import { forSuite } from '../../../for-suite.ts';
import { newRun, openRows, processId } from './run-rows.ts';

const rows = forSuite(() => openRows());

/** Opens a deployment whose callers and runs have names. A run gets the name of its caller. */
async function openCallers() {
  const { database } = rows;
  const org = await rows.newDeployment();
  const ids = new Map<string, string>();
  const names = new Map<string, string>();
  const numbers = new Map<string, number>();
  const callerId = (name: string) => {
    if (!ids.has(name)) ids.set(name, randomUUID());
    return ids.get(name);
  };
  const nameRun = (caller: string, runId: string) => {
    numbers.set(caller, (numbers.get(caller) ?? 0) + 1);
    const name = `${caller}${numbers.get(caller)}`;
    names.set(runId, name);
    return name;
  };
  return {
    org,
    nameOf: (run: ClaimedRun) => names.get(run.runId) as string,
    /** Creates pending runs, each on a new thread, and names them. */
    wait: async (callers: readonly string[]) => {
      const made: string[] = [];
      for (const caller of callers) {
        const { run_id } = await rows.run(undefined, { callerId: callerId(caller) }, org);
        made.push(nameRun(caller, run_id));
      }
      return made;
    },
    run: async (callers: readonly string[]) => {
      for (const caller of callers) {
        const { run_id } = await createRun(database, org, newRun(undefined, { callerId: callerId(caller) }));
        expect(await claimRuns(database, org, { slots: 1, processId })).toMatchObject([{ runId: run_id }]);
        nameRun(caller, run_id);
      }
    },
    callerId,
    claim: async (capacity: ClaimCapacity) => {
      const claimed = await claimRuns(database, org, { ...capacity, processId });
      return claimed.map(({ runId }) => names.get(runId)).sort();
    },
    claimed: (capacity: ClaimCapacity) => claimRuns(database, org, { ...capacity, processId }),
  };
}

const times = (count: number, caller: string) => Array.from({ length: count }, () => caller);

describe('a claim', () => {
  it.each<{
    name: string;
    running?: readonly string[];
    waiting: readonly string[];
    capacity: ClaimCapacity;
    starts: readonly string[];
  }>([
    {
      name: 'gives all slots to a single caller, the oldest run first',
      waiting: times(5, 'a'),
      capacity: { slots: 4 },
      starts: ['a1', 'a2', 'a3', 'a4'],
    },
    {
      name: 'gives each caller its share, also if its run is newest',
      waiting: [...times(5, 'a'), 'b', 'c'],
      capacity: { slots: 3 },
      starts: ['a1', 'b1', 'c1'],
    },
    {
      name: 'orders by age between callers with equal counts',
      waiting: ['b', 'a', 'c'],
      capacity: { slots: 2 },
      starts: ['a1', 'b1'],
    },
    {
      name: 'counts running runs',
      running: ['a', 'a', 'b'],
      waiting: [...times(3, 'a'), ...times(3, 'b'), ...times(3, 'c')],
      capacity: { slots: 4 },
      starts: ['a3', 'b2', 'c1', 'c2'],
    },
    {
      name: 'gives extra slots to callers without a running run',
      running: times(4, 'a'),
      waiting: [...times(3, 'a'), 'b', 'c'],
      capacity: { slots: 0, extraSlots: 3 },
      starts: ['b1', 'c1'],
    },
    {
      name: 'gives extra slots up to the share of a caller',
      running: times(4, 'a'),
      waiting: times(3, 'b'),
      capacity: { slots: 0, extraSlots: 3 },
      starts: ['b1', 'b2'],
    },
    {
      name: 'gives no extra slot to a single caller',
      running: times(4, 'a'),
      waiting: times(3, 'a'),
      capacity: { slots: 0, extraSlots: 3 },
      starts: [],
    },
    {
      name: 'gives extra slots in addition to regular ones',
      running: times(3, 'a'),
      waiting: [...times(3, 'a'), ...times(3, 'b')],
      capacity: { slots: 1, extraSlots: 2 },
      starts: ['b1'],
    },
    {
      name: 'gives one slot each to many callers',
      running: times(2, 'a'),
      waiting: ['b', 'b', 'c', 'd', 'e', 'f'],
      capacity: { slots: 0, extraSlots: 4 },
      starts: ['b1', 'c1', 'd1', 'e1'],
    },
  ])('$name', async ({ running = [], waiting, capacity, starts }) => {
    const callers = await openCallers();
    await callers.run(running);
    await callers.wait(waiting);
    expect(await callers.claim(capacity)).toEqual(starts);
  });

  it('uses the caller of the next run of a thread', async () => {
    const { org, callerId, claim, run, wait } = await openCallers();
    await run(['a', 'a']);
    const threadId = await rows.newThread(org);
    const first = await rows.run(threadId, { callerId: callerId('b') }, org);
    await rows.run(threadId, { callerId: callerId('a') }, org);
    await wait(['a']);
    const [claimed] = await claimRuns(rows.database, org, { slots: 1, processId });
    expect(claimed?.runId).toBe(first.run_id);
    await endRun(rows.database, claimed as ClaimedRun, { status: 'success' });
    // Now the thread waits on behalf of caller `a`.
    await wait(['c']);
    expect(await claim({ slots: 1 })).toEqual(['c1']);
  });

  it('finds a run when it becomes due, and its caller', async () => {
    const { org, callerId, claim, run } = await openCallers();
    await run(['a', 'a']);
    const later = await rows.run(undefined, { callerId: callerId('b'), afterSeconds: 3_600 }, org);
    expect(await claim({ slots: 9, extraSlots: 9 })).toEqual([]);
    expect(await getMsToNextRun(rows.database, org, 20)).toBeGreaterThan(3_500_000);
    const due = `now() - interval '1 minute'`;
    await rows.database.execute(`UPDATE agents.runs SET due_at = ${due} WHERE run_id = $1`, [later.run_id]);
    await rows.database.execute(`UPDATE agents.threads SET next_due_at = ${due} WHERE thread_id = $1`, [
      later.thread_id,
    ]);
    expect(await claimRuns(rows.database, org, { slots: 0, extraSlots: 9, processId })).toMatchObject([
      { runId: later.run_id },
    ]);
  });

  it('treats runs without a caller as runs of one caller', async () => {
    const { org, wait, claim } = await openCallers();
    for (let made = 0; made < 3; made += 1) await rows.run(undefined, {}, org);
    await wait(['b']);
    expect(await claim({ slots: 2 })).toEqual(['b1', undefined]);
  });

  it('starts each run once, however many callers wait', async () => {
    const { wait, claim } = await openCallers();
    const callers = Array.from({ length: 230 }, (_, index) => `caller${index}-`);
    const made = await wait(callers);
    const started: unknown[] = [];
    for (let starts: unknown[] = ['first']; starts.length > 0; started.push(...starts)) {
      starts = await claim({ slots: 60 });
      expect(starts.length).toBeLessThanOrEqual(60);
    }
    expect(started.sort()).toEqual(made.sort());
  });
});

it.each([3, 4, 5, 6])('starts the same runs as the model (seed %i)', async (seed) => {
  const { database } = rows;
  const { wait, claimed, nameOf } = await openCallers();
  let state = seed;
  const pick = (below: number) => {
    state = (state * 1_664_525 + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  /** Waiting runs, in order of age. */
  let waiting: string[] = [];
  let running: { readonly name: string; readonly run: ClaimedRun }[] = [];
  const ages = new Map<string, number>();
  const caller = (name: string) => name.slice(0, 1);
  const held = (of: string) => running.filter(({ name }) => caller(name) === of).length;

  function expected({ slots, extraSlots = 0 }: ClaimCapacity): string[] {
    const all = new Set([...waiting, ...running.map(({ name }) => name)].map(caller));
    const share = Math.max(1, Math.floor(running.length / all.size));
    const counts = new Map([...all].map((each) => [each, held(each)]));
    const left = [...waiting];
    const started: string[] = [];
    while (started.length < slots + extraSlots && left.length > 0) {
      const fewest = Math.min(...left.map((name) => counts.get(caller(name)) as number));
      if (started.length >= slots && fewest >= share) break;
      const index = left.findIndex((name) => counts.get(caller(name)) === fewest);
      const [name] = left.splice(index, 1) as [string];
      counts.set(caller(name), fewest + 1);
      started.push(name);
    }
    return started.sort();
  }

  for (let step = 0; step < 80; step += 1) {
    const kind = pick(5);
    if (kind <= 1) {
      for (const name of await wait(times(1 + pick(4), 'abcd'.charAt(pick(4) * pick(2))))) {
        ages.set(name, ages.size);
        waiting.push(name);
      }
    } else if (kind <= 3) {
      const capacity = { slots: pick(3), extraSlots: pick(4) };
      const starts = expected(capacity);
      const runs = await claimed(capacity);
      expect(runs.map(nameOf).sort(), `step ${step}`).toEqual(starts);
      waiting = waiting.filter((name) => !starts.includes(name));
      running.push(...runs.map((run) => ({ name: nameOf(run), run })));
    } else if (running.length > 0) {
      const [{ name, run }] = running.splice(pick(running.length), 1) as [(typeof running)[number]];
      running = [...running];
      if (pick(2) === 0) await endRun(database, run, { status: 'success' });
      else {
        await releaseRun(database, run, { alone: false, countsAsLost: false });
        waiting.push(name);
        waiting.sort((one, other) => (ages.get(one) as number) - (ages.get(other) as number));
      }
    }
  }
});

it('a claim reads only the runs that it starts, also before the first ANALYZE', async () => {
  const own = await openRows();
  const { database, org } = own;
  const waiting = () => Promise.all([1, 2, 3].map(() => own.run(undefined)));
  onTestFinished(() => own.close());
  await database.execute('ALTER TABLE agents.runs SET (autovacuum_enabled = false)');
  const read = await database.session(async (session) => {
    // Postgres keeps the plan of the first claim, when there are few runs.
    await waiting();
    expect(await claimRuns(session, org, { slots: 3, processId })).toHaveLength(3);
    await session.execute(
      `INSERT INTO agents.runs (deployment_id, thread_id, run_id, assistant_id, graph_id, status, kwargs, ended_at, end_published)
         SELECT $1, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'echo', 'success', '{}', now(), true
         FROM generate_series(1, 1000)`,
      [org],
    );
    await waiting();
    return session.transaction(async (tx) => {
      expect(await claimRuns(tx, org, { slots: 3, processId })).toHaveLength(3);
      const [counted] = await tx.query<{ rows: number }>(
        "SELECT idx_tup_fetch + seq_tup_read AS rows FROM pg_stat_xact_user_tables WHERE relid = 'agents.runs'::regclass",
      );
      return counted?.rows;
    });
  });
  expect(read).toBeLessThan(50);
});
