/**
 * Rows of runs against a model of them: first one operation at a time, exactly; then several processes at once, by
 * invariants.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cancelRun } from '../../../../pipelines/agents/runs/cancel-run.ts';
import { claimRuns } from '../../../../pipelines/agents/runs/claim-runs.ts';
import { claimUnpublishedEnds } from '../../../../pipelines/agents/runs/claim-unpublished-ends.ts';
import { createAndClaimRun } from '../../../../pipelines/agents/runs/create-run.ts';
import { deleteRun } from '../../../../pipelines/agents/runs/delete-run.ts';
import { endRun } from '../../../../pipelines/agents/runs/end-run.ts';
import { markEndsPublished } from '../../../../pipelines/agents/runs/mark-ends-published.ts';
import { releaseRun } from '../../../../pipelines/agents/runs/release-run.ts';
import { multitaskStrategies } from '../../../../pipelines/agents/runs/run.ts';
import type { ClaimedRun } from '../../../../pipelines/agents/runs/run-row.ts';
import { sweepRuns } from '../../../../pipelines/agents/runs/sweep-runs.ts';
import { leaseThread, type ThreadLease } from '../../../../pipelines/agents/threads/lease-thread.ts';
import { leaseMs, newRun, openRows, processId, type Rows } from './run-rows.ts';

let rows: Rows;
beforeAll(async () => {
  rows = await openRows();
});
afterAll(async () => rows?.stores.close());

/** Numbers from 0 to below `below`, the same for the same seed. */
function dice(seed: number) {
  let state = seed;
  return (below: number) => {
    state = (state * 1_664_525 + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

interface ModelRun {
  readonly id: string;
  readonly thread: string;
  readonly place: number;
  status: string;
  attempt: number;
  losses: number;
  cancel: string | null;
  claim?: ClaimedRun;
}

class Model {
  runs: ModelRun[] = [];
  readonly rest = new Map<string, string>();
  readonly held = new Set<string>();

  going = (thread: string) => this.runs.filter((run) => run.thread === thread && isGoing(run));
  running = (thread: string) => this.going(thread).find((run) => run.status === 'running');
  status = (thread: string) => (this.going(thread).length > 0 ? 'busy' : this.rest.get(thread));
  /** Ended, or gone where it was rolled back. */
  end(run: ModelRun, status: string, { remove, rest }: { remove: boolean; rest?: string }): void {
    run.status = status;
    if (remove) this.runs = this.runs.filter((other) => other !== run);
    else if (rest !== undefined) this.rest.set(run.thread, rest);
  }
  giveBack(run: ModelRun, countLoss: boolean): void {
    run.losses += countLoss ? 1 : 0;
    if (run.cancel !== null) this.end(run, 'interrupted', { remove: run.cancel === 'rollback', rest: 'idle' });
    else if (run.losses >= 3) this.end(run, 'error', { remove: false, rest: 'error' });
    else run.status = 'pending';
  }
  cancel(run: ModelRun, action: string): void {
    if (run.status === 'pending') this.end(run, 'interrupted', { remove: action === 'rollback' });
    else if (run.status === 'running' && run.cancel !== 'rollback') run.cancel = action;
  }
  heads(threads: readonly string[]): ModelRun[] {
    return threads
      .filter((thread) => !this.held.has(thread) && this.running(thread) === undefined)
      .flatMap((thread) => this.going(thread).slice(0, 1))
      .sort((a, b) => a.place - b.place);
  }
}

const waiting = { status: 'pending', attempt: 0 };
const isGoing = ({ status }: { readonly status: string }) => status === 'pending' || status === 'running';

async function stored(organization: string) {
  const { database } = rows;
  const runs = await database.query<Record<string, unknown>>(
    `SELECT run_id AS id, status, attempt, losses, cancel_action AS cancel FROM agents.runs
     WHERE deployment_id = $1 AND NOT removed ORDER BY queue_position`,
    [organization],
  );
  const threads = await database.query<{ thread_id: string; status: string; waits: boolean }>(
    `SELECT thread_id, status, next_due_at IS NOT NULL AS waits FROM agents.threads WHERE deployment_id = $1`,
    [organization],
  );
  return { runs, threads };
}

describe('one operation at a time', () => {
  it.each([11, 22])(
    'does what the model does (seed %i)',
    async (seed) => {
      const { database } = rows;
      const org = await rows.newDeployment();
      const pick = dice(seed);
      const threads = [await rows.newThread(org), await rows.newThread(org), await rows.newThread(org)];
      const model = new Model();
      for (const thread of threads) model.rest.set(thread, 'idle');
      const holds = new Map<string, ThreadLease>();
      const over: ClaimedRun[] = [];
      const anyThread = () => threads[pick(threads.length)] as string;
      const anyRunning = () => {
        const running = model.runs.filter(({ status }) => status === 'running');
        return running[pick(running.length)];
      };
      let place = 0;

      const steps: (() => Promise<void>)[] = [
        async () => {
          const thread = anyThread();
          const strategy = multitaskStrategies[pick(4)] as (typeof multitaskStrategies)[number];
          const going = model.going(thread);
          const more = newRun(thread, { multitaskStrategy: strategy });
          const making = createAndClaimRun(database, org, more, pick(2) === 0 ? processId : undefined);
          if (strategy === 'reject' && going.length > 0) {
            await expect(making).rejects.toMatchObject({ code: 'THREAD_BUSY', status: 409 });
            return;
          }
          const { run, claimed } = await making;
          const id = run.run_id;
          if (strategy === 'interrupt' || strategy === 'rollback') for (const run of going) model.cancel(run, strategy);
          const started = claimed && { status: 'running', attempt: claimed.attempt, claim: claimed };
          if (started) expect([going, model.held.has(thread), claimed.attempt]).toEqual([[], false, 1]);
          model.runs.push({ ...{ id, thread, place: place++, losses: 0, cancel: null }, ...(started ?? waiting) });
        },
        async () => {
          const slots = 1 + pick(3);
          const expected = model.heads(threads).slice(0, slots);
          const claims = await claimRuns(database, org, { slots, processId });
          expect(new Set(claims.map(({ runId }) => runId))).toEqual(new Set(expected.map(({ id }) => id)));
          for (const claim of claims) {
            const run = expected.find(({ id }) => id === claim.runId) as ModelRun;
            run.status = 'running';
            run.attempt += 1;
            run.claim = claim;
            expect(claim.attempt).toBe(run.attempt);
          }
        },
        async () => {
          const run = anyRunning();
          if (run === undefined) return;
          const kind = pick(4);
          // The process that ends it knows nothing of what was asked.
          const outcome = kind === 0 ? 'error' : 'success';
          const next = kind === 1 ? ['ask'] : [];
          const error = kind === 0 ? { error: { error: 'E', message: 'm' } } : {};
          const ended = await endRun(database, run.claim as ClaimedRun, {
            status: outcome,
            values: '{}',
            next,
            ...error,
          });
          const rollback = run.cancel === 'rollback';
          const interrupted = rollback || (run.cancel === 'interrupt' && outcome === 'success');
          const status = interrupted ? 'interrupted' : outcome;
          expect(ended).toMatchObject({ runId: run.id, status, removed: rollback });
          over.push(run.claim as ClaimedRun);
          const rest = outcome === 'error' ? 'error' : next.length > 0 ? 'interrupted' : 'idle';
          model.end(run, status, { remove: rollback, rest });
        },
        async () => {
          const run = anyRunning();
          if (run === undefined) return;
          await rows.expire(run.claim?.leaseToken as string);
          expect(await sweepRuns(database, org)).toBe(1);
          over.push(run.claim as ClaimedRun);
          model.giveBack(run, true);
        },
        async () => {
          const run = anyRunning();
          if (run === undefined) return;
          const countLoss = pick(2) === 0;
          await releaseRun(database, run.claim as ClaimedRun, { alone: pick(2) === 0, countLoss });
          over.push(run.claim as ClaimedRun);
          model.giveBack(run, countLoss);
        },
        async () => {
          const run = model.runs[pick(model.runs.length)];
          if (run === undefined) return;
          const action = pick(2) === 0 ? 'interrupt' : 'rollback';
          const cancelling = cancelRun(database, org, { threadId: run.thread, runId: run.id }, action);
          if (action === 'rollback' && !isGoing(run)) {
            await expect(cancelling).rejects.toMatchObject({ code: 'RUN_ENDED', status: 409 });
          } else await cancelling;
          model.cancel(run, action);
        },
        async () => {
          const zombie = over[pick(over.length)];
          if (zombie === undefined) return;
          expect(await endRun(database, zombie, { status: 'success', values: '{"zombie":1}' })).toBeUndefined();
          expect(await rows.leases(org, [zombie.leaseToken])).toEqual([]);
          await releaseRun(database, zombie, { alone: true, countLoss: true });
        },
        async () => {
          await markEndsPublished(database, await claimUnpublishedEnds(database, org, 0));
        },
        async () => {
          const thread = anyThread();
          const hold = holds.get(thread);
          if (hold !== undefined) {
            await hold.release();
            holds.delete(thread);
            model.held.delete(thread);
          } else if (model.going(thread).length > 0) {
            await expect(leaseThread(database, org, thread, leaseMs)).rejects.toMatchObject({ code: 'THREAD_BUSY' });
          } else {
            holds.set(thread, await leaseThread(database, org, thread, leaseMs));
            model.held.add(thread);
          }
        },
        async () => {
          const run = model.runs[pick(model.runs.length)];
          if (run === undefined) return;
          const deleting = deleteRun(database, org, { threadId: run.thread, runId: run.id });
          if (run.status === 'running') await expect(deleting).rejects.toMatchObject({ code: 'THREAD_BUSY' });
          else {
            await deleting;
            model.end(run, 'interrupted', { remove: true });
          }
        },
      ];
      const often = [0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9];
      for (let step = 0; step < 120; step += 1) {
        const chosen = often[pick(often.length)] as number;
        await steps[chosen]?.();
        const now = await stored(org);
        const where = `step ${step}, operation ${chosen}`;
        expect(now.runs, where).toEqual(
          model.runs.map(({ id, status, attempt, losses, cancel }) => ({ id, status, attempt, losses, cancel })),
        );
        for (const thread of now.threads) {
          expect(thread.status, where).toBe(model.status(thread.thread_id));
          const waits = model.going(thread.thread_id).length > 0 && model.running(thread.thread_id) === undefined;
          expect(thread.waits, where).toBe(waits);
        }
      }
    },
    60_000,
  );
});

describe('several processes at once', () => {
  it('never runs two of a thread, starts them in order, and leaves none behind', async () => {
    const { database } = rows;
    const org = await rows.newDeployment();
    const pick = dice(5);
    const threads = await Promise.all(Array.from({ length: 6 }, () => rows.newThread(org)));
    const starts: ClaimedRun[] = [];
    const runningOn = new Map<string, string>();
    let left = 80;
    let making = 3;

    async function maker(): Promise<void> {
      while (left > 0) {
        left -= 1;
        const strategy = pick(8) === 0 ? 'interrupt' : pick(8) === 0 ? 'rollback' : 'enqueue';
        const thread = threads[pick(threads.length)] as string;
        const more = newRun(thread, { multitaskStrategy: strategy });
        const made = await createAndClaimRun(database, org, more, pick(3) === 0 ? processId : undefined);
        const runId = made.run.run_id;
        const carriedOut = made.claimed && carryOut([made.claimed]);
        if (pick(6) === 0) await cancelRun(database, org, { threadId: thread, runId }, 'rollback').catch(notGone);
        await carriedOut;
      }
      making -= 1;
    }
    async function carryOut(claims: readonly ClaimedRun[]): Promise<void> {
      for (const claim of claims) {
        expect(runningOn.get(claim.threadId), 'two runs of a thread').toBeUndefined();
        runningOn.set(claim.threadId, claim.runId);
        starts.push(claim);
      }
      const tokens = claims.map(({ leaseToken }) => leaseToken);
      await rows.leases(org, tokens);
      for (const claim of claims) {
        const fate = pick(5);
        // Before it is over in the database: afterwards somebody else may have the next.
        runningOn.delete(claim.threadId);
        if (fate === 0) await rows.expire(claim.leaseToken);
        else if (fate === 1) await releaseRun(database, claim, { alone: false, countLoss: false });
        else await endRun(database, claim, { status: 'success', values: '{}' });
      }
    }
    async function worker(): Promise<void> {
      for (;;) {
        const done = making === 0;
        const claims = await claimRuns(database, org, { slots: 1 + pick(4), processId });
        await sweepRuns(database, org);
        await carryOut(claims);
        const [row] = await database.query<{ going: number }>(
          `SELECT count(*) AS going FROM agents.runs WHERE deployment_id = $1 AND status IN ('pending', 'running')`,
          [org],
        );
        if (done && row?.going === 0) return;
      }
    }
    await Promise.all([maker(), maker(), maker(), worker(), worker(), worker(), worker()]);

    const { threads: ended } = await stored(org);
    expect(ended.map(({ status, waits }) => ({ status, waits }))).toEqual(
      threads.map(() => ({ status: expect.stringMatching(/^(idle|error)$/), waits: false })),
    );
    expect(new Set(starts.map(({ leaseToken }) => leaseToken)).size).toBe(starts.length);
    // A thread counts its starts, and each run its own.
    const attempts = new Map<string, number>();
    for (const thread of threads) {
      const ofThread = starts
        .filter(({ threadId }) => threadId === thread)
        .sort((a, b) => a.threadStart - b.threadStart);
      expect(ofThread.map(({ threadStart }) => threadStart)).toEqual(ofThread.map((_, index) => index + 1));
      for (const { runId, attempt } of ofThread) {
        expect(attempt).toBe((attempts.get(runId) ?? 0) + 1);
        attempts.set(runId, attempt);
      }
      const first = ofThread.filter(({ attempt }) => attempt === 1).map(({ runId }) => runId);
      const made = await database.query<{ run_id: string }>(
        'SELECT run_id FROM agents.runs WHERE deployment_id = $1 AND run_id = ANY ($2::uuid[]) ORDER BY queue_position',
        [org, first],
      );
      expect(first).toEqual(made.map(({ run_id }) => run_id));
    }
  }, 60_000);
});

function notGone(error: unknown): void {
  expect(error).toMatchObject({ code: expect.stringMatching(/^RUN_(NOT_FOUND|ENDED)$/) });
}
