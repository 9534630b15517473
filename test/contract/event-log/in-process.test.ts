import { expect, onTestFinished, test, vi } from 'vitest';
import type { LogBatch } from '../../../infra/event-log/event-log.ts';
import { getTenantContext, runForTenant } from '../../../infra/fairness/tenant-context.ts';
import { pause } from '../../../infra/timeouts/backoff.ts';
import { runEvents, streamEvents } from '../../../schemas/topics.ts';
import { untilStored } from '../../engines/settling.ts';
import { deferred } from '../../infra/deferred.ts';
import { until } from '../../infra/until.ts';
import { streamEvent, streamMessage } from '../../pipelines/streams/stream-events.ts';
import { eventLogContract } from './event-log-contract.ts';
import { limits, message, openForTest, openInProcess, storeRemaining, textOf } from './in-process-under-test.ts';

eventLogContract('in-process', openInProcess);

test('a publisher is answered before the groups have stored its events, and a crash loses none of them', async () => {
  const under = await openForTest();
  const { promise: held, resolve: release } = deferred();
  await under.log.subscribe({ topic: runEvents, group: 'a', limits, handle: () => held });
  const texts = Array.from({ length: 30 }, (_, index) => `event ${index}`);
  for (const text of texts) await under.log.publish(runEvents, [{ ...message(text), headers: { from: text } }]);
  const stored = await storeRemaining(await under.reopened());
  expect(stored.map(textOf)).toEqual(texts);
  expect(stored.map(({ headers }) => headers.from)).toEqual(texts);
  release();
});

test('after a restart, no event is delivered again that was stored when the log was closed', async () => {
  const under = await openForTest();
  await under.log.subscribe({ topic: runEvents, group: 'a', limits, handle: async () => {} });
  await under.log.publish(runEvents, [message('one'), message('two')]);
  await under.log.close();
  const reopened = await under.reopened();
  await reopened.publish(runEvents, [message('three')]);
  expect((await storeRemaining(reopened)).map(textOf)).toEqual(['three']);
});

test('events that a group rejects remain for the next process when the log is closed', async () => {
  const under = await openForTest();
  const rejected = deferred();
  await under.log.subscribe({
    topic: runEvents,
    group: 'a',
    limits,
    handle: async () => {
      rejected.resolve();
      throw new Error('not now');
    },
  });
  await under.log.publish(runEvents, [message('one')]);
  await rejected.promise;
  await under.log.close();
  expect((await storeRemaining(await under.reopened())).map(textOf)).toEqual(['one']);
});

test('if ClickHouse does not take events, publishers get a retryable error, and later events are accepted', async () => {
  const under = await openForTest({ failingInserts: 1 });
  const refused = under.log.publish(runEvents, [message('one')]);
  await expect(refused).rejects.toMatchObject({ code: 'EVENT_LOG_UNAVAILABLE', status: 503, retryAfterSeconds: 1 });
  expect(await under.log.isStored(runEvents, await under.log.position(runEvents))).toBe(true);
  await under.log.publish(runEvents, [message('two')]);
  expect((await storeRemaining(under.log)).map(textOf)).toEqual(['two']);
});

test('pending bytes are bounded: beyond the limit publishers get a retryable error; a single larger event is accepted', async () => {
  const under = await openForTest({ maxPendingBytes: 1_000 });
  const { promise: released, resolve: release } = deferred();
  await under.log.subscribe({ topic: runEvents, group: 'a', limits, handle: () => released });
  await under.log.publish(runEvents, [message('x'.repeat(5_000))]);
  const refused = under.log.publish(runEvents, [message('y')]);
  await expect(refused).rejects.toMatchObject({ code: 'OVERLOADED', status: 503, retryAfterSeconds: 1 });
  release();
  await untilStored(under.log, runEvents);
  await under.log.publish(runEvents, [message('y')]);
});

test('a request larger than the limit for pending bytes is accepted while others are pending', async () => {
  const under = await openForTest({ maxPendingBytes: 1_000 });
  const { promise: released, resolve: release } = deferred();
  await under.log.subscribe({ topic: runEvents, group: 'a', limits, handle: () => released });
  await under.log.publish(runEvents, [message('small')]);
  const published = under.log.publish(runEvents, [message('x'.repeat(5_000))]);
  release();
  await published;
});

test('events that are not to be stored wait for no store, reach followers only and keep their offset order', async () => {
  const under = await openForTest();
  const { promise: released, resolve: release } = deferred();
  const [stored, seen]: [number[], number[]] = [[], []];
  await under.log.subscribe({
    topic: streamEvents,
    group: 'a',
    limits,
    handle: ({ records }) => released.then(() => void stored.push(...records.map(({ offset }) => offset))),
  });
  const follower = await under.log.follow(streamEvents, {
    onRecords: (records) => seen.push(...records.map(({ offset }) => offset)),
  });
  const event = (seq: number, kept: boolean) => streamMessage(streamEvent({ seq, kept }), under.log);
  await under.log.publish(streamEvents, [event(1, true), event(2, false)]);
  await under.log.publish(streamEvents, [event(3, false)]);
  expect(seen).toHaveLength(3);
  expect(stored).toHaveLength(0);
  const [offset] = seen as [number];
  expect(seen).toEqual([offset, offset + 1, offset + 2]);
  const partition = Object.entries(follower.from).find(([, from]) => from === offset)?.[0] as string;
  expect(await under.log.isStored(streamEvents, { [partition]: offset })).toBe(true);
  expect(await under.log.isStored(streamEvents, { [partition]: offset + 1 })).toBe(false);
  release();
  await until('the first event to be stored', () => stored.length > 0);
  expect(stored).toEqual([offset]);
  expect(await under.log.isStored(streamEvents, { [partition]: offset + 3 })).toBe(true);
});

test('requests that wait at the same moment form one batch', async () => {
  const under = await openForTest();
  const sizes: number[] = [];
  const handle = async ({ records }: LogBatch) => void sizes.push(records.length);
  await under.log.subscribe({ topic: runEvents, group: 'a', limits, handle });
  await Promise.all(Array.from({ length: 30 }, () => under.log.publish(runEvents, [message('one')])));
  await until('the events', () => sizes.length > 0);
  expect(sizes).toEqual([30]);
});

test('offsets continue after those of an earlier process, even if the clock was set back', async () => {
  const under = await openForTest();
  const read = async (log: typeof under.log) => {
    const offsets: number[] = [];
    const handle = async ({ records }: LogBatch) => void offsets.push(...records.map(({ offset }) => offset));
    await log.subscribe({ topic: runEvents, group: 'a', limits, handle });
    await log.publish(runEvents, [message('one')]);
    await until('the event', () => offsets.length > 0);
    return offsets.at(-1) as number;
  };
  const first = await read(under.log);
  await under.log.close();
  const now = Date.now();
  vi.spyOn(Date, 'now').mockReturnValue(now - 86_400_000);
  onTestFinished(() => void vi.restoreAllMocks());
  const log = await under.reopened();
  expect(await read(log)).toBeGreaterThan(first);
  await log.close();
});

test('offsets continue after those in Postgres that a release without reservations has left', async () => {
  const under = await openForTest();
  const highest = Date.now() * 1_000 + 86_400_000_000;
  const record = { partition: 0, offset: highest, key: 'key', value: message('one').value, headers: {}, version: 1n };
  await under.log.deadLetter(runEvents, record, 'a reason', 'walk');
  await under.database.execute('DELETE FROM in_process_log');
  const log = await under.reopened();
  const offsets: number[] = [];
  await log.subscribe({
    topic: runEvents,
    group: 'a',
    limits,
    handle: async ({ records }) => void offsets.push(...records.map(({ offset }) => offset)),
  });
  await log.publish(runEvents, [message('two')]);
  await until('the event', () => offsets.length > 0);
  expect(offsets[0]).toBeGreaterThan(highest);
  await log.close();
});

const large = 'x'.repeat(2 ** 18);

/** Opens a log with a group that holds each batch until `release` is called. */
async function openHeld({ maxPendingBytes = 2 ** 23 } = {}) {
  const under = await openForTest({ maxPendingBytes });
  const { promise: held, resolve: release } = deferred();
  const stored: string[] = [];
  const tenantContexts = new Set<unknown>();
  let isRejecting = false;
  await under.log.subscribe({
    topic: runEvents,
    group: 'a',
    limits: { rows: 1_000, bytes: 2 ** 26 },
    handle: async ({ records }) => {
      tenantContexts.add(getTenantContext());
      await held;
      if (isRejecting) throw new Error('not now');
      stored.push(...records.map((record) => textOf(record).slice(0, 5)));
    },
  });
  const publish = (organizationId: string, text: string) =>
    runForTenant({ organizationId }, () => under.log.publish(runEvents, [message(text)]));
  const reject = () => {
    isRejecting = true;
    release();
  };
  return { under, stored, tenantContexts, publish, release, reject };
}

test('an organisation with many events that are not stored waits; others do not', async () => {
  const { stored, tenantContexts, publish, release } = await openHeld();
  // The share of an organisation is a sixteenth of 8 MiB: two events of 256 KiB. The third is appended after both.
  await Promise.all(['1', '2', '3'].map((number) => publish('flooding', `flood${number}${large}`)));
  let isAnswered = false;
  const waiting = publish('flooding', `late ${large}`).then(() => {
    isAnswered = true;
  });
  for (const text of ['quiet', 'again']) await publish('quiet', text);
  expect([isAnswered, stored]).toEqual([false, []]);
  release();
  await waiting;
  await until('all events', () => stored.length === 6);
  expect(stored).toEqual(['flood', 'flood', 'flood', 'quiet', 'again', 'late ']);
  expect(tenantContexts).toEqual(new Set([undefined]));
});

test('a group stores half of the events that an organisation may have while the other half is appended', async () => {
  const under = await openForTest({ maxPendingBytes: 2 ** 25 });
  const sizes: number[] = [];
  const handle = async ({ records }: LogBatch) => {
    sizes.push(records.length);
    await pause(20 * records.length);
  };
  await under.log.subscribe({ topic: runEvents, group: 'a', limits: { rows: 1_000, bytes: 2 ** 26 }, handle });
  for (let count = 0; count < 40; count++)
    await runForTenant({ organizationId: 'flooding' }, () => under.log.publish(runEvents, [message(large)]));
  // Eight events are all that the organisation may have.
  expect(Math.max(...sizes.slice(2))).toBeLessThan(8);
});

test('while a group rejects batches, an organisation with many events is refused, and others are accepted', async () => {
  const { publish, reject } = await openHeld();
  await Promise.all(['1', '2', '3'].map((number) => publish('flooding', `flood${number}${large}`)));
  const waiting = publish('flooding', `late ${large}`);
  const refusal = expect(waiting).rejects.toMatchObject({ code: 'EVENT_LOG_UNAVAILABLE', status: 503 });
  reject();
  await refusal;
  await publish('quiet', 'quiet');
});

test('a read waits until the events of its organisation are stored, but not for those of others', async () => {
  const { under, stored, publish, release } = await openHeld();
  await publish('writer', 'event');
  await runForTenant({ organizationId: 'other' }, () => under.log.whenStored());
  expect(stored).toEqual([]);
  let hasRead = false;
  const read = runForTenant({ organizationId: 'writer' }, () => under.log.whenStored()).then(() => {
    hasRead = true;
  });
  await publish('other', 'other');
  expect(hasRead).toBe(false);
  release();
  await read;
  expect(stored).toContain('event');
});

test('the reads of a request wait once, and again only after it has published events', async () => {
  const under = await openForTest();
  const holds = [deferred(), deferred()];
  const waiting = [...holds];
  await under.log.subscribe({ topic: runEvents, group: 'a', limits, handle: async () => waiting.shift()?.promise });
  const asWriter = <Result>(work: () => Promise<Result>) => runForTenant({ organizationId: 'writer' }, work);
  const publish = () => under.log.publish(runEvents, [message('event')]);
  await asWriter(publish);
  await until('the first batch to be held', () => waiting.length === 1);
  await asWriter(async () => {
    const first = under.log.whenStored();
    await asWriter(publish);
    holds[0]?.resolve();
    await first;
    await under.log.whenStored();
    expect(await under.log.isStored(runEvents, await under.log.position(runEvents))).toBe(false);
    await publish();
    holds[1]?.resolve();
    await under.log.whenStored();
    expect(await under.log.isStored(runEvents, await under.log.position(runEvents))).toBe(true);
  });
});

test('after a restart, a read does not wait for the remaining events of other organisations', async () => {
  const { under, publish, release } = await openHeld();
  await publish('writer', 'event');
  const reopened = await under.reopened();
  const { promise: held, resolve: releaseReopened } = deferred();
  await reopened.subscribe({ topic: runEvents, group: 'a', limits, handle: () => held });
  await runForTenant({ organizationId: 'other' }, () => reopened.whenStored());
  let hasRead = false;
  const read = runForTenant({ organizationId: 'writer' }, () => reopened.whenStored()).then(() => {
    hasRead = true;
  });
  expect(await reopened.isStored(runEvents, await reopened.position(runEvents))).toBe(false);
  expect(hasRead).toBe(false);
  releaseReopened();
  await read;
  await reopened.close();
  release();
});

test('an organisation that fills the log leaves space for others', async () => {
  const { publish, release } = await openHeld({ maxPendingBytes: 2 ** 21 });
  const flood = Array.from({ length: 20 }, () => publish('flooding', `flood${large}`));
  const outcomes = Promise.allSettled(flood);
  await expect(publish('flooding', `flood${large}`)).rejects.toMatchObject({ code: 'OVERLOADED' });
  await publish('quiet', `quiet${large}`);
  release();
  const accepted = (await outcomes).filter(({ status }) => status === 'fulfilled');
  expect(accepted.length).toBeGreaterThanOrEqual(7);
  expect(accepted.length).toBeLessThan(20);
});

test('a read does not wait while a group rejects batches', async () => {
  const { under, stored, publish, reject } = await openHeld();
  await publish('writer', 'event');
  const read = runForTenant({ organizationId: 'writer' }, () => under.log.whenStored());
  reject();
  await read;
  await runForTenant({ organizationId: 'writer' }, () => under.log.whenStored());
  expect(stored).toEqual([]);
});

test('no event is lost if organisations publish again at once after each answer', async () => {
  const { stored, publish, release } = await openHeld({ maxPendingBytes: 2 ** 28 });
  release();
  const again = async (organizationId: string) => {
    for (let time = 0; time < 100; time += 1) await publish(organizationId, 'again');
  };
  await Promise.all(['a', 'b', 'c'].map(again));
  await until('all events', () => stored.length === 300);
});
