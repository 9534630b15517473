/**
 * Random histories of a thread in the log: runs with overlapping attempts, repeats, records that are not stored,
 * batches that fail and are redelivered with different boundaries. Pages of any size, read from any cursor, must equal
 * the model.
 */
import { describe, expect, test } from 'vitest';
import { computeRecordVersion, type LogRecord } from '../../../infra/event-log/event-log.ts';
import {
  readRunStream,
  readThreadStream,
  type StreamPage,
  type StreamRow,
} from '../../../pipelines/streams/read-streams.ts';
import type { StreamEvent } from '../../../pipelines/streams/stream-event.ts';
import { streamEvents } from '../../../schemas/topics.ts';
import { runOnStoredTable } from '../../engines/on-stored-table.ts';
import { forSuite } from '../../for-suite.ts';
import { Random } from '../../histories/random.ts';
import { seed as seedOfRun } from '../../house/seed.ts';
import { openDrivenSink } from '../ingest/sink/driven-sink.ts';
import { deriveUuid } from '../runs/run-events.ts';
import { deploymentId, streamEvent, streamMessage } from './stream-events.ts';

const under = forSuite(() => openDrivenSink({ config: { insertBatchRows: 7 } }));

interface Logged {
  readonly event: StreamEvent;
  readonly offset: number;
}

const partition = 3;
const dayMicros = 86_400_000_000;

/** Returns the log of one thread: workers write their events alternately, including workers that lost their run. */
function history(seed: number): { threadId: string; log: Logged[] } {
  const random = new Random(seed);
  const threadId = deriveUuid('thread of history', seed);
  const log: Logged[] = [];
  let offset = random.int(1_000);
  const append = (event: StreamEvent) => {
    // Other keys share the partition, so that offsets have gaps.
    offset += random.between(1, 3);
    log.push({ event, offset });
  };
  let threadSeq = 0;
  for (let run = 0; run < 3; run++) {
    const runId = deriveUuid('run of history', seed, run);
    const kept = !random.chance(0.1);
    const workers = Array.from({ length: random.between(1, 3) }, (_, index) => ({
      attempt: index + 1,
      seq: random.int(2),
      threadSeq: 0,
      begun: false,
    }));
    for (let step = random.between(5, 40); step > 0; step--) {
      const begun = workers.filter((worker) => worker.begun);
      const next = workers.find((worker) => !worker.begun);
      const worker = next && (begun.length === 0 || random.chance(0.1)) ? next : random.pick(begun);
      if (!worker.begun) Object.assign(worker, { begun: true, threadSeq });
      const { attempt } = worker;
      worker.seq += random.chance(0.05) ? 2 : 1;
      worker.threadSeq += 1;
      // A worker that lost its run continues its own sequence numbers.
      threadSeq = Math.max(threadSeq, worker.threadSeq);
      append(
        streamEvent({
          threadId,
          runId,
          attempt,
          seq: worker.seq,
          threadSeq: worker.threadSeq,
          kept,
          data: Buffer.alloc(random.int(300), `${attempt}-${worker.seq} `),
          expiresAtMicros: Date.now() * 1_000 + random.between(1, 3) * dayMicros,
        }),
      );
      if (random.chance(0.15)) append(random.pick(log).event);
    }
  }
  return { threadId, log };
}

type VisibleEvent = Pick<StreamRow, 'runId' | 'attempt' | 'seq' | 'threadSeq' | 'offset'> & { data: string };

/** Returns the stored events in the order that readers see who follow the log from its beginning. */
function visibleEvents(log: readonly Logged[]): VisibleEvent[] {
  const highest = new Map<string, number>();
  const seen = new Map<string, VisibleEvent>();
  for (const { event, offset } of log) {
    const { runId, attempt, seq, threadSeq, data } = event;
    const id = `${runId} ${attempt}-${seq}`;
    if (!event.kept || attempt < (highest.get(runId) ?? 0) || seen.has(id)) continue;
    highest.set(runId, attempt);
    seen.set(id, { runId, attempt, seq, threadSeq, offset, data: Buffer.from(data).toString() });
  }
  return [...seen.values()];
}

function listRunEvents(log: readonly Logged[], runId: string): VisibleEvent[] {
  const own = visibleEvents(log).filter((each) => each.runId === runId);
  return own.sort((one, other) => one.attempt - other.attempt || one.seq - other.seq);
}

function listThreadEvents(log: readonly Logged[]): VisibleEvent[] {
  const eventsBySeq = new Map<number, VisibleEvent>();
  for (const each of visibleEvents(log)) if (!eventsBySeq.has(each.threadSeq)) eventsBySeq.set(each.threadSeq, each);
  return [...eventsBySeq.values()].sort((one, other) => one.threadSeq - other.threadSeq);
}

/** Delivers the log in batches of any size, with failures and redelivery, sometimes from a much earlier offset. */
async function deliver(log: readonly Logged[], random: Random): Promise<void> {
  const record = ({ event, offset }: Logged): LogRecord => ({
    headers: {},
    ...streamMessage(event, under.log),
    partition,
    offset,
    version: computeRecordVersion(1, offset, {}),
  });
  let at = 0;
  while (at < log.length) {
    if (random.chance(0.1)) at = random.int(at + 1);
    const batch = log.slice(at, at + random.between(1, 25));
    if (random.chance(0.2)) under.failNextInsert(random.pick(['before', 'after']));
    const done = await under.deliver(streamEvents, batch.map(record)).then(
      () => true,
      () => false,
    );
    if (done) at += batch.length;
  }
}

async function pages(random: Random, read: (after: StreamRow | undefined, limits: Limits) => Promise<StreamPage>) {
  const rows: StreamRow[] = [];
  for (;;) {
    const limits = { limitRows: random.between(1, 30), limitBytes: random.between(1, 3_000) };
    const page = await read(rows.at(-1), limits);
    const bytes = page.rows.reduce((sum, { data }) => sum + data.length, 0);
    expect(page.rows.length).toBeLessThanOrEqual(limits.limitRows);
    expect(page.rows.length === 1 || bytes <= limits.limitBytes).toBe(true);
    rows.push(...page.rows);
    if (!page.more) return rows.map(shown);
    expect(page.rows.length).toBeGreaterThan(0);
  }
}
interface Limits {
  readonly limitRows: number;
  readonly limitBytes: number;
}
const shown = ({ runId, attempt, seq, threadSeq, offset, data }: StreamRow): VisibleEvent => ({
  runId,
  attempt,
  seq,
  threadSeq,
  offset,
  data: data.toString(),
});

describe.each([1, 2, 3, 4, 5, seedOfRun])('history %i', (seed) => {
  const random = new Random(seed + 1_000_000);
  const { threadId, log } = history(seed);
  const check = async () => {
    const store = under.stores.clickhouse;
    for (const runId of new Set(log.map(({ event }) => event.runId))) {
      const expected = listRunEvents(log, runId);
      const query = { deploymentId, threadId, runId };
      expect(await pages(random, (after, limits) => readRunStream(store, { ...query, ...limits, after }))).toEqual(
        expected,
      );
      const from = random.int(expected.length + 1);
      const rest = await readRunStream(store, { ...query, after: expected[from], limitRows: 9_999, limitBytes: 1e9 });
      expect(rest.rows.map(shown)).toEqual(expected[from] ? expected.slice(from + 1) : expected);
    }
    const thread = await pages(random, (after, limits) =>
      readThreadStream(store, { deploymentId, threadId, ...limits, after: after?.threadSeq }),
    );
    expect(thread).toEqual(listThreadEvents(log));
  };

  test('reads the same as the model, before and after its rows are merged', async () => {
    await deliver(log, random);
    await check();
    await runOnStoredTable(under.stores.clickhouse, 'stream_events', (stored) => `OPTIMIZE TABLE ${stored} FINAL`);
    await check();
  });
});
