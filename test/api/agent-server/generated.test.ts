/**
 * Random sequences of client requests and worker crashes on a few threads, through the stock client: runs are created,
 * stopped before a step and resumed, streamed, joined later, rejoined, and cancelled. In the end, the threads and the
 * streams must match a model:
 *
 *   - a run without a cancel request succeeds, however often its worker crashed; a cancelled run ends as requested, or
 *     has succeeded before;
 *   - runs of a thread start in the order of their creation, and each continues from the state that the previous one
 *     left: every step is applied once;
 *   - a run that stops before its first step executes no step in any attempt, and its thread is interrupted;
 *   - a thread is busy while a run is in progress, and not afterwards;
 *   - a stream has the events of each attempt once, in order, from the first one; a stream that is rejoined or joined
 *     late has all events that follow.
 *
 * `RUNLAKE_TEST_MORE_SEEDS` adds this number of seeds, the first of which is that of the run (`test/house/seed.ts`).
 */

import { execFileSync } from 'node:child_process';
import { Client } from '@langchain/langgraph-sdk';
import { describe, expect, it } from 'vitest';
import { groupByAttempt, readToEnd, written } from '../../crash/agent-reader.ts';
import { forSuite } from '../../for-suite.ts';
import { Random } from '../../histories/random.ts';
import { seed as firstSeed } from '../../house/seed.ts';
import { startAgentServer } from './start-agent-server.ts';
import { all, type Part } from './stream-parts.ts';

const server = forSuite(() => startAgentServer({ config: { agentsWorkers: 2 } }));
// The client may retry a request for a graph whose process was killed.
const client = forSuite(
  () => new Client({ apiUrl: server.url, apiKey: server.owner.adminKey, callerOptions: { maxRetries: 4 } }),
);

type Strategy = 'enqueue' | 'reject' | 'interrupt' | 'rollback';
type Action = 'interrupt' | 'rollback';

/** A run executes its steps, stops before the first step, or resumes where an earlier run stopped. */
type RunKind = 'steps' | 'stops' | 'goes on';

interface CreatedRun {
  readonly threadId: string;
  readonly runId: string;
  readonly kind: RunKind;
  /** Name of the run in the state, if it adds one. */
  readonly text: string;
  /** Text that identifies the run in the state, if the run adds one. */
  readonly requested: Set<Action>;
  /** Cancel actions that were requested before the client saw the end of the run. */
  mustBeRemoved?: boolean;
  /** Whether a rollback was acknowledged. */
  readonly readers: Promise<readonly Part[]>[];
  /** Streams that start at the first event. */
  readonly joined: { readonly after: string | undefined; readonly parts: Promise<readonly Part[]> }[];
}

const deadlineMs = 30_000;
const stepsPerRun = 3;
/** Streams that start after a given event, or at the time of joining. */
const first = 'first';
/** Fewer than the number that a run survives. */
const maxKills = 2;

/** Fewer kills than a run survives. */
function killWorker(random: Random): void {
  const lines = execFileSync('ps', ['-eo', 'pid=,ppid=,args='], { encoding: 'utf8' }).split('\n');
  const found = lines.flatMap((line) => {
    const [, pid, parent] = /^\s*(\d+)\s+(\d+)\s+.*worker-process/.exec(line) ?? [];
    return Number(parent) === process.pid ? [Number(pid)] : [];
  });
  process.kill(random.pick(found), 'SIGKILL');
}

class Sequence {
  readonly #random: Random;
  readonly #threads: readonly string[];
  readonly #runs: CreatedRun[] = [];
  #kills = 0;

  constructor(random: Random, threads: readonly string[]) {
    this.#random = random;
    this.#threads = threads;
  }

  async go(steps: number): Promise<void> {
    const actions = [
      () => this.#create(),
      () => this.#create(),
      () => this.#create(),
      () => this.#join(),
      () => this.#join(),
      () => this.#comeBack(),
      () => this.#cancel(),
      () => this.#kill(),
      () => this.#watch(),
    ];
    for (let step = 0; step < steps; step += 1) await this.#random.pick(actions)();
  }

  async #create(): Promise<void> {
    const threadId = this.#random.pick(this.#threads);
    const strategy = this.#random.pick<Strategy>(['enqueue', 'enqueue', 'reject', 'interrupt', 'rollback']);
    const kind = this.#random.pick<RunKind>(['steps', 'steps', 'steps', 'stops', 'goes on']);
    const text = `run ${this.#runs.length}`;
    const { status } = await client.threads.get(threadId);
    const input = { steps: stepsPerRun, pauseMs: this.#random.pick([0, 20, 60]), text };
    const runCreation = client.runs.create(threadId, 'steps', {
      input: kind === 'goes on' ? null : input,
      ...(kind === 'stops' && { interruptBefore: ['step'] }),
      multitaskStrategy: strategy,
      streamMode: 'custom',
      streamResumable: true,
    });
    const made = await runCreation.catch((error: { readonly status?: number }) => {
      // No other client makes the thread busy.
      expect({ status, strategy, refused: error.status }).toEqual({ status: 'busy', strategy: 'reject', refused: 409 });
    });
    if (made === undefined) return;
    if (strategy === 'interrupt' || strategy === 'rollback')
      for (const run of this.#of(threadId)) run.requested.add(strategy);
    const run = { threadId, runId: made.run_id, kind, text, requested: new Set<Action>(), readers: [], joined: [] };
    this.#runs.push(run);
    if (this.#random.chance(0.5)) this.#read(run);
  }

  async #join(): Promise<void> {
    if (this.#runs.length === 0) return;
    const run = this.#random.pick(this.#runs.slice(-3));
    if (this.#random.chance(0.5)) this.#read(run);
    else this.#follow(run);
  }

  /** Joins a stream after an event that was seen. */
  async #comeBack(): Promise<void> {
    if (this.#runs.length === 0) return;
    const run = this.#random.pick(this.#runs.slice(-3));
    const seen: string[] = [];
    await this.#leaveAfter(run, this.#random.between(1, 4), ({ id }) => seen.push(id as string));
    if (seen.length > 0) this.#follow(run, seen.at(-1));
  }

  #follow({ threadId, runId, joined }: CreatedRun, after?: string): void {
    const options = after === undefined ? {} : { lastEventId: after };
    const parts = all(client.runs.joinStream(threadId, runId, options));
    parts.catch(() => undefined);
    joined.push({ after, parts });
  }

  #read(run: CreatedRun): void {
    const reading = readToEnd([client], run, 0).ended;
    // The result is checked at the end. Until then, ignore rejections: a run that was rolled back is not found.
    reading.catch(() => undefined);
    run.readers.push(reading);
  }

  async #cancel(): Promise<void> {
    if (this.#runs.length === 0) return;
    const run = this.#random.pick(this.#runs.slice(-4));
    const action = this.#random.pick<Action>(['interrupt', 'rollback']);
    run.requested.add(action);
    const refused = await client.runs.cancel(run.threadId, run.runId, this.#random.chance(0.3), action).then(
      () => undefined,
      (error: { readonly status?: number }) => error.status,
    );
    if (refused !== undefined) expect([404, action === 'rollback' ? 409 : 404]).toContain(refused);
    else if (action === 'rollback') run.mustBeRemoved = true;
  }

  async #kill(): Promise<void> {
    if (this.#kills >= maxKills) return;
    this.#kills += 1;
    killWorker(this.#random);
  }

  /** Waits for the latest run to make progress, so that the next action finds it in progress. */
  async #watch(): Promise<void> {
    const run = this.#runs.at(-1);
    if (run === undefined) return;
    await this.#leaveAfter(run, this.#random.between(1, 4), () => undefined);
  }

  async #leaveAfter({ threadId, runId }: CreatedRun, count: number, see: (part: Part) => void): Promise<void> {
    let remaining = count;
    const disconnectController = new AbortController();
    try {
      const stream = client.runs.joinStream(threadId, runId, {
        lastEventId: '-1',
        signal: disconnectController.signal,
      });
      for await (const part of stream) {
        see(part as Part);
        if (--remaining === 0) break;
      }
    } catch (error) {
      expectNotFound(error);
    } finally {
      disconnectController.abort();
    }
  }

  #of(threadId: string): CreatedRun[] {
    return this.#runs.filter((run) => run.threadId === threadId);
  }

  async check(): Promise<void> {
    const isNotBusy = async (threadId: string) => (await client.threads.get(threadId)).status !== 'busy';
    for (const threadId of this.#threads)
      await expect.poll(() => isNotBusy(threadId), { timeout: deadlineMs }).toBe(true);
    const ends = new Map<string, string>();
    for (const run of this.#runs) ends.set(run.text, await this.#checkRun(run));
    for (const threadId of this.#threads) await this.#checkThread(threadId, ends);
  }

  async #checkRun(run: CreatedRun): Promise<string> {
    const { threadId, runId, requested } = run;
    const status = await client.runs.get(threadId, runId).then(
      (row) => row.status as string,
      (error: unknown) => {
        expectNotFound(error);
        return 'gone';
      },
    );
    const may = ['success'];
    if (requested.has('interrupt')) may.push('interrupted');
    if (requested.has('rollback')) may.push('gone');
    expect(may, run.text).toContain(status);
    // An acknowledged cancel is carried out.
    if (run.mustBeRemoved) expect(status, run.text).toBe('gone');
    const [row] = await server.database.query<{ cancel_action: Action | null }>(
      'SELECT cancel_action FROM agents.runs WHERE run_id = $1 AND NOT removed',
      [runId],
    );
    if (row?.cancel_action) expect([row.cancel_action, status], run.text).toEqual(['interrupt', 'interrupted']);

    const fullStream = status === 'gone' ? undefined : await readToEnd([client], run, 0).ended;
    if (fullStream !== undefined) groupByAttempt(run, fullStream);
    if (run.kind === 'stops' && fullStream !== undefined) expect(written(fullStream, 'step'), run.text).toEqual([]);
    for (const reading of run.readers) {
      const parts = await reading.catch((error: unknown) => {
        expect(status).toBe('gone');
        expectNotFound(error);
      });
      if (parts === undefined) continue;
      groupByAttempt(run, parts);
      if (fullStream !== undefined) expect(parts).toEqual(fullStream);
    }
    for (const { after, parts } of run.joined) {
      const followed = await parts.catch((error: unknown) => {
        expect(status).toBe('gone');
        expectNotFound(error);
      });
      if (followed === undefined || fullStream === undefined) continue;
      const index = fullStream.findIndex(({ id }) => id === after);
      // A stream without a start event may be joined after the end.
      const expected =
        after === undefined ? fullStream.slice(fullStream.length - followed.length) : fullStream.slice(index + 1);
      expect(followed, `${run.text} after ${after}`).toEqual(expected);
    }
    return status;
  }

  async #checkThread(threadId: string, ends: ReadonlyMap<string, string>): Promise<void> {
    const { values, status } = await client.threads.get(threadId);
    const { values: head, next } = await client.threads.getState(threadId);
    const { log = [] } = (head ?? {}) as { log?: string[] };
    const runs = this.#of(threadId);
    // Each step continues from the previous one.
    expect(log.map((line) => Number(line.split(' ').at(-1)))).toEqual(log.map((_, index) => index + 1));
    const texts = log.map((line) => line.replace(/ \d+$/, ''));
    const orderedTexts = [first, ...runs.map(({ text }) => text)].flatMap((text) =>
      texts.filter((other) => other === text),
    );
    expect(texts).toEqual(orderedTexts);
    for (const { text, kind } of runs) {
      const lines = log.filter((line) => line.startsWith(`${text} `));
      const end = ends.get(text);
      if (end === 'success' && kind === 'steps')
        expect(Number(lines.at(-1)?.split(' ').at(-1)) % stepsPerRun, text).toBe(0);
      if (end === 'gone' || kind === 'goes on') expect(lines).toEqual([]);
    }
    const last = runs.at(-1);
    if (last === undefined || ends.get(last.text) !== 'success') return;
    expect(status, last.text).toBe(last.kind === 'stops' ? 'interrupted' : 'idle');
    expect(next, last.text).toEqual(last.kind === 'stops' ? ['step'] : []);
    expect(values).toMatchObject({ log });
  }
}

function expectNotFound(error: unknown): void {
  expect((error as { readonly status?: number }).status).toBe(404);
}

/** Creates a thread whose next run can resume. */
async function newThread(): Promise<string> {
  const { thread_id: threadId } = await client.threads.create();
  await client.runs.wait(threadId, 'steps', { input: { steps: stepsPerRun, pauseMs: 0, text: first } });
  return threadId;
}

function chooseSeeds(defaults: readonly number[]): readonly number[] {
  const more = Number(process.env.RUNLAKE_TEST_MORE_SEEDS ?? 0);
  return [...defaults, ...Array.from({ length: more }, (_, index) => firstSeed + index)];
}

describe('a random sequence', () => {
  it.each(chooseSeeds([1, 2, 3]))('ends as the model predicts (seed %i)', async (seed) => {
    const threads = await Promise.all([1, 2].map(newThread));
    const sequence = new Sequence(new Random(seed), threads);
    await sequence.go(20);
    await sequence.check();
  });

  it.each(chooseSeeds([2]))(
    'of interrupts is resumed in order, whichever process crashes meanwhile (seed %i)',
    async (seed) => {
      const random = new Random(seed);
      const { thread_id: threadId } = await client.threads.create();
      for (let round = 0; round < 6; round += 1) {
        const question = `question ${round}`;
        const questionRun = client.runs.wait(threadId, 'ask', { input: { question, answer: '', result: '' } });
        if (round < maxKills && random.chance(0.5)) killWorker(random);
        expect(await questionRun).toMatchObject({ question, result: '' });
        const { status, interrupts } = await client.threads.get(threadId);
        expect({ status, requested: Object.values(interrupts).flat() }).toMatchObject({
          status: 'interrupted',
          requested: [{ value: { question } }],
        });
        if (random.chance(0.3)) continue;
        const answerRun = client.runs.wait(threadId, 'ask', { command: { resume: `answer ${round}` } });
        if (random.chance(0.5)) killWorker(random);
        expect(await answerRun).toMatchObject({ result: `answered: answer ${round}` });
        expect(await client.threads.get(threadId)).toMatchObject({ status: 'idle' });
      }
    },
  );
});
