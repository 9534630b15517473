/**
 * Random histories of threads: runs with overlapping attempts, late or repeated ends, failing inserts, and server
 * processes that are replaced; readers that attach at any time, are slow, disconnect, and resume at their position.
 * Each reader must receive the same events as a model that reads the log as it is written.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isRunlakeError } from '../../../../infra/errors/runlake-error.ts';
import { decodeStreamHead, decodeStreamRecord } from '../../../../pipelines/agents/streams/ring-buffer.ts';
import type {
  RunReadStart,
  RunStreamStart,
  StreamedEvent,
  StreamHub,
  StreamReader,
  ThreadReadStart,
} from '../../../../pipelines/agents/streams/stream-types.ts';
import { streamEvents } from '../../../../schemas/topics.ts';
import { Random } from '../../../histories/random.ts';
import { seed as seedOfRun } from '../../../house/seed.ts';
import { until } from '../../../infra/until.ts';
import { deriveUuid } from '../../runs/run-events.ts';
import { chunk, idOf, iterateReader, makeRunEnd, newRun, type StreamsUnderTest } from './streams-under-test.ts';

/** For each run, the events that a reader receives if it is attached from the start. */
class Model {
  readonly #events = new Map<string, StreamedEvent[]>();
  readonly #latest = new Map<string, number>();

  see(value: Buffer): void {
    const head = decodeStreamHead(value);
    const event = decodeStreamRecord(value);
    if (head === undefined || event === undefined) throw new Error('not a record');
    if (head.attempt < (this.#latest.get(head.runId) ?? 0)) return;
    this.#latest.set(head.runId, head.attempt);
    const events = this.ofRun(head.runId);
    this.#events.set(head.runId, events);
    if (!events.some((other) => idOf(other) === idOf(event))) events.push(event);
  }

  ofRun(runId: string): StreamedEvent[] {
    return this.#events.get(runId) ?? [];
  }
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

class History {
  readonly #under: StreamsUnderTest;
  readonly #random: Random;
  readonly #model: Model;
  readonly #hubs: StreamHub[] = [];
  /** Logical time of each written event, by run and event id. */
  readonly #written = new Map<string, number>();
  #clock = 0;
  readonly readers: Promise<void>[] = [];

  constructor(under: StreamsUnderTest, random: Random, model: Model) {
    this.#under = under;
    this.#random = random;
    this.#model = model;
  }

  async openHub(): Promise<void> {
    const ringBufferBytes = this.#random.pick([15_000, 60_000, 2 ** 24]);
    this.#hubs.push(await this.#under.hub({ ringBufferBytes, storeTimeoutMs: 20_000 }));
  }

  async replaceHub(): Promise<void> {
    await this.openHub();
    const [old] = this.#hubs.splice(this.#random.int(this.#hubs.length - 1), 1);
    await old?.close();
  }

  /** Plays a thread. One worker per attempt writes; workers that have lost their run continue for a while. */
  async thread(deploymentId: string, threadId: string, failing: boolean): Promise<void> {
    const random = this.#random;
    const starts: RunStreamStart[] = [];
    const late: RunStreamStart[] = [];
    let threadStart = 0;
    const follows = this.#followThread({ deploymentId, threadId }, starts);
    for (let count = 0; count < 3; count++) {
      // The last run is always kept: otherwise its end, which tells that the thread reader has finished, could be
      // evicted before it is read.
      const kept = count === 2 || random.chance(0.8);
      const run = newRun({ deploymentId, threadId, kept });
      if (!kept || random.chance(0.7)) this.#reader(this.#followNow(run));
      const publisher = this.#under.publisher({ maxBytesInFlight: random.pick([2_000, 2 ** 22]) });
      const attempts = failing ? 1 : random.between(1, 3);
      const workers: {
        readonly start: RunStreamStart;
        readonly writer: ReturnType<typeof publisher.open>;
        seq: number;
      }[] = [];
      for (let step = random.between(15, 40) * attempts; step > 0; step--) {
        if (workers.length === 0 || (workers.length < attempts && random.chance(0.05))) {
          const start = { ...run, attempt: workers.length + 1, threadStart: ++threadStart };
          workers.push({ start, writer: publisher.open(start), seq: 0 });
        }
        const worker = random.chance(0.7) ? (workers.at(-1) as (typeof workers)[0]) : random.pick(workers);
        const chunks = Array.from({ length: random.between(1, 5) }, () => chunk('some', random.int(400)));
        for (const _ of chunks)
          this.#written.set(`${run.runId} ${worker.start.attempt}-${++worker.seq}`, ++this.#clock);
        await worker.writer.write(chunks);
        if (failing && random.chance(0.05)) this.#under.failInserts(random.between(1, 3));
        if (kept && random.chance(0.06)) this.#reader(this.#followFromStart(run, random.chance(0.5)));
        if (random.chance(0.06)) this.#reader(this.#followNow(run));
        if (random.chance(0.5)) await turn();
      }
      const last = workers.at(-1) as (typeof workers)[0];
      await last.writer.settled();
      this.#written.set(`${run.runId} ${last.start.attempt}-end`, ++this.#clock);
      starts.push(last.start);
      for (const before of late.splice(0)) await publisher.publishEnd(makeRunEnd(before));
      if (random.chance(0.2)) late.push(last.start);
      else await publisher.publishEnd(makeRunEnd(last.start));
      if (random.chance(0.3)) await publisher.publishEnd(makeRunEnd(last.start));
      if (kept && !late.includes(last.start)) this.#reader(this.#followFromStart(run, false));
      for (const { writer } of workers) await writer.settled();
    }
    for (const before of late) await this.#under.publisher().publishEnd(makeRunEnd(before));
    await follows(threadStart);
  }

  #reader(following: Promise<void>): void {
    following.catch(() => undefined);
    this.readers.push(following);
  }

  #hub(): StreamHub {
    return this.#random.pick(this.#hubs);
  }

  #read(reader: StreamReader) {
    return iterateReader(reader, () => this.#random.chance(0.5));
  }

  /** Follows a resumable run. The events must be complete, across any number of connections. */
  async #followFromStart(run: RunStreamStart, slow: boolean): Promise<void> {
    const seen: StreamedEvent[] = [];
    let from: RunReadStart = 'start';
    while (!seen.at(-1)?.isEnd) {
      for await (const event of this.#read(await this.#hub().readRun(run, from))) {
        seen.push(event);
        from = { attempt: event.attempt, seq: event.seq };
        if (slow) for (let turns = this.#random.int(20); turns > 0; turns--) await turn();
        if (this.#random.chance(0.02)) break;
      }
      await turn();
    }
    await this.#modelHasEnd(run.runId);
    expect(seen.map(idOf)).toEqual(this.#model.ofRun(run.runId).map(idOf));
    expect(seen.map(textOf)).toEqual(this.#model.ofRun(run.runId).map(textOf));
  }

  /** Waits for the end in the model, which may read the log a little later than a reader does. */
  async #modelHasEnd(runId: string): Promise<void> {
    await until('the end of the run', () => this.#model.ofRun(runId).some(({ isEnd }) => isEnd));
  }

  /**
   * Follows new events. They must be a suffix without gaps that contains all events written after attaching; the stream
   * may be cut off.
   */
  async #followNow(run: RunStreamStart): Promise<void> {
    const reader = await this.#hub().readRun(run, 'now');
    const attachedAt = this.#clock;
    const seen: string[] = [];
    try {
      for await (const event of this.#read(reader)) {
        seen.push(idOf(event));
        for (let turns = this.#random.int(3); turns > 0; turns--) await turn();
      }
    } catch (error) {
      expect(error).toMatchObject({ code: 'STREAM_READER_TOO_SLOW' });
    }
    await this.#modelHasEnd(run.runId);
    const counted = this.#model.ofRun(run.runId).map(idOf);
    const first = seen[0] === undefined ? counted.length : counted.indexOf(seen[0]);
    expect(seen).toEqual(counted.slice(first, first + seen.length));
    const missed = counted.slice(0, first).filter((id) => (this.#written.get(`${run.runId} ${id}`) ?? 0) > attachedAt);
    if (seen.length > 0) expect(missed).toEqual([]);
  }

  /**
   * Follows a thread across runs and connections. The reader must get all kept events, in order; if it reconnects, it
   * may miss a late end.
   */
  #followThread(thread: { readonly deploymentId: string; readonly threadId: string }, starts: RunStreamStart[]) {
    const seen: StreamedEvent[] = [];
    let done = false;
    let closing: () => void = () => {};
    const following = (async () => {
      let from: ThreadReadStart = 'start';
      let highest = 0;
      while (!done) {
        const reader = await this.#hub().readThread(thread, from);
        closing = () => reader.close();
        try {
          for await (const event of this.#read(reader)) {
            seen.push(event);
            highest = Math.max(highest, event.threadSeq);
            from = { threadSeq: highest };
            if (this.#random.chance(0.01)) break;
          }
        } catch (error) {
          // Events of a run that is not kept can be evicted before a reader gets them.
          if (!isRunlakeError(error) || error.code !== 'STREAM_READER_TOO_SLOW') throw error;
        }
        await turn();
      }
    })();
    let failure: { readonly reason: unknown } | undefined;
    following.catch((reason: unknown) => {
      failure = { reason };
    });
    return async (threadStart: number) => {
      await until('the reader to receive the end of the thread', () => {
        if (failure) throw failure.reason;
        return seen.some(({ threadSeq }) => threadSeq === (threadStart + 1) * 2 ** 32 - 1);
      });
      done = true;
      closing();
      await following;
      for (const { runId } of starts) await this.#modelHasEnd(runId);
      const shown = seen.filter(({ isEnd }) => !isEnd).map(({ threadSeq }) => threadSeq);
      expect(shown).toEqual([...new Set(shown)].sort((one, other) => one - other));
      for (const { runId, kept } of starts) {
        const own = seen.filter((event) => event.runId === runId && !event.isEnd).map(idOf);
        const counted = this.#model
          .ofRun(runId)
          .filter(({ isEnd }) => !isEnd)
          .map(idOf);
        if (kept) expect(own).toEqual(counted);
        else expect(counted).toEqual(expect.arrayContaining(own));
        expect(seen.filter((event) => event.runId === runId && event.isEnd).length).toBeLessThanOrEqual(1);
      }
    };
  }
}

const textOf = ({ data }: StreamedEvent) => Buffer.from(data).toString();

export function followHistories(
  name: string,
  open: () => Promise<StreamsUnderTest>,
  defaults: readonly number[],
): void {
  describe(`following streams: ${name}`, () => {
    let under: StreamsUnderTest;
    beforeAll(async () => {
      under = await open();
    });
    afterAll(() => under?.close());

    test.each([...defaults, seedOfRun])('history %i', async (seed) => {
      const random = new Random(seed);
      const model = new Model();
      const follower = await under.log.follow(streamEvents, {
        onRecords: (records) => {
          for (const { value } of records) model.see(value);
        },
      });
      const history = new History(under, random, model);
      for (let hub = 0; hub < 2; hub++) await history.openHub();
      let writing = true;
      const replacing = (async () => {
        for (let time = 0; time < 4 && writing; time++) {
          for (let turns = random.between(10, 150); turns > 0; turns--) await turn();
          await history.replaceHub();
        }
      })();
      // A batch that is sent again may come after an attempt that has started in the meantime: failing inserts exclude
      // overlapping attempts.
      const failing = random.chance(0.5);
      await Promise.all(
        [1, 2, 3].map((thread) =>
          history.thread(deriveUuid('organization of streams'), deriveUuid(name, seed, thread), failing),
        ),
      );
      writing = false;
      await replacing;
      await Promise.all(history.readers);
      await follower.close();
    });
  });
}
