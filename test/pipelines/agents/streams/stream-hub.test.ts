import { expect, test } from 'vitest';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import type { StreamHubOptions } from '../../../../pipelines/agents/streams/stream-hub.ts';
import type { StreamedEvent, StreamReader } from '../../../../pipelines/agents/streams/stream-types.ts';
import { forSuite } from '../../../for-suite.ts';
import { until } from '../../../infra/until.ts';
import { deriveUuid } from '../../runs/run-events.ts';
import { all, chunk, idOf, makeRunEnd, newRun, openStreams } from './streams-under-test.ts';

const under = forSuite(() => openStreams());

/** Reads all events in the background. */
function reading(reader: StreamReader) {
  const events: StreamedEvent[] = [];
  const ended = (async () => {
    for await (const event of reader) events.push(event);
  })();
  ended.catch(() => undefined);
  return { events, ids: () => events.map(idOf), ended };
}

test('delivers all fields of an event, live and stored', async () => {
  const [hub, publisher] = [await under.hub(), under.publisher()];
  const run = newRun({ attempt: 3, threadStart: 7 });
  const live = reading(await hub.readRun(run, 'now'));
  const writer = publisher.open(run);
  const written = {
    mode: 'messages',
    event: 'messages/partial',
    namespace: 'a:1|b:2',
    data: Buffer.from('{"é":"\\u0000"}'),
  };
  await writer.write([written]);
  await writer.settled();
  await publisher.publishEnd(makeRunEnd(run, 'error'));
  await live.ended;
  const later = await all(await (await under.hub()).readRun(run, { attempt: 3, seq: 0 }));
  for (const [event, end] of [live.events, later]) {
    expect({ ...event, data: Buffer.from(event?.data ?? []) }).toMatchObject({
      ...written,
      runId: run.runId,
      attempt: 3,
      seq: 1,
      threadSeq: 7 * 2 ** 32 + 1,
      isEnd: false,
    });
    expect(Math.abs(Date.now() - (event?.createdAtMicros ?? 0) / 1_000)).toBeLessThan(60_000);
    expect({ ...end, data: Buffer.from(end?.data ?? []).toString() }).toMatchObject({
      threadSeq: 8 * 2 ** 32 - 1,
      isEnd: true,
      data: '{"status":"error"}',
      createdAtMicros: 1_800_000_000_000_000,
    });
  }
});

test.each([true, false])(
  'live readers do not wait for storage, nor does a run whose events are not kept (kept: %s)',
  async (kept) => {
    const [hub, publisher] = [await under.hub(), under.publisher()];
    const run = newRun({ kept });
    const [now, start] = [reading(await hub.readRun(run, 'now')), reading(await hub.readRun(run, 'start'))];
    await under.stored();
    const release = under.holdInserts();
    const writer = publisher.open(run);
    for (let turn = 0; turn < 5; turn++) await writer.write([chunk(`${turn}`)]);
    await until('all events', () => now.events.length === 5 && start.events.length === 5);
    await writer.settled();
    release();
    await publisher.publishEnd(makeRunEnd(run));
    await Promise.all([now.ended, start.ended]);
    expect(now.ids()).toEqual(['1-1', '1-2', '1-3', '1-4', '1-5', '1-end']);
    expect(start.ids()).toEqual(now.ids());
  },
);

test('a reader from now gets new events; a reconnecting reader resumes at its position, also in another process', async () => {
  const [hub, publisher] = [await under.hub(), under.publisher()];
  const run = newRun();
  const writer = publisher.open(run);
  await writer.write([chunk('a'), chunk('b'), chunk('c')]);
  const now = reading(await hub.readRun(run, 'now'));
  await writer.write([chunk('d')]);
  await writer.settled();
  await publisher.publishEnd(makeRunEnd(run));
  await now.ended;
  expect(now.ids()).toEqual(['1-4', '1-end']);
  for (const at of [hub, await under.hub()]) {
    const back = await all(await at.readRun(run, { attempt: 1, seq: 2 }));
    expect(back.map(idOf)).toEqual(['1-3', '1-4', '1-end']);
  }
});

test('hides events that an attempt writes after the next one has started, live and stored', async () => {
  const [hub, publisher] = [await under.hub(), under.publisher()];
  const run = newRun();
  const live = reading(await hub.readRun(run, 'now'));
  const zombie = publisher.open(run);
  await zombie.write([chunk('a'), chunk('b')]);
  const second = { ...run, attempt: 2, threadStart: 2 };
  const writer = publisher.open(second);
  await writer.write([chunk('c')]);
  const late = reading(await hub.readRun(run, 'now'));
  await zombie.write([chunk('late')]);
  await writer.write([chunk('d')]);
  await Promise.all([writer.settled(), zombie.settled()]);
  await publisher.publishEnd(makeRunEnd(second));
  await Promise.all([live.ended, late.ended]);
  const expected = ['1-1', '1-2', '2-1', '2-2', '2-end'];
  expect(live.ids()).toEqual(expected);
  expect(late.ids()).toEqual(['2-2', '2-end']);
  expect((await all(await (await under.hub()).readRun(run, 'start'))).map(idOf)).toEqual(expected);
});

test('reads a thread across its runs; delivers the end of a run also after the next run has started', async () => {
  const [hub, publisher] = [await under.hub(), under.publisher()];
  const first = newRun();
  const second = newRun({ threadId: first.threadId, threadStart: 2 });
  const unread = newRun({ threadId: first.threadId, attempt: 0, threadStart: 2 });
  const live = reading(await hub.readThread(first, 'now'));
  const writers = [publisher.open(first), publisher.open(second)] as const;
  await writers[0].write([chunk('a'), chunk('b')]);
  await writers[1].write([chunk('c')]);
  await publisher.publishEnd(makeRunEnd(unread));
  await publisher.publishEnd(makeRunEnd(first));
  await publisher.publishEnd(makeRunEnd(first));
  await publisher.publishEnd(makeRunEnd(second));
  await writers[1].settled();
  await until('the live events', () => live.events.length === 5);
  expect(live.events.map(({ seq, threadSeq }) => [threadSeq >= 2 ** 33 ? 2 : 1, seq % (2 ** 32 - 1)])).toEqual([
    [1, 1],
    [1, 2],
    [2, 1],
    [1, 0],
    [2, 0],
  ]);
  const numbers = live.events.map(({ threadSeq }) => threadSeq).sort((one, other) => one - other);
  const other = await under.hub();
  const withoutRecords = await under.hub({ ringBufferBytes: 0 });
  const expected = [
    [other, 'start', numbers],
    [other, { threadSeq: numbers[1] as number }, numbers.slice(2)],
    [hub, { threadSeq: numbers[2] as number }, numbers.slice(3)],
    [hub, { threadSeq: numbers[2] as number, openStarts: [1] }, numbers.slice(2)],
    [withoutRecords, { threadSeq: numbers[3] as number, openStarts: [1] }, [numbers[2], numbers[4]]],
  ] as const;
  for (const [at, from, rest] of expected) {
    const reader = await at.readThread(first, from);
    await reader.finish();
    const read = (await all(reader)).map(({ threadSeq }) => threadSeq);
    expect(read.sort((one, other) => one - other)).toEqual(rest);
  }
});

test('a reader that reconnects reads a stored end of an earlier run, also if the buffer begins at the next event', async () => {
  // The buffer holds the last three events only.
  const [hub, publisher] = [await under.hub({ ringBufferBytes: 11_000 }), under.publisher()];
  const first = newRun();
  const second = newRun({ threadId: first.threadId, threadStart: 2, kept: false });
  const third = newRun({ threadId: first.threadId, threadStart: 3 });
  const writers = [publisher.open(first), publisher.open(second), publisher.open(third)] as const;
  await writers[0].write([chunk('a')]);
  await writers[1].write([chunk('b'), chunk('c')]);
  await Promise.all([writers[0].settled(), writers[1].settled()]);
  await publisher.publishEnd(makeRunEnd(first));
  await writers[1].write([chunk('large', 9_000)]);
  await writers[1].settled();
  await publisher.publishEnd(makeRunEnd(second));
  await writers[2].write([chunk('d')]);
  await writers[2].settled();
  await under.stored();
  const reader = await hub.readThread(first, { threadSeq: 2 * 2 ** 32 + 2, openStarts: [1] });
  await reader.finish();
  const expected = ['1-end', '2-3', '2-end', '3-1'];
  const idInThread = (event: StreamedEvent) => idOf({ ...event, attempt: Math.floor(event.threadSeq / 2 ** 32) });
  expect((await all(reader)).map(idInThread)).toEqual(expected);
});

test('a slow reader does not affect others: it reads stored events later, and fails on events that are not kept', async () => {
  const [hub, publisher] = [await under.hub({ ringBufferBytes: 50_000 }), under.publisher()];
  const runs = [newRun({ kept: true }), newRun({ kept: false })] as const;
  const slow = await Promise.all(runs.map((run) => hub.readRun(run, 'now')));
  const iterators = slow.map((reader) => reader[Symbol.asyncIterator]());
  const quick = await Promise.all(runs.map(async (run) => reading(await hub.readRun(run, 'now'))));
  const writers = runs.map((run) => publisher.open(run));
  for (const writer of writers) await writer.write([chunk('first')]);
  for (const iterator of iterators) expect((await iterator.next()).value?.seq).toBe(1);
  for (let turn = 0; turn < 100; turn++) {
    for (const writer of writers) await writer.write([chunk(`${turn}`, 1_000)]);
    await new Promise((resolve) => setImmediate(resolve));
  }
  for (const [index, writer] of writers.entries()) {
    await writer.settled();
    await publisher.publishEnd(makeRunEnd(runs[index] as (typeof runs)[0]));
  }
  for (const { ended, events } of quick) {
    await ended;
    expect(events.map(({ seq }) => seq).slice(0, -1)).toEqual(Array.from({ length: 101 }, (_, index) => index + 1));
  }
  const [kept, unkept] = iterators as [AsyncIterator<StreamedEvent>, AsyncIterator<StreamedEvent>];
  await expect(unkept.next()).rejects.toMatchObject({ code: 'STREAM_READER_TOO_SLOW' });
  const rest: number[] = [];
  for (let next = await kept.next(); !next.done; next = await kept.next()) rest.push(next.value.seq);
  expect(rest.slice(0, -1)).toEqual(Array.from({ length: 100 }, (_, index) => index + 2));
});

test('reports events that are lost permanently instead of skipping them', async () => {
  const [hub, publisher] = [await under.hub({ storeTimeoutMs: 300 }), under.publisher()];
  const run = newRun();
  const writer = publisher.open(run);
  await writer.write(Array.from({ length: 10 }, (_, index) => chunk(`${index}`)));
  await under.stored();
  const live = await hub.readRun(run, 'start');
  await under.stores.clickhouse.command({
    name: 'test',
    sql: `ALTER TABLE stream_events DELETE WHERE run_id = '${run.runId}' AND seq IN (4, 5) SETTINGS mutations_sync = 2`,
  });
  const events: StreamedEvent[] = [];
  const later = await (await under.hub({ storeTimeoutMs: 300 })).readRun(run, 'start');
  await expect(
    (async () => {
      for await (const event of later) events.push(event);
    })(),
  ).rejects.toMatchObject({ code: 'STREAM_INCOMPLETE' });
  expect(events.map(({ seq }) => seq)).toEqual([1, 2, 3]);
  // The ring buffer of this process still has these events.
  await publisher.publishEnd(makeRunEnd(run));
  expect(await all(live)).toHaveLength(11);
});

test('fills a gap as soon as the events are stored', async () => {
  const publisher = under.publisher();
  const run = newRun();
  await under.stored();
  const release = under.holdInserts();
  const writer = publisher.open(run);
  await writer.write([chunk('a'), chunk('b')]);
  // Read in another process, which has not seen the events that are not stored yet.
  const reader = reading(await (await under.hub()).readRun(run, 'start'));
  await writer.write([chunk('c')]);
  expect(reader.events).toHaveLength(0);
  release();
  await writer.settled();
  await publisher.publishEnd(makeRunEnd(run));
  await reader.ended;
  expect(reader.ids()).toEqual(['1-1', '1-2', '1-3', '1-end']);
});

test('a reader opened after the end ends on finish; close ends a reader at once', async () => {
  const [hub, publisher] = [await under.hub(), under.publisher()];
  const run = newRun({ kept: false });
  await publisher.open(run).write([chunk('a')]);
  await publisher.publishEnd(makeRunEnd(run));
  const other = await under.hub();
  const late = [await hub.readRun(run, 'now'), await other.readRun(run, 'start'), await other.readThread(run, 'now')];
  const ended = late.map(all);
  for (const reader of late) await reader.finish();
  expect(await Promise.all(ended)).toEqual([[], [], []]);
  const open = await hub.readRun(newRun(), 'now');
  const closed = all(open);
  open.close();
  expect(await closed).toEqual([]);
  const left = reading(await other.readRun(newRun(), 'start'));
  await other.close();
  await left.ended;
});

test('a reader that finishes while the log is unavailable yields what has arrived, and then fails', async () => {
  let isAvailable = false;
  const log: StreamHubOptions['log'] = {
    follow: (...args) => under.log.follow(...args),
    isStored: (...args) => under.log.isStored(...args),
    async position(...args) {
      if (!isAvailable) throw runlakeError('EVENT_LOG_UNAVAILABLE');
      return under.log.position(...args);
    },
  };
  const [hub, publisher] = [await under.hub({ log, storeTimeoutMs: 300 }), under.publisher()];
  const run = newRun();
  const writer = publisher.open(run);
  await writer.write([chunk('a')]);
  await writer.settled();
  const seen: string[] = [];
  const read = async () => {
    const reader = await hub.readRun(run, 'start');
    const finished = reader.finish();
    try {
      for await (const event of reader) seen.push(idOf(event));
    } finally {
      await finished;
    }
  };
  await expect(read()).rejects.toMatchObject({ code: 'STREAM_INCOMPLETE' });
  isAvailable = true;
  await read();
  expect(seen).toEqual(['1-1', '1-1']);
});

test('streams of another deployment use no ring buffer space: they do not disconnect a slow reader', async () => {
  const [hub, publisher] = [await under.hub({ ringBufferBytes: 50_000 }), under.publisher()];
  const run = newRun({ kept: false });
  const other = newRun({ deploymentId: deriveUuid('another deployment of streams'), kept: false });
  const slow = (await hub.readRun(run, 'now'))[Symbol.asyncIterator]();
  const writer = publisher.open(run);
  const writerOfOther = publisher.open(other);
  for (const text of ['first', 'second']) await writer.write([chunk(text)]);
  expect((await slow.next()).value?.seq).toBe(1);
  for (let turn = 0; turn < 100; turn++) await writerOfOther.write([chunk(`${turn}`, 1_000)]);
  await writerOfOther.settled();
  await writer.settled();
  await publisher.publishEnd(makeRunEnd(run));
  expect((await slow.next()).value?.seq).toBe(2);
  expect((await slow.next()).value?.isEnd).toBe(true);
});

test.each(['start', 'now', { threadSeq: 2 ** 32 + 1 }] as const)(
  'a reader of a thread from %o skips events of a deleted thread with the same id, also late ones',
  async (from) => {
    const publisher = under.publisher();
    const old = newRun();
    const run = { ...newRun(), threadId: old.threadId, threadStart: 2 };
    const late = publisher.open(old);
    await late.write([chunk('a'), chunk('b')]);
    await late.settled();
    await under.stored();
    const readers = await Promise.all(
      [await under.hub(), await under.hub()].map(async (hub) =>
        reading(await hub.readThread({ ...old, earlierStarts: 1 }, from)),
      ),
    );
    const writer = publisher.open(run);
    await late.write([chunk('c')]);
    await writer.write([chunk('d')]);
    await late.write([chunk('e')]);
    await late.settled();
    await publisher.publishEnd(makeRunEnd(old, 'interrupted'));
    await writer.write([chunk('f')]);
    await writer.settled();
    await publisher.publishEnd(makeRunEnd(run));
    for (const { events, ids } of readers) {
      await until('the end', () => events.at(-1)?.isEnd === true);
      expect(ids()).toEqual(['1-1', '1-2', '1-end']);
      expect(new Set(events.map(({ runId }) => runId))).toEqual(new Set([run.runId]));
    }
  },
);
