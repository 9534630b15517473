import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { buildWirePrefix } from '../../../infra/event-log/avro.ts';
import {
  type EventLog,
  getSinkGroup,
  type LogBatch,
  type LogMessage,
  type LogRecord,
  versionHeader,
} from '../../../infra/event-log/event-log.ts';
import { runEvents } from '../../../schemas/topics.ts';
import { deferred } from '../../infra/deferred.ts';
import { until } from '../../infra/until.ts';

/** An adapter on its real system, without data. */
export interface LogUnderTest {
  readonly log: EventLog;
  /** Opens the log as another process would after this one was killed; the log of this process is not closed. */
  reopened(): Promise<EventLog>;
  /** Dead-letter records with the original bytes, in the order in which they were stored. */
  deadLetters(): Promise<
    { readonly value: Buffer; readonly headers: unknown; readonly reason: string; readonly step: string }[]
  >;
  close(): Promise<void>;
}

const topic = runEvents;
const largeLimits = { rows: 1_000, bytes: 1_000_000 };

/** Defines the contract tests of every event log adapter. `open` creates a log with at least two partitions. */
export function eventLogContract(name: string, open: () => Promise<LogUnderTest>): void {
  describe(`the event log: ${name}`, () => {
    let under: LogUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    const message = (key: string, text = ''): LogMessage => ({
      key,
      value: Buffer.concat([buildWirePrefix(under.log.schemaId(topic)), Buffer.from(text)]),
      headers: { from: 'contract' },
    });
    const textOf = ({ value }: { readonly value: Buffer }) => value.subarray(5).toString();

    /** Subscribes a group and records its batches. */
    async function consume(
      handle: (batch: LogBatch) => Promise<void> = async () => {},
      limits = largeLimits,
      group = 'a',
    ) {
      const batches: LogBatch[] = [];
      await under.log.subscribe({
        topic,
        group,
        limits,
        handle: async (batch) => {
          batches.push(batch);
          await handle(batch);
        },
      });
      return { batches, records: () => batches.flatMap(({ records }) => records) };
    }

    test('every group gets every event, with unchanged key, bytes and headers', async () => {
      const [first, second] = [await consume(), await consume(undefined, largeLimits, 'b')];
      await under.log.publish(topic, [message('one', 'x\u0000é'), message('two', '')]);
      for (const { records } of [first, second]) {
        await until('the events', () => records().length === 2);
        expect(
          records()
            .map(({ key }) => key)
            .sort(),
        ).toEqual(['one', 'two']);
        const one = records().find(({ key }) => key === 'one');
        expect(one).toMatchObject({ headers: { from: 'contract' } });
        expect(one && textOf(one)).toBe('x\u0000é');
      }
    });

    test('events of a key keep their order and their partition with many concurrent publishers', async () => {
      const { records } = await consume();
      const keys = Array.from({ length: 20 }, (_, index) => `key ${index}`);
      for (let round = 0; round < 5; round++) {
        await Promise.all(
          keys.map((key) => under.log.publish(topic, [message(key, `${round} a`), message(key, `${round} b`)])),
        );
      }
      await until('the events', () => records().length === 200);
      const expected = Array.from({ length: 5 }, (_, round) => [`${round} a`, `${round} b`]).flat();
      for (const key of keys) {
        const own = records().filter((each) => each.key === key);
        expect(own.map(textOf)).toEqual(expected);
        expect(new Set(own.map(({ partition }) => partition)).size).toBe(1);
        expect(own.map(({ offset }) => offset)).toEqual([...own.map(({ offset }) => offset)].sort((a, b) => a - b));
      }
      expect(new Set(records().map(({ partition }) => partition)).size).toBeGreaterThan(1);
    });

    test('a batch has one partition, in order, within the limits of its group; a larger event is delivered alone', async () => {
      const limits = { rows: 3, bytes: 1_000 };
      const { batches, records } = await consume(undefined, limits);
      await Promise.all(
        Array.from({ length: 40 }, (_, index) =>
          under.log.publish(topic, [message(`key ${index % 7}`, 'x'.repeat(index % 5 === 0 ? 1_500 : 400))]),
        ),
      );
      await until('the events', () => records().length === 40);
      for (const { partition, records: own } of batches) {
        expect(own.every((each) => each.partition === partition)).toBe(true);
        expect(own.length).toBeLessThanOrEqual(limits.rows);
        const bytes = own.reduce((sum, { value }) => sum + value.length, 0);
        expect(own.length === 1 || bytes <= limits.bytes).toBe(true);
      }
    });

    test('a partition delivers one batch at a time', async () => {
      const busy = new Set<number>();
      let overlaps = 0;
      const { records } = await consume(
        async ({ partition }) => {
          if (busy.has(partition)) overlaps++;
          busy.add(partition);
          await new Promise((resolve) => setImmediate(resolve));
          busy.delete(partition);
        },
        { rows: 2, bytes: 10_000 },
      );
      await Promise.all(Array.from({ length: 50 }, (_, index) => under.log.publish(topic, [message(`key ${index}`)])));
      await until('the events', () => records().length === 50);
      expect(overlaps).toBe(0);
    });

    test('a rejected batch is delivered again, before later events of its partition', async () => {
      let failures = 1;
      const stored: string[] = [];
      const { batches } = await consume(async (batch) => {
        if (failures-- > 0) throw new Error('not now');
        stored.push(...batch.records.map(textOf));
      });
      await under.log.publish(topic, [message('one', 'first')]);
      await until('the event to be rejected', () => batches.length > 0);
      await under.log.publish(topic, [message('one', 'second')]);
      await until('both', () => stored.length === 2);
      expect(stored).toEqual(['first', 'second']);
    });

    test('an empty batch has no effect', async () => {
      const { batches } = await consume();
      await under.log.publish(topic, []);
      await under.log.publish(topic, [message('one')]);
      await until('an event', () => batches.length > 0);
      expect(batches.flatMap(({ records }) => records)).toHaveLength(1);
    });

    test('close finishes accepted events and refuses new ones', async () => {
      const { promise: gate, resolve: release } = deferred();
      const { records } = await consume(() => gate);
      const published = under.log.publish(topic, [message('one')]);
      await until('the event to be handled', () => records().length === 1);
      const closed = under.log.close();
      await expect(under.log.publish(topic, [message('two')])).rejects.toMatchObject({ code: 'DRAINING' });
      await expect(under.log.check()).rejects.toMatchObject({ code: 'DRAINING' });
      release();
      await Promise.all([published, closed]);
    });

    test('a dead-letter record keeps bytes, headers and reason, once', async () => {
      const { records } = await consume();
      await under.log.publish(topic, [message('one', 'poison\u0000')]);
      await until('the event', () => records().length === 1);
      const [record] = records();
      if (record === undefined) throw new Error('no record');
      for (let time = 0; time < 2; time++) await under.log.deadLetter(topic, record, 'a reason', 'walk');
      const deadLetters = await under.deadLetters();
      expect(deadLetters).toMatchObject([{ reason: 'a reason', step: 'walk', headers: { from: 'contract' } }]);
      expect(deadLetters[0]?.value.equals(record.value)).toBe(true);
    });

    test('an event whose handler was killed is delivered again', async () => {
      const { records } = await consume(() => Promise.reject(new Error('killed here')));
      await under.log.publish(topic, [message('one', 'x\u0000é')]);
      await until('the event', () => records().length > 0);
      const reopened = await under.reopened();
      await under.log.close();
      const again: LogRecord[] = [];
      await reopened.subscribe({
        topic,
        group: 'a',
        limits: largeLimits,
        handle: async (batch) => void again.push(...batch.records),
      });
      await until('the event to be delivered again', () => again.length > 0);
      expect(again[0]).toEqual(records()[0]);
      await reopened.close();
    });

    test('versions rise with the offsets of a key, and a given version is kept', async () => {
      const { records } = await consume();
      await under.log.publish(topic, [message('key', 'one'), message('key', 'two')]);
      await under.log.publish(topic, [message('key', 'three')]);
      await under.log.publish(topic, [{ ...message('key', 'old'), headers: { [versionHeader]: '17' } }]);
      await until('four events', () => records().length === 4);
      const versions = records().map(({ version }) => version);
      expect(versions.slice(0, 3)).toEqual([...new Set(versions.slice(0, 3))].sort((a, b) => (a < b ? -1 : 1)));
      expect(versions[3]).toBe(17n);
      const minuteMs = 60_000;
      expect(Math.abs(Number(versions[0]! >> 22n) - Date.now())).toBeLessThan(5 * minuteMs);
    });

    test('a position is reported as stored once everything published before it is stored', async () => {
      const beginning = await under.log.position(topic);
      expect(await under.log.isStored(topic, beginning)).toBe(true);
      const { promise: held, resolve: resume } = deferred();
      const { records } = await consume(() => held, largeLimits, getSinkGroup(topic));
      const published = under.log.publish(topic, [message('one'), message('two'), message('three')]);
      await until('an event', () => records().length > 0);
      const position = JSON.parse(JSON.stringify(await under.log.position(topic)));
      expect(await under.log.isStored(topic, position)).toBe(false);
      resume();
      await published;
      await until('all to be stored', () => under.log.isStored(topic, position));
      expect(await under.log.isStored(topic, beginning)).toBe(true);
    });

    /** Follows the topic without a group and records what it receives. */
    async function follow(options: { readonly sinceMs?: number; readonly failOnText?: string } = {}) {
      const records: LogRecord[] = [];
      const follower = await under.log.follow(topic, {
        ...(options.sinceMs === undefined ? {} : { sinceMs: options.sinceMs }),
        onRecords: (receivedRecords) => {
          records.push(...receivedRecords);
          if (receivedRecords.some((each) => textOf(each) === options.failOnText)) throw new Error('a bug');
        },
      });
      return { follower, records, texts: () => records.map(textOf) };
    }

    test('a follower receives published events while the groups are stuck, in order, with the same offsets as the groups', async () => {
      const { promise: held, resolve: resume } = deferred();
      const { records } = await consume(() => held);
      const { records: seen } = await follow({ failOnText: '0' });
      const published = Array.from({ length: 30 }, (_, index) =>
        under.log.publish(topic, [message(`key ${index % 3}`, String(index)), message('same', String(index))]),
      );
      await until('the follower', () => seen.length === 60);
      resume();
      await Promise.all(published);
      await until('the group', () => records().length === 60);
      const pickLocation = ({ partition, offset, key, value }: LogRecord) => ({ partition, offset, key, value });
      for (const partition of [0, 1, 2, 3]) {
        const own = (all: readonly LogRecord[]) => all.filter((each) => each.partition === partition).map(pickLocation);
        expect(own(seen)).toEqual(own(records()));
      }
      const same = seen.filter(({ key }) => key === 'same').map(textOf);
      expect(same).toEqual(Array.from({ length: 30 }, (_, index) => String(index)));
      expect(seen.every(({ headers }) => headers.from === 'contract')).toBe(true);
    });

    test('a follower starts as far back as the log keeps events, reports that position, and closes independently of others', async () => {
      await consume(undefined, largeLimits, getSinkGroup(topic));
      await under.log.publish(topic, [message('one', 'first'), message('two', 'second')]);
      const [back, now] = [await follow({ sinceMs: 60_000 }), await follow()];
      // In a log that does not retain events, every follower starts at the log-end offset.
      expect([[], ['first', 'second']]).toContainEqual(back.texts().toSorted());
      expect(now.texts()).toEqual([]);
      const position = await under.log.position(topic);
      await until(
        'both to have passed it',
        () => back.follower.hasDelivered(position) && now.follower.hasDelivered(position),
      );
      await until('the rest to be stored', () => under.log.isStored(topic, now.follower.from));
      await back.follower.close();
      const before = back.records.length;
      await under.log.publish(topic, [message('one', 'third')]);
      await until('the other one', () => now.texts().includes('third'));
      expect(back.records).toHaveLength(before);
      const third = now.records.at(-1) as LogRecord;
      expect(third.offset).toBeGreaterThanOrEqual(now.follower.from[third.partition] as number);
      await now.follower.close();
    });

    test('the publisher is notified when its events have their offsets, at the latest with the answer', async () => {
      await consume();
      const notified: string[] = [];
      await under.log.publish(topic, [message('one')], () => notified.push('placed'));
      notified.push('answered');
      expect(notified).toEqual(['placed', 'answered']);
      await under.log.close();
      const late = under.log.publish(topic, [message('one')], () => notified.push('never'));
      await expect(late).rejects.toMatchObject({ code: 'DRAINING' });
      await expect(follow()).rejects.toMatchObject({ code: 'DRAINING' });
      expect(notified).toHaveLength(2);
    });

    test('a known schema id resolves to its schema, and an unknown one to undefined', async () => {
      const id = under.log.schemaId(topic);
      expect(JSON.parse((await under.log.getSchema(id)) ?? '{}')).toMatchObject({
        name: JSON.parse(topic.schema).name,
      });
      expect(await under.log.getSchema(id + 100_000)).toBeUndefined();
    });
  });
}
