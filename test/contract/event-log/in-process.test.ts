import { setTimeout as delay } from 'node:timers/promises';
import { expect, onTestFinished, test, vi } from 'vitest';
import { buildWirePrefix } from '../../../infra/event-log/avro.ts';
import type { LogBatch } from '../../../infra/event-log/event-log.ts';
import { openInProcessLog } from '../../../infra/event-log/in-process/in-process-log.ts';
import { getTenantContext, runForTenant } from '../../../infra/fairness/tenant-context.ts';
import { createLogger } from '../../../infra/telemetry/logger.ts';
import { runEvents, streamEvents, topics } from '../../../schemas/topics.ts';
import { freshStores } from '../../engines/stores.ts';
import { deferred } from '../../infra/deferred.ts';
import { until } from '../../infra/until.ts';
import { streamEvent, streamMessage } from '../../pipelines/streams/stream-events.ts';
import { eventLogContract, type LogUnderTest } from './event-log-contract.ts';

async function open({ maxPendingBytes = 2 ** 20 } = {}): Promise<LogUnderTest> {
  const stores = await freshStores();
  const { database } = stores;
  const logger = createLogger('silent', 'test');
  const openLog = () => openInProcessLog({ database, topics, partitions: 4, maxPendingBytes, logger });
  const log = await openLog();
  return {
    log,
    database,
    reopened: async () => openLog(),
    deadLetters: () => database.query('SELECT value, headers, reason, step FROM dead_letters ORDER BY id'),
    async close() {
      await log.close();
      await stores.close();
    },
  };
}

eventLogContract('in-process', open);

const limits = { rows: 100, bytes: 100_000 };
const message = (text: string) => ({ key: 'key', value: Buffer.concat([buildWirePrefix(1), Buffer.from(text)]) });

test('a publisher is answered only after every group has processed the batch', async () => {
  const under = await open();
  const gates = [deferred(), deferred()];
  const handled: string[] = [];
  for (const [index, { promise: released }] of gates.entries()) {
    await under.log.subscribe({
      topic: runEvents,
      group: `group ${index}`,
      limits,
      handle: () => released.then(() => void handled.push(`group ${index}`)),
    });
  }
  let answered = false;
  const published = under.log.publish(runEvents, [message('one')]).then(() => {
    answered = true;
  });
  gates[0]?.resolve();
  await until('the first group', () => handled.length === 1);
  expect(answered).toBe(false);
  gates[1]?.resolve();
  await published;
  expect(handled).toEqual(['group 0', 'group 1']);
  await under.close();
});

test('pending bytes are bounded: beyond the limit publishers get a retryable error; a single larger event is accepted', async () => {
  const under = await open({ maxPendingBytes: 1_000 });
  const { promise: released, resolve: release } = deferred();
  await under.log.subscribe({ topic: runEvents, group: 'a', limits, handle: () => released });
  const large = under.log.publish(runEvents, [message('x'.repeat(5_000))]);
  const refused = under.log.publish(runEvents, [message('y')]);
  await expect(refused).rejects.toMatchObject({ code: 'OVERLOADED', status: 503, retryAfterSeconds: 1 });
  release();
  await large;
  await under.log.publish(runEvents, [message('y')]);
  await under.close();
});

test('events that are not to be stored wait for no store, reach followers only and keep their offset order', async () => {
  const under = await open();
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
  const first = under.log.publish(streamEvents, [event(1, true), event(2, false)]);
  await under.log.publish(streamEvents, [event(3, false)]);
  expect(seen).toHaveLength(3);
  expect(stored).toHaveLength(0);
  const [offset] = seen as [number];
  expect(seen).toEqual([offset, offset + 1, offset + 2]);
  const partition = Object.entries(follower.from).find(([, from]) => from === offset)?.[0] as string;
  expect(await under.log.isStored(streamEvents, { [partition]: offset })).toBe(true);
  expect(await under.log.isStored(streamEvents, { [partition]: offset + 1 })).toBe(false);
  release();
  await first;
  expect(stored).toEqual([offset]);
  expect(await under.log.isStored(streamEvents, { [partition]: offset + 3 })).toBe(true);
  await under.close();
});

test('requests that wait at the same moment form one batch', async () => {
  const under = await open();
  const sizes: number[] = [];
  await under.log.subscribe({
    topic: runEvents,
    group: 'a',
    limits,
    handle: async ({ records }) => void sizes.push(records.length),
  });
  await Promise.all(Array.from({ length: 30 }, () => under.log.publish(runEvents, [message('one')])));
  expect(sizes).toEqual([30]);
  await under.close();
});

test('offsets continue after those of an earlier process, even if the clock was set back', async () => {
  const under = await open();
  const read = async (log: typeof under.log) => {
    const offsets: number[] = [];
    const handle = async ({ records }: LogBatch) => void offsets.push(...records.map(({ offset }) => offset));
    await log.subscribe({ topic: runEvents, group: 'a', limits, handle });
    await log.publish(runEvents, [message('one')]);
    return offsets[0] as number;
  };
  const first = await read(under.log);
  const now = Date.now();
  vi.spyOn(Date, 'now').mockReturnValue(now - 86_400_000);
  onTestFinished(() => void vi.restoreAllMocks());
  const log = await under.reopened();
  expect(await read(log)).toBeGreaterThan(first);
  await log.close();
  await under.close();
});

test('offsets continue after those in Postgres, even if the clock was set back', async () => {
  const under = await open();
  const highest = Date.now() * 1_000 + 86_400_000_000;
  const record = { partition: 0, offset: highest, key: 'key', value: message('one').value, headers: {}, version: 1n };
  await under.log.deadLetter(runEvents, record, 'a reason', 'walk');
  const log = await under.reopened();
  const offsets: number[] = [];
  await log.subscribe({
    topic: runEvents,
    group: 'a',
    limits,
    handle: async ({ records }) => void offsets.push(...records.map(({ offset }) => offset)),
  });
  await log.publish(runEvents, [message('two')]);
  expect(offsets[0]).toBeGreaterThan(highest);
  await log.close();
  await under.close();
});

/** Opens a log whose groups hold each batch until its gate is opened; `batches` has the texts of the messages. */
async function openGated(gates: readonly ReturnType<typeof deferred>[]) {
  const under = await open({ maxPendingBytes: 100 * 2 ** 20 });
  const batches: string[][] = [];
  const tenantContexts = new Set<unknown>();
  await under.log.subscribe({
    topic: runEvents,
    group: 'a',
    limits: { rows: 1_000, bytes: 2 ** 26 },
    handle: async ({ records }) => {
      tenantContexts.add(getTenantContext());
      const number = batches.push(records.map(({ value }) => value.toString('latin1', 5, 10)));
      await gates[number - 1]?.promise;
    },
  });
  const publish = (organizationId: string, text: string) =>
    runForTenant({ organizationId }, () => under.log.publish(runEvents, [message(text)]));
  return { under, batches, handledFor: tenantContexts, publish };
}

test('a request does not wait for a batch or the queue of another organisation, and none is processed in the context of one', async () => {
  const gates = [deferred(), deferred(), deferred()];
  const { under, batches, handledFor, publish } = await openGated(gates);
  const first = publish('flooding', 'first');
  await until('the first batch', () => batches.length === 1);
  const flood = Array.from({ length: 8 }, () => publish('flooding', `flood${'x'.repeat(2 ** 18)}`));
  gates[1]?.resolve();
  await publish('quiet', 'quiet');
  // Two batches are in progress, and both block.
  const second = publish('quiet', 'again');
  const third = publish('third', 'third');
  await until('the third batch', () => batches.length === 3);
  expect(batches).toEqual([['first'], ['quiet'], ['again', 'third']]);
  gates[2]?.resolve();
  await Promise.all([second, third]);
  expect(batches).toHaveLength(3);
  gates[0]?.resolve();
  await Promise.all([first, ...flood]);
  expect(batches.slice(3).map(({ length }) => length)).toEqual([3, 3, 2]);
  expect(handledFor).toEqual(new Set([undefined]));
  await under.close();
});

test('while others publish, an organisation pauses after a large batch for as long as that batch took', async () => {
  const gates = [deferred(), deferred()];
  const { under, batches, publish } = await openGated(gates);
  const large = 'x'.repeat(2 ** 18);
  gates[0]?.resolve();
  await publish('quiet', 'quiet');
  const first = publish('flooding', `first${large}`);
  await until('the first batch', () => batches.length === 2);
  const startedAtMs = performance.now();
  await delay(50);
  gates[1]?.resolve();
  await first;
  const tookMs = performance.now() - startedAtMs;
  await publish('flooding', `after${large}`);
  expect(performance.now() - startedAtMs).toBeGreaterThan(1.8 * tookMs);
  await under.close();
});

test('no event is lost if organisations publish again at once after each answer', async () => {
  const { under, batches, publish } = await openGated([]);
  const again = async (organizationId: string) => {
    for (let time = 0; time < 300; time += 1) await publish(organizationId, 'again');
  };
  await Promise.all(['a', 'b', 'c'].map(again));
  expect(batches.flat()).toHaveLength(900);
  await under.close();
});
