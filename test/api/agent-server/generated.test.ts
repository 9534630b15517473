/**
 * Random sequences of what clients ask and of workers that die, on a few threads, through the stock client: runs are made, followed,
 * joined later, cancelled and resumed. What the threads and the readers show in the end is held to a model:
 *
 *   - a run that nobody asked to cancel succeeds, however often its worker died; one that was ends as it was asked to, or had succeeded;
 *   - runs of a thread start in the order in which they were made, and each goes on from the state that the one before left: every
 *     step is there once;
 *   - a thread is busy as long as a run is under way, and not after;
 *   - a reader gets the events of each attempt once, in order, from the first one on.
 */
import { execFileSync } from 'node:child_process';
import { Client } from '@langchain/langgraph-sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attemptsOf, readToEnd } from '../../crash/agent-reader.ts';
import { Random } from '../../histories/random.ts';
import { type AgentServerUnderTest, startAgentServer } from './start-agent-server.ts';
import type { Part } from './stream-parts.ts';

let server: AgentServerUnderTest;
let client: Client;
beforeAll(async () => {
  server = await startAgentServer({ config: { agentsWorkers: 2 } });
  // A question to a graph whose process was killed may be asked again.
  client = new Client({ apiUrl: server.url, apiKey: server.owner.adminKey, callerOptions: { maxRetries: 4 } });
}, 60_000);
afterAll(() => server?.close());

type Strategy = 'enqueue' | 'reject' | 'interrupt' | 'rollback';
type Action = 'interrupt' | 'rollback';

interface MadeRun {
  readonly threadId: string;
  readonly runId: string;
  /** Its name in the state. */
  readonly text: string;
  /** What was asked of it while it was under way, for all the client knew. */
  readonly asked: Set<Action>;
  readonly readers: Promise<readonly Part[]>[];
}

const deadlineMs = 30_000;
const stepsOfRun = 3;
/** Fewer than a run survives. */
const mostKills = 2;

/** Ends one of the processes that run graphs as a crash would. */
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
  readonly #runs: MadeRun[] = [];
  #kills = 0;

  constructor(random: Random, threads: readonly string[]) {
    this.#random = random;
    this.#threads = threads;
  }

  async go(steps: number): Promise<void> {
    const deeds = [
      () => this.#create(),
      () => this.#create(),
      () => this.#join(),
      () => this.#cancel(),
      () => this.#kill(),
      () => this.#watch(),
    ];
    for (let step = 0; step < steps; step += 1) await this.#random.pick(deeds)();
  }

  async #create(): Promise<void> {
    const threadId = this.#random.pick(this.#threads);
    const strategy = this.#random.pick<Strategy>(['enqueue', 'enqueue', 'reject', 'interrupt', 'rollback']);
    const text = `run ${this.#runs.length}`;
    const { status } = await client.threads.get(threadId);
    const input = { steps: stepsOfRun, pauseMs: this.#random.pick([0, 20, 60]), text };
    const making = client.runs.create(threadId, 'steps', {
      input,
      multitaskStrategy: strategy,
      streamMode: 'custom',
      streamResumable: true,
    });
    const made = await making.catch((error: { readonly status?: number }) => {
      // Nobody else makes it busy.
      expect({ status, strategy, refused: error.status }).toEqual({ status: 'busy', strategy: 'reject', refused: 409 });
    });
    if (made === undefined) return;
    if (strategy === 'interrupt' || strategy === 'rollback')
      for (const run of this.#of(threadId)) run.asked.add(strategy);
    const run = { threadId, runId: made.run_id, text, asked: new Set<Action>(), readers: [] };
    this.#runs.push(run);
    if (this.#random.chance(0.5)) this.#read(run);
  }

  async #join(): Promise<void> {
    if (this.#runs.length > 0) this.#read(this.#random.pick(this.#runs));
  }

  #read(run: MadeRun): void {
    const reading = readToEnd([client], run, 0).ended;
    // Read at the end: a run that was rolled back is not to be found.
    reading.catch(() => undefined);
    run.readers.push(reading);
  }

  async #cancel(): Promise<void> {
    if (this.#runs.length === 0) return;
    const run = this.#random.pick(this.#runs.slice(-4));
    const action = this.#random.pick<Action>(['interrupt', 'rollback']);
    run.asked.add(action);
    await client.runs.cancel(run.threadId, run.runId, this.#random.chance(0.3), action).catch(isNotFound);
  }

  async #kill(): Promise<void> {
    if (this.#kills >= mostKills) return;
    this.#kills += 1;
    killWorker(this.#random);
  }

  /** Until the latest run has come a bit further, so that what follows finds it in the middle. */
  async #watch(): Promise<void> {
    const run = this.#runs.at(-1);
    if (run === undefined) return;
    let left = this.#random.between(1, 4);
    const leaving = new AbortController();
    try {
      const stream = client.runs.joinStream(run.threadId, run.runId, { lastEventId: '-1', signal: leaving.signal });
      for await (const _ of stream) if (--left === 0) break;
    } catch (error) {
      isNotFound(error);
    } finally {
      leaving.abort();
    }
  }

  #of(threadId: string): MadeRun[] {
    return this.#runs.filter((run) => run.threadId === threadId);
  }

  async check(): Promise<void> {
    const notBusy = async (threadId: string) => (await client.threads.get(threadId)).status !== 'busy';
    for (const threadId of this.#threads)
      await expect.poll(() => notBusy(threadId), { timeout: deadlineMs }).toBe(true);
    const ends = new Map<string, string>();
    for (const run of this.#runs) ends.set(run.text, await this.#checkRun(run));
    for (const threadId of this.#threads) await this.#checkThread(threadId, ends);
  }

  async #checkRun(run: MadeRun): Promise<string> {
    const { threadId, runId, asked } = run;
    const status = await client.runs.get(threadId, runId).then(
      (row) => row.status as string,
      (error: unknown) => {
        isNotFound(error);
        return 'gone';
      },
    );
    const may = ['success'];
    if (asked.has('interrupt')) may.push('interrupted');
    if (asked.has('rollback')) may.push('gone');
    expect(may, run.text).toContain(status);

    const all = status === 'gone' ? undefined : await readToEnd([client], run, 0).ended;
    if (all !== undefined) attemptsOf(run, all);
    for (const reading of run.readers) {
      const parts = await reading.catch((error: unknown) => {
        expect(status).toBe('gone');
        isNotFound(error);
      });
      if (parts === undefined) continue;
      attemptsOf(run, parts);
      if (all !== undefined) expect(parts).toEqual(all);
    }
    return status;
  }

  async #checkThread(threadId: string, ends: ReadonlyMap<string, string>): Promise<void> {
    const { values, status } = await client.threads.get(threadId);
    const { values: head } = await client.threads.getState(threadId);
    const { log = [] } = (head ?? {}) as { log?: string[] };
    const runs = this.#of(threadId);
    // Each step follows on the one before.
    expect(log.map((line) => Number(line.split(' ').at(-1)))).toEqual(log.map((_, place) => place + 1));
    const texts = log.map((line) => line.replace(/ \d+$/, ''));
    const inOrder = runs.flatMap(({ text }) => texts.filter((other) => other === text));
    expect(texts).toEqual(inOrder);
    for (const { text } of runs) {
      const lines = log.filter((line) => line.startsWith(`${text} `));
      const end = ends.get(text);
      if (end === 'success') expect(Number(lines.at(-1)?.split(' ').at(-1)) % stepsOfRun, text).toBe(0);
      if (end === 'gone') expect(lines).toEqual([]);
    }
    const last = runs.at(-1);
    if (last !== undefined && ends.get(last.text) === 'success') {
      expect(status).toBe('idle');
      expect(values).toMatchObject({ log });
    }
  }
}

function isNotFound(error: unknown): void {
  expect((error as { readonly status?: number }).status).toBe(404);
}

describe('any sequence', () => {
  it.each([1, 2, 3])('ends as the model says (seed %i)', async (seed) => {
    const threads = await Promise.all([1, 2].map(async () => (await client.threads.create()).thread_id));
    const sequence = new Sequence(new Random(seed), threads);
    await sequence.go(20);
    await sequence.check();
  });

  it.each([2])('of questions is answered in order, whoever dies meanwhile (seed %i)', async (seed) => {
    const random = new Random(seed);
    const { thread_id: threadId } = await client.threads.create();
    for (let round = 0; round < 6; round += 1) {
      const question = `question ${round}`;
      const asking = client.runs.wait(threadId, 'ask', { input: { question, answer: '', result: '' } });
      if (round < mostKills && random.chance(0.5)) killWorker(random);
      expect(await asking).toMatchObject({ question, result: '' });
      const { status, interrupts } = await client.threads.get(threadId);
      expect({ status, asked: Object.values(interrupts).flat() }).toMatchObject({
        status: 'interrupted',
        asked: [{ value: { question } }],
      });
      if (random.chance(0.3)) continue;
      const answering = client.runs.wait(threadId, 'ask', { command: { resume: `answer ${round}` } });
      if (random.chance(0.5)) killWorker(random);
      expect(await answering).toMatchObject({ result: `answered: answer ${round}` });
      expect(await client.threads.get(threadId)).toMatchObject({ status: 'idle' });
    }
  });
});
