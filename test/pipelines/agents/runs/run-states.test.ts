/**
 * Rows of runs, compared with a model: first with one operation at a time, exactly; then with several processes at
 * once, by invariants.
 */

import { describe, expect, it } from 'vitest';
import { cancelRun } from '../../../../pipelines/agents/runs/cancel-run.ts';
import { claimRuns } from '../../../../pipelines/agents/runs/claim-runs.ts';
import { createRun } from '../../../../pipelines/agents/runs/create-run.ts';
import { deleteRun, sweepRuns } from '../../../../pipelines/agents/runs/delete-run.ts';
import { endRun, releaseRun } from '../../../../pipelines/agents/runs/end-run.ts';
import { claimUnpublishedEnds, markEndsPublished } from '../../../../pipelines/agents/runs/published-ends.ts';
import { multitaskStrategies } from '../../../../pipelines/agents/runs/run.ts';
import type { ClaimedRun } from '../../../../pipelines/agents/runs/run-row.ts';
import { leaseThread, type ThreadLease } from '../../../../pipelines/agents/threads/update-thread-state.ts';
import { forSuite } from '../../../for-suite.ts';
import { leaseMs, newRun, openRows, processId } from './run-rows.ts';

const rows = forSuite(() => openRows());

/** Returns a generator of deterministic random integers from 0 to `below` - 1. */
function createRandom(seed: number) {
  let state = seed;
  return (below: number) => {
    state = (state * 1_664_525 + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

interface ModelRun {
  readonly id: string;
  readonly thread: string;
  readonly position: number;
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

  active = (thread: string) => this.runs.filter((run) => run.thread === thread && isActive(run));
  running = (thread: string) => this.active(thread).find((run) => run.status === 'running');
  status = (thread: string) => (this.active(thread).length > 0 ? 'busy' : this.rest.get(thread));
  /** Ends a run, or removes it if it was rolled back. */
  end(run: ModelRun, status: string, { remove, rest }: { remove: boolean; rest?: string }): void {
    run.status = status;
    if (remove) this.runs = this.runs.filter((other) => other !== run);
    else if (rest !== undefined) this.rest.set(run.thread, rest);
  }
  release(run: ModelRun, countsAsLost: boolean): void {
    run.losses += countsAsLost ? 1 : 0;
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
      .flatMap((thread) => this.active(thread).slice(0, 1))
      .sort((a, b) => a.position - b.position);
  }
}

const waiting = { status: 'pending', attempt: 0 };
const isActive = ({ status }: { readonly status: string }) => status === 'pending' || status === 'running';

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
    'matches the model (seed %i)',
    async (seed) => {
      const { database } = rows;
      const org = await rows.newDeployment();
      const pick = createRandom(seed);
      const threads = [await rows.newThread(org), await rows.newThread(org), await rows.newThread(org)];
      const model = new Model();
      for (const thread of threads) model.rest.set(thread, 'idle');
      const threadLeases = new Map<string, ThreadLease>();
      const expired: ClaimedRun[] = [];
      const anyThread = () => threads[pick(threads.length)] as string;
      const anyRunning = () => {
        const running = model.runs.filter(({ status }) => status === 'running');
        return running[pick(running.length)];
      };
      let position = 0;

      const steps: (() => Promise<void>)[] = [
        async () => {
          const thread = anyThread();
          const strategy = multitaskStrategies[pick(4)] as (typeof multitaskStrategies)[number];
          const active = model.active(thread);
          const more = newRun(thread, { multitaskStrategy: strategy });
          const creating = createRun(database, org, more);
          if (strategy === 'reject' && active.length > 0) {
            await expect(creating).rejects.toMatchObject({ code: 'THREAD_BUSY', status: 409 });
            return;
          }
          const { run_id: id } = await creating;
          if (strategy === 'interrupt' || strategy === 'rollback')
            for (const run of active) model.cancel(run, strategy);
          model.runs.push({
            ...{ id, thread, position: position++, losses: 0, cancel: null },
            ...waiting,
          });
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
          // The process that ends the run does not know of a pending cancel.
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
          expired.push(run.claim as ClaimedRun);
          const rest = outcome === 'error' ? 'error' : next.length > 0 ? 'interrupted' : 'idle';
          model.end(run, status, { remove: rollback, rest });
        },
        async () => {
          const run = anyRunning();
          if (run === undefined) return;
          await rows.expire(run.claim?.leaseToken as string);
          expect(await sweepRuns(database, org)).toBe(1);
          expired.push(run.claim as ClaimedRun);
          model.release(run, true);
        },
        async () => {
          const run = anyRunning();
          if (run === undefined) return;
          const countsAsLost = pick(2) === 0;
          await releaseRun(database, run.claim as ClaimedRun, { alone: pick(2) === 0, countsAsLost });
          expired.push(run.claim as ClaimedRun);
          model.release(run, countsAsLost);
        },
        async () => {
          const run = model.runs[pick(model.runs.length)];
          if (run === undefined) return;
          const action = pick(2) === 0 ? 'interrupt' : 'rollback';
          const cancelling = cancelRun(database, org, { threadId: run.thread, runId: run.id }, action);
          if (action === 'rollback' && !isActive(run)) {
            await expect(cancelling).rejects.toMatchObject({ code: 'RUN_ENDED', status: 409 });
          } else await cancelling;
          model.cancel(run, action);
        },
        async () => {
          const zombie = expired[pick(expired.length)];
          if (zombie === undefined) return;
          expect(await endRun(database, zombie, { status: 'success', values: '{"zombie":1}' })).toBeUndefined();
          expect(await rows.leases(org, [zombie.leaseToken])).toEqual([]);
          await releaseRun(database, zombie, { alone: true, countsAsLost: true });
        },
        async () => {
          await markEndsPublished(database, await claimUnpublishedEnds(database, org, 0));
        },
        async () => {
          const thread = anyThread();
          const lease = threadLeases.get(thread);
          if (lease !== undefined) {
            await lease.release();
            threadLeases.delete(thread);
            model.held.delete(thread);
          } else if (model.active(thread).length > 0) {
            await expect(leaseThread(database, org, thread, leaseMs)).rejects.toMatchObject({ code: 'THREAD_BUSY' });
          } else {
            threadLeases.set(thread, await leaseThread(database, org, thread, leaseMs));
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
      const weighted = [0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9];
      for (let step = 0; step < 120; step += 1) {
        const chosen = weighted[pick(weighted.length)] as number;
        await steps[chosen]?.();
        const now = await stored(org);
        const context = `step ${step}, operation ${chosen}`;
        expect(now.runs, context).toEqual(
          model.runs.map(({ id, status, attempt, losses, cancel }) => ({ id, status, attempt, losses, cancel })),
        );
        for (const thread of now.threads) {
          expect(thread.status, context).toBe(model.status(thread.thread_id));
          const waits = model.active(thread.thread_id).length > 0 && model.running(thread.thread_id) === undefined;
          expect(thread.waits, context).toBe(waits);
        }
      }
    },
    60_000,
  );
});

describe('several processes at once', () => {
  it('never runs two runs of a thread at once, starts them in order, and completes all', async () => {
    const { database } = rows;
    const org = await rows.newDeployment();
    const pick = createRandom(5);
    const threads = await Promise.all(Array.from({ length: 6 }, () => rows.newThread(org)));
    const starts: ClaimedRun[] = [];
    const runningByThread = new Map<string, string>();
    let remaining = 80;
    let activeMakers = 3;

    async function maker(): Promise<void> {
      while (remaining > 0) {
        remaining -= 1;
        const strategy = pick(8) === 0 ? 'interrupt' : pick(8) === 0 ? 'rollback' : 'enqueue';
        const thread = threads[pick(threads.length)] as string;
        const more = newRun(thread, { multitaskStrategy: strategy });
        const { run_id: runId } = await createRun(database, org, more);
        if (pick(6) === 0) await cancelRun(database, org, { threadId: thread, runId }, 'rollback').catch(expectGone);
      }
      activeMakers -= 1;
    }
    async function execute(claims: readonly ClaimedRun[]): Promise<void> {
      for (const claim of claims) {
        expect(runningByThread.get(claim.threadId), 'a second concurrent run of the thread').toBeUndefined();
        runningByThread.set(claim.threadId, claim.runId);
        starts.push(claim);
      }
      const tokens = claims.map(({ leaseToken }) => leaseToken);
      await rows.leases(org, tokens);
      for (const claim of claims) {
        const fate = pick(5);
        // This must happen before the lease ends in the database, because another worker may claim the next run
        // afterwards.
        runningByThread.delete(claim.threadId);
        if (fate === 0) await rows.expire(claim.leaseToken);
        else if (fate === 1) await releaseRun(database, claim, { alone: false, countsAsLost: false });
        else await endRun(database, claim, { status: 'success', values: '{}' });
      }
    }
    async function worker(): Promise<void> {
      for (;;) {
        const done = activeMakers === 0;
        const claims = await claimRuns(database, org, { slots: 1 + pick(4), processId });
        await sweepRuns(database, org);
        await execute(claims);
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
    // The number of starts is counted per thread, the number of attempts per run.
    const attempts = new Map<string, number>();
    for (const thread of threads) {
      const threadStarts = starts
        .filter(({ threadId }) => threadId === thread)
        .sort((a, b) => a.threadStart - b.threadStart);
      expect(threadStarts.map(({ threadStart }) => threadStart)).toEqual(threadStarts.map((_, index) => index + 1));
      for (const { runId, attempt } of threadStarts) {
        expect(attempt).toBe((attempts.get(runId) ?? 0) + 1);
        attempts.set(runId, attempt);
      }
      const first = threadStarts.filter(({ attempt }) => attempt === 1).map(({ runId }) => runId);
      const made = await database.query<{ run_id: string }>(
        'SELECT run_id FROM agents.runs WHERE deployment_id = $1 AND run_id = ANY ($2::uuid[]) ORDER BY queue_position',
        [org, first],
      );
      expect(first).toEqual(made.map(({ run_id }) => run_id));
    }
  }, 60_000);
});

function expectGone(error: unknown): void {
  expect(error).toMatchObject({ code: expect.stringMatching(/^RUN_(NOT_FOUND|ENDED)$/) });
}
