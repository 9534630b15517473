import { beforeAll, describe, expect, test } from 'vitest';
import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import { transientEvents } from '../../../pipelines/ingest/sink/sink-metrics.ts';
import { deleteStreamEvents } from '../../../pipelines/streams/delete-stream-events.ts';
import { type RunStreamQuery, readRunStream, readThreadStream } from '../../../pipelines/streams/read-streams.ts';
import type { StreamEvent } from '../../../pipelines/streams/stream-event.ts';
import { streamEvents } from '../../../schemas/topics.ts';
import { runOnStoredTable } from '../../engines/on-stored-table.ts';
import { forSuite } from '../../for-suite.ts';
import { openDrivenSink, toRecordsAtOffset } from '../ingest/sink/driven-sink.ts';
import { deriveUuid } from '../runs/run-events.ts';
import { deploymentId, streamEvent, streamMessage } from './stream-events.ts';

const under = forSuite(() => openDrivenSink());

/** Returns helpers for a thread and a run that only this test uses. */
function freshRun(name: string) {
  const ids = { threadId: deriveUuid('thread of', name), runId: deriveUuid('run of', name) };
  const event = (attempt: number, seq: number, more: Partial<StreamEvent> = {}) =>
    streamEvent({ ...ids, attempt, seq, threadSeq: attempt * 100 + seq, ...more });
  const read = (query: Partial<RunStreamQuery> = {}) =>
    readRunStream(under.stores.clickhouse, { deploymentId, ...ids, limitRows: 100, limitBytes: 1_000_000, ...query });
  const readThread = (after?: number) =>
    readThreadStream(under.stores.clickhouse, {
      deploymentId,
      threadId: ids.threadId,
      after,
      limitRows: 100,
      limitBytes: 1_000_000,
    });
  return { ...ids, event, read, readThread };
}

const records = (events: readonly StreamEvent[], offset = 100, partition = 0): LogRecord[] =>
  toRecordsAtOffset(
    offset,
    events.map((event) => streamMessage(event, under.log)),
    partition,
  );
const store = (events: readonly StreamEvent[], offset = 100, partition = 0) =>
  under.deliver(streamEvents, records(events, offset, partition));
const idsOf = (rows: readonly { attempt: number; seq: number }[]) =>
  rows.map(({ attempt, seq }) => `${attempt}-${seq}`);

test('an event is read back unchanged, with its log position', async () => {
  const { event, read, runId } = freshRun('as it went');
  const data = Buffer.from([0x22, 0x00, 0xff, 0xc3, 0x22]);
  const whole = event(1, 7, {
    mode: 'messages',
    event: 'messages/partial',
    namespace: 'weather:1f|inner:é\t"',
    data,
    isEnd: true,
    threadSeq: 41,
    createdAtMicros: Date.now() * 1_000 + 123,
  });
  const offset = 1_767_323_045_123_457;
  await store([whole], offset, 11);
  expect(await read()).toEqual({
    more: false,
    rows: [
      {
        runId,
        attempt: 1,
        seq: 7,
        threadSeq: 41,
        mode: 'messages',
        event: 'messages/partial',
        namespace: 'weather:1f|inner:é\t"',
        data,
        isEnd: true,
        createdAtMicros: whole.createdAtMicros,
        partition: 11,
        offset,
      },
    ],
  });
});

test('events marked as not stored are not stored, are counted, and do not change the bytes of the log', async () => {
  const { event, read } = freshRun('not kept');
  const count = async () =>
    (await transientEvents.get()).values.find(({ labels }) => labels.topic === 'stream-events')?.value ?? 0;
  const before = await count();
  const batch = records([event(1, 0), event(1, 1, { kept: false }), event(1, 2, { kept: false }), event(1, 3)]);
  const bytes = batch.map(({ value }) => Buffer.from(value));
  await under.deliver(streamEvents, batch);
  expect(idsOf((await read()).rows)).toEqual(['1-0', '1-3']);
  expect((await count()) - before).toBe(2);
  expect(batch.map(({ value }) => value)).toEqual(bytes);
  await store([event(1, 9, { kept: false })], 200);
  expect((await read()).rows).toHaveLength(2);
});

describe('attempts', () => {
  test.each<[string, [attempt: number, seq: number][], string[]]>([
    [
      'in order',
      [
        [1, 0],
        [1, 1],
        [2, 0],
        [2, 1],
      ],
      ['1-0', '1-1', '2-0', '2-1'],
    ],
    [
      'of a worker that lost the run and continues',
      [
        [1, 0],
        [2, 0],
        [1, 1],
        [2, 1],
        [1, 2],
      ],
      ['1-0', '2-0', '2-1'],
    ],
    [
      'three attempts',
      [
        [1, 0],
        [3, 0],
        [2, 0],
        [1, 1],
        [3, 1],
      ],
      ['1-0', '3-0', '3-1'],
    ],
    [
      'with a repeat after the next attempt',
      [
        [1, 0],
        [1, 1],
        [2, 0],
        [1, 1],
        [1, 2],
      ],
      ['1-0', '1-1', '2-0'],
    ],
    [
      'the lower one only after the higher',
      [
        [2, 0],
        [1, 0],
      ],
      ['2-0'],
    ],
  ])('%s', async (name, log, expected) => {
    const { event, read, readThread } = freshRun(`attempts ${name}`);
    await store(log.map(([attempt, seq]) => event(attempt, seq)));
    const stored = async () => ({ run: idsOf((await read()).rows), thread: idsOf((await readThread()).rows) });
    expect(await stored()).toEqual({ run: expected, thread: expected });
    await runOnStoredTable(under.stores.clickhouse, 'stream_events', (stored) => `OPTIMIZE TABLE ${stored} FINAL`);
    expect(await stored()).toEqual({ run: expected, thread: expected });
  });

  test('of another run of the thread do not matter, nor do those of another partition of the log', async () => {
    const one = freshRun('two runs');
    const other = deriveUuid('the other run of the thread');
    await store([
      one.event(1, 0),
      one.event(2, 0, { runId: other, threadSeq: 101 }),
      one.event(1, 1, { threadSeq: 102 }),
    ]);
    expect(idsOf((await one.read()).rows)).toEqual(['1-0', '1-1']);
    expect(idsOf((await one.readThread()).rows)).toEqual(['1-0', '2-0', '1-1']);
    await store([one.event(2, 5)], 1, 4);
    expect(idsOf((await one.read()).rows)).toEqual(['1-0', '1-1', '2-5']);
  });
});

test('a repeat changes nothing, even with other batch boundaries and another expiry day', async () => {
  const { event, read } = freshRun('repeats');
  const events = Array.from({ length: 6 }, (_, seq) => event(1, seq));
  await store(events);
  const first = await read();
  await store(events);
  for (const [index, each] of events.entries()) await store([each], 100 + index);
  await store(events, 900);
  await store([event(1, 3, { expiresAtMicros: events[3]!.expiresAtMicros + 86_400_000_000 })], 950);
  expect(await read()).toEqual(first);
  expect(first.rows.map(({ offset }) => offset)).toEqual([100, 101, 102, 103, 104, 105]);
});

describe('a page', () => {
  const { event, read, readThread } = freshRun('pages');
  const size = 1_000;
  beforeAll(() =>
    store(
      [1, 2].flatMap((attempt) => [0, 1, 2, 3, 4].map((seq) => event(attempt, seq, { data: Buffer.alloc(size, 'x') }))),
    ),
  );

  test.each<[string, Partial<RunStreamQuery>, string[], boolean]>([
    ['of all', {}, ['1-0', '1-1', '1-2', '1-3', '1-4', '2-0', '2-1', '2-2', '2-3', '2-4'], false],
    [
      'of exactly as many rows as the limit',
      { limitRows: 10 },
      ['1-0', '1-1', '1-2', '1-3', '1-4', '2-0', '2-1', '2-2', '2-3', '2-4'],
      false,
    ],
    ['up to the row limit', { limitRows: 3 }, ['1-0', '1-1', '1-2'], true],
    ['up to the byte limit', { limitBytes: 2 * size }, ['1-0', '1-1'], true],
    ['with a byte limit below one event', { limitBytes: 10 }, ['1-0'], true],
    ['after an event, across attempts', { after: { attempt: 1, seq: 3 }, limitRows: 3 }, ['1-4', '2-0', '2-1'], true],
    ['after an event that does not exist', { after: { attempt: 1, seq: 99 }, limitRows: 1 }, ['2-0'], true],
    ['after the last', { after: { attempt: 2, seq: 4 } }, [], false],
    ['of a run of another deployment', { deploymentId: deriveUuid('stranger') }, [], false],
    ['of a run under another thread', { threadId: deriveUuid('another thread') }, [], false],
    ['after all events have expired', { nowMicros: Date.now() * 1_000 + 2 * 86_400_000_000 }, [], false],
  ])('%s', async (_, query, ids, more) => {
    const page = await read(query);
    expect({ ids: idsOf(page.rows), more: page.more }).toEqual({ ids, more });
  });

  test('of a thread continues after a sequence number', async () => {
    expect(idsOf((await readThread(202)).rows)).toEqual(['2-3', '2-4']);
    const { rows } = await readThreadStream(under.stores.clickhouse, {
      deploymentId: deriveUuid('stranger'),
      threadId: event(1, 0).threadId,
      limitRows: 10,
      limitBytes: 10_000,
    });
    expect(rows).toEqual([]);
  });

  test('stops when its signal is aborted', async () => {
    const reason = new Error('gone');
    await expect(read({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  });
});

test('events are deleted with their thread, and no others: not those of a later thread with the same id', async () => {
  const [one, two] = [freshRun('deleted one'), freshRun('deleted two')];
  const later = deriveUuid('run of a later thread');
  const neverStarted = deriveUuid('run that never started');
  const stranger = deriveUuid('stranger');
  await store([
    one.event(1, 1, { threadSeq: 2 * 2 ** 32 + 1 }),
    one.event(1, 1, { threadSeq: 3 * 2 ** 32 + 1, runId: later }),
    one.event(0, 2, { threadSeq: 0, runId: neverStarted }),
    two.event(1, 2, { threadSeq: 2 ** 32 + 2 }),
    one.event(1, 3, { threadSeq: 2 ** 32 + 3, deploymentId: stranger }),
  ]);
  const { clickhouse } = under.stores;
  const left = async () => [
    (await one.read()).rows.length,
    (await one.read({ runId: later })).rows.length,
    (await one.read({ runId: neverStarted })).rows.length,
    (await two.read()).rows.length,
    (await one.read({ deploymentId: stranger })).rows.length,
  ];
  expect(await left()).toEqual([1, 1, 1, 1, 1]);
  const deleted = { threadId: one.threadId, starts: 2 };
  await deleteStreamEvents(clickhouse, { deploymentId, threads: [deleted] });
  expect(await left()).toEqual([0, 1, 1, 1, 1]);
  await deleteStreamEvents(clickhouse, { deploymentId, threads: [{ threadId: two.threadId, starts: 1 }, deleted] });
  expect(await left()).toEqual([0, 1, 1, 0, 1]);
  await deleteStreamEvents(clickhouse, { deploymentId, threads: [] });
  expect(await left()).toEqual([0, 1, 1, 0, 1]);
});

test('a day whose events have all expired is dropped', async () => {
  const { event } = freshRun('expired');
  const { clickhouse } = under.stores;
  const yesterday = Date.now() * 1_000 - 86_400_000_000;
  await store([event(1, 0, { createdAtMicros: yesterday - 1_000_000, expiresAtMicros: yesterday })]);
  const day = new Date(yesterday / 1_000).toISOString().slice(0, 10);
  await runOnStoredTable(clickhouse, 'stream_events', (stored) => `OPTIMIZE TABLE ${stored} PARTITION '${day}' FINAL`);
  const rows = await clickhouse.query({ name: 'test', sql: 'SELECT 1 FROM stream_events WHERE expires_at < now()' });
  expect(rows).toEqual([]);
});

describe('a record that can never be stored goes to the dead-letter queue with its bytes unchanged', () => {
  const { event } = freshRun('poison');
  const change = (at: number, byte: number) => (value: Buffer) => {
    value.writeUInt8(byte, at);
    return value;
  };
  const farFuture = Date.UTC(2040, 0) * 1_000;
  test.each<[string, string, () => LogRecord]>([
    ['a thread that is not a UUID', 'key', () => changed(event(1, 0), change(5 + 37 + 5, 0x7a))],
    ['an invalid flag', 'walk or key', () => changed(event(1, 0), change(5 + 3 * 37 + 16, 2))],
    ['an expiry in twenty years', 'key', () => records([event(1, 0, { expiresAtMicros: farFuture })])[0]!],
    ['an expiry of 1970', 'key', () => records([event(1, 0, { expiresAtMicros: 1 })])[0]!],
    ['the schema of run events', 'schema', () => changed(event(1, 0), change(4, 1))],
    ['bytes after the record', 'walk', () => changed(event(1, 0), (value) => Buffer.concat([value, Buffer.from('x')]))],
  ])('%s', async (_, step, make) => {
    await under.stores.database.query('DELETE FROM dead_letters');
    const record = make();
    const bytes = Buffer.from(record.value);
    await under.deliver(streamEvents, [record]);
    const deadLetters = await under.stores.database.query<{ value: Buffer; step: string }>(
      'SELECT value, step FROM dead_letters',
    );
    expect(deadLetters).toHaveLength(1);
    expect(step.split(' or ')).toContain(deadLetters[0]?.step);
    expect(deadLetters[0]?.value.equals(bytes)).toBe(true);
  });

  function changed(of: StreamEvent, change: (value: Buffer) => Buffer): LogRecord {
    const [record] = records([of]);
    const value = Buffer.from(record!.value);
    return { ...record!, value: change(value) };
  }
});
