/**
 * Random sequences of what clients ask and of workers that die, on a few threads, through the stock client: runs are
 * made, stopped before a step and gone on with, followed, joined later, come back to, and cancelled. What the threads
 * and the readers show in the end is held to a model:
 *
 *   - a run that nobody asked to cancel succeeds, however often its worker died; one that was ends as it was asked to,
 *     or had succeeded;
 *   - runs of a thread start in the order in which they were made, and each goes on from the state that the one before
 *     left: every step is there once;
 *   - one that is to stop before its first step takes none in any of its attempts, and its thread waits;
 *   - a thread is busy as long as a run is under way, and not after;
 *   - a reader gets the events of each attempt once, in order, from the first one on; one that comes back or that
 *     joins, all that follow.
 *
 * `RUNLAKE_TEST_SEED` gives another seed, `RUNLAKE_TEST_MORE_SEEDS` how many to take after it.
 */
import { execFileSync } from 'node:child_process';
import { Client } from '@langchain/langgraph-sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attemptsOf, readToEnd, written } from '../../crash/agent-reader.ts';
import { Random } from '../../histories/random.ts';
import { type AgentServerUnderTest, startAgentServer } from './start-agent-server.ts';
import { all, type Part } from './stream-parts.ts';

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

/** What it is there for: to take its steps, to stop before the first, or to go on where an earlier one stopped. */
type Kind = 'steps' | 'stops' | 'goes on';

interface MadeRun {
  readonly threadId: string;
  readonly runId: string;
  readonly kind: Kind;
  /** Its name in the state, where it puts one in. */
  readonly text: string;
  /** What was asked of it while it was under way, for all the client knew. */
  readonly asked: Set<Action>;
  /** A rollback of it was acknowledged. */
  mustGo?: boolean;
  /** Those that want all of it. */
  readonly readers: Promise<readonly Part[]>[];
  /** Those that want what follows: on an event that they name, or on the time that they come. */
  readonly joined: { readonly after: string | undefined; readonly parts: Promise<readonly Part[]> }[];
}

const deadlineMs = 30_000;
const stepsOfRun = 3;
/** The run that each thread begins with. */
const first = 'first';
/** Fewer than a run survives. */
const maxKills = 2;

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
      () => this.#create(),
      () => this.#join(),
      () => this.#join(),
      () => this.#comeBack(),
      () => this.#cancel(),
      () => this.#kill(),
      () => this.#watch(),
    ];
    for (let step = 0; step < steps; step += 1) await this.#random.pick(deeds)();
  }

  async #create(): Promise<void> {
    const threadId = this.#random.pick(this.#threads);
    const strategy = this.#random.pick<Strategy>(['enqueue', 'enqueue', 'reject', 'interrupt', 'rollback']);
    const kind = this.#random.pick<Kind>(['steps', 'steps', 'steps', 'stops', 'goes on']);
    const text = `run ${this.#runs.length}`;
    const { status } = await client.threads.get(threadId);
    const input = { steps: stepsOfRun, pauseMs: this.#random.pick([0, 20, 60]), text };
    const making = client.runs.create(threadId, 'steps', {
      input: kind === 'goes on' ? null : input,
      ...(kind === 'stops' && { interruptBefore: ['step'] }),
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
    const run = { threadId, runId: made.run_id, kind, text, asked: new Set<Action>(), readers: [], joined: [] };
    this.#runs.push(run);
    if (this.#random.chance(0.5)) this.#read(run);
  }

  async #join(): Promise<void> {
    if (this.#runs.length === 0) return;
    const run = this.#random.pick(this.#runs.slice(-3));
    if (this.#random.chance(0.5)) this.#read(run);
    else this.#follow(run);
  }

  /** After an event that was seen. */
  async #comeBack(): Promise<void> {
    if (this.#runs.length === 0) return;
    const run = this.#random.pick(this.#runs.slice(-3));
    const seen: string[] = [];
    await this.#leaveAfter(run, this.#random.between(1, 4), ({ id }) => seen.push(id as string));
    if (seen.length > 0) this.#follow(run, seen.at(-1));
  }

  #follow({ threadId, runId, joined }: MadeRun, after?: string): void {
    const options = after === undefined ? {} : { lastEventId: after };
    const parts = all(client.runs.joinStream(threadId, runId, options));
    parts.catch(() => undefined);
    joined.push({ after, parts });
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
    const refused = await client.runs.cancel(run.threadId, run.runId, this.#random.chance(0.3), action).then(
      () => undefined,
      (error: { readonly status?: number }) => error.status,
    );
    if (refused !== undefined) expect([404, action === 'rollback' ? 409 : 404]).toContain(refused);
    else if (action === 'rollback') run.mustGo = true;
  }

  async #kill(): Promise<void> {
    if (this.#kills >= maxKills) return;
    this.#kills += 1;
    killWorker(this.#random);
  }

  /** Until the latest run has come a bit further, so that what follows finds it in the middle. */
  async #watch(): Promise<void> {
    const run = this.#runs.at(-1);
    if (run === undefined) return;
    await this.#leaveAfter(run, this.#random.between(1, 4), () => undefined);
  }

  async #leaveAfter({ threadId, runId }: MadeRun, count: number, see: (part: Part) => void): Promise<void> {
    let left = count;
    const leaving = new AbortController();
    try {
      const stream = client.runs.joinStream(threadId, runId, { lastEventId: '-1', signal: leaving.signal });
      for await (const part of stream) {
        see(part as Part);
        if (--left === 0) break;
      }
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
    // What was acknowledged is carried out.
    if (run.mustGo) expect(status, run.text).toBe('gone');
    const [row] = await server.database.query<{ cancel_action: Action | null }>(
      'SELECT cancel_action FROM agents.runs WHERE run_id = $1 AND NOT removed',
      [runId],
    );
    if (row?.cancel_action) expect([row.cancel_action, status], run.text).toEqual(['interrupt', 'interrupted']);

    const whole = status === 'gone' ? undefined : await readToEnd([client], run, 0).ended;
    if (whole !== undefined) attemptsOf(run, whole);
    if (run.kind === 'stops' && whole !== undefined) expect(written(whole, 'step'), run.text).toEqual([]);
    for (const reading of run.readers) {
      const parts = await reading.catch((error: unknown) => {
        expect(status).toBe('gone');
        isNotFound(error);
      });
      if (parts === undefined) continue;
      attemptsOf(run, parts);
      if (whole !== undefined) expect(parts).toEqual(whole);
    }
    for (const { after, parts } of run.joined) {
      const followed = await parts.catch((error: unknown) => {
        expect(status).toBe('gone');
        isNotFound(error);
      });
      if (followed === undefined || whole === undefined) continue;
      const place = whole.findIndex(({ id }) => id === after);
      // Who joins may come after the end.
      const expected = after === undefined ? whole.slice(whole.length - followed.length) : whole.slice(place + 1);
      expect(followed, `${run.text} after ${after}`).toEqual(expected);
    }
    return status;
  }

  async #checkThread(threadId: string, ends: ReadonlyMap<string, string>): Promise<void> {
    const { values, status } = await client.threads.get(threadId);
    const { values: head, next } = await client.threads.getState(threadId);
    const { log = [] } = (head ?? {}) as { log?: string[] };
    const runs = this.#of(threadId);
    // Each step follows on the one before.
    expect(log.map((line) => Number(line.split(' ').at(-1)))).toEqual(log.map((_, place) => place + 1));
    const texts = log.map((line) => line.replace(/ \d+$/, ''));
    const inOrder = [first, ...runs.map(({ text }) => text)].flatMap((text) => texts.filter((other) => other === text));
    expect(texts).toEqual(inOrder);
    for (const { text, kind } of runs) {
      const lines = log.filter((line) => line.startsWith(`${text} `));
      const end = ends.get(text);
      if (end === 'success' && kind === 'steps')
        expect(Number(lines.at(-1)?.split(' ').at(-1)) % stepsOfRun, text).toBe(0);
      if (end === 'gone' || kind === 'goes on') expect(lines).toEqual([]);
    }
    const last = runs.at(-1);
    if (last === undefined || ends.get(last.text) !== 'success') return;
    expect(status, last.text).toBe(last.kind === 'stops' ? 'interrupted' : 'idle');
    expect(next, last.text).toEqual(last.kind === 'stops' ? ['step'] : []);
    expect(values).toMatchObject({ log });
  }
}

function isNotFound(error: unknown): void {
  expect((error as { readonly status?: number }).status).toBe(404);
}

/** A thread on which something can be gone on with. */
async function newThread(): Promise<string> {
  const { thread_id: threadId } = await client.threads.create();
  await client.runs.wait(threadId, 'steps', { input: { steps: stepsOfRun, pauseMs: 0, text: first } });
  return threadId;
}

function seeds(defaults: readonly number[]): readonly number[] {
  const { RUNLAKE_TEST_SEED: given, RUNLAKE_TEST_MORE_SEEDS: more = '0' } = process.env;
  if (given === undefined) return defaults;
  return Array.from({ length: 1 + Number(more) }, (_, place) => Number(given) + place);
}

describe('any sequence', () => {
  it.each(seeds([1, 2, 3]))('ends as the model says (seed %i)', async (seed) => {
    const threads = await Promise.all([1, 2].map(newThread));
    const sequence = new Sequence(new Random(seed), threads);
    await sequence.go(20);
    await sequence.check();
  });

  it.each(seeds([2]))('of questions is answered in order, whoever dies meanwhile (seed %i)', async (seed) => {
    const random = new Random(seed);
    const { thread_id: threadId } = await client.threads.create();
    for (let round = 0; round < 6; round += 1) {
      const question = `question ${round}`;
      const asking = client.runs.wait(threadId, 'ask', { input: { question, answer: '', result: '' } });
      if (round < maxKills && random.chance(0.5)) killWorker(random);
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
