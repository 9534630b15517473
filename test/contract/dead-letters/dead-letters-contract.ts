import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import {
  type DeadLetterQueue,
  type DeadLetterStep,
  type LogRecord,
  versionHeader,
} from '../../../infra/event-log/event-log.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { claimReplay, finishReplay } from '../../../pipelines/dead-letters/dead-letter-replays.ts';
import { attachmentEvents, feedbackEvents, runEvents, type Topic, topics } from '../../../schemas/topics.ts';

export interface DeadLettersUnderTest {
  readonly deadLetters: DeadLetterQueue;
  /** Contains the replays. */
  readonly database: Database;
  /** Stores an event in the dead-letter queue, as the log does. Resolves when it is durable. */
  store(topic: Topic, record: LogRecord, reason: string, step: DeadLetterStep): Promise<void>;
  close(): Promise<void>;
}

const all = { topics };
const bytes = Buffer.from([0, 0, 0, 0, 1, 255, 254, 0, 13, 10]);

/** Defines the contract tests of every dead-letter queue adapter. */
export function deadLettersContract(name: string, open: () => Promise<DeadLettersUnderTest>): void {
  describe(`dead-letter queue: ${name}`, () => {
    let underTest: DeadLettersUnderTest;
    let beforeMs: number;
    beforeAll(async () => {
      underTest = await open();
      expect(await underTest.deadLetters.list(all, 10)).toEqual([]);
      beforeMs = Date.now();
      for (const [index, topic] of [runEvents, runEvents, feedbackEvents, runEvents].entries()) {
        const record = {
          partition: index % 2,
          offset: 100 + index,
          key: `key ${index}`,
          value: bytes,
          headers: { n: `${index}` },
          version: BigInt(index + 1),
        };
        await underTest.store(topic, record, `reason ${index}`, index === 1 ? 'defer' : 'framing');
        // Records of the same millisecond have no order across topics and partitions.
        const after = Date.now();
        while (Date.now() === after);
      }
    }, 120_000);
    afterAll(() => underTest?.close());

    it('lists the newest first, with exactly the fields of a list', async () => {
      const heads = await underTest.deadLetters.list(all, 10);
      expect(heads.map(({ key }) => key)).toEqual(['key 3', 'key 2', 'key 1', 'key 0']);
      const { id, deadLetteredAtMs, ...head } = heads[2]!;
      expect(head).toEqual({
        topic: 'run-events',
        partition: 1,
        offset: 101,
        key: 'key 1',
        sizeBytes: bytes.length,
        reason: 'reason 1',
        step: 'defer',
      });
      expect(id).toMatch(/^run-events\//);
      expect(deadLetteredAtMs).toBeGreaterThanOrEqual(beforeMs - 1_000);
      expect(deadLetteredAtMs).toBeLessThanOrEqual(Date.now() + 1_000);
    });

    it.each([1, 2, 3])('lists at most %i', async (limit) => {
      const heads = await underTest.deadLetters.list(all, limit);
      expect(heads.map(({ key }) => key)).toEqual(['key 3', 'key 2', 'key 1'].slice(0, limit));
    });

    it('counts those of a topic', async () => {
      const counts = await Promise.all(
        [runEvents, feedbackEvents, attachmentEvents].map((topic) => underTest.deadLetters.countUnreplayed(topic)),
      );
      expect(counts).toEqual([3, 1, 0]);
    });

    it('counts those of a topic that were not replayed, also if some that were replayed do not exist', async () => {
      const ids = (await underTest.deadLetters.list(all, 10)).map(({ id }) => id);
      const others = [
        'run-events/999999',
        'run-events/0/999999',
        'run-events/99/0',
        'other/1',
        'feedback-events/1/2/3',
      ];
      const { database, deadLetters } = underTest;
      const replay = async (replayed: readonly string[]) => {
        for (const id of replayed) {
          expect(await claimReplay(database, id, false)).toBeUndefined();
          await finishReplay(database, id);
        }
      };
      await replay(others);
      await claimReplay(database, ids[0]!, false);
      expect(await deadLetters.countUnreplayed(runEvents)).toBe(3);
      await replay(ids.slice(1));
      expect(await deadLetters.countUnreplayed(runEvents)).toBe(1);
      expect(await deadLetters.countUnreplayed(feedbackEvents)).toBe(0);
      await database.execute('DELETE FROM dead_letter_replays');
    });

    it('filters by topic, step and time, both ends included', async () => {
      const keys = async (filter: object) =>
        (await underTest.deadLetters.list({ ...all, ...filter }, 10)).map(({ key }) => key);
      expect(await keys({ topics: [feedbackEvents] })).toEqual(['key 2']);
      expect(await keys({ step: 'defer' })).toEqual(['key 1']);
      expect(await keys({ step: 'nothing' })).toEqual([]);
      const [, third] = await underTest.deadLetters.list(all, 10);
      expect(await keys({ sinceMs: third?.deadLetteredAtMs })).toEqual(['key 3', 'key 2']);
      expect(await keys({ untilMs: third?.deadLetteredAtMs })).toEqual(['key 2', 'key 1', 'key 0']);
      expect(await keys({ untilMs: beforeMs - 60_000 })).toEqual([]);
    });

    it('finds one by its id, with the original bytes and headers, and its version as a header', async () => {
      const [newest] = await underTest.deadLetters.list(all, 1);
      const deadLetter = await underTest.deadLetters.find(String(newest?.id));
      expect(deadLetter).toEqual({ ...newest, value: bytes, headers: { n: '3', [versionHeader]: '4' } });
    });

    it('reads each of several ids once, and omits those without a record', async () => {
      const ids = (await underTest.deadLetters.list(all, 10)).map(({ id }) => id);
      const unknown = ['', 'run-events/999999', 'run-events/0/999999', 'other/0/1'];
      const read: string[] = [];
      await underTest.deadLetters.read([...unknown, ids[0]!, ids[0]!, ids[2]!, ids[1]!], async (record) => {
        expect(record).toEqual(await underTest.deadLetters.find(record.id));
        read.push(record.id);
      });
      expect(read.sort()).toEqual(ids.slice(0, 3).sort());
      await underTest.deadLetters.read(unknown, async ({ id }) => expect.unreachable(id));
      await underTest.deadLetters.read([], async ({ id }) => expect.unreachable(id));
    });

    it('stops reading at the first error of the caller', async () => {
      const ids = (await underTest.deadLetters.list(all, 10)).map(({ id }) => id);
      let calls = 0;
      const failure = runlakeError('REPLAY_UNCONFIRMED', { deadLetter: 'one', limitMs: 1 });
      const failing = underTest.deadLetters.read(ids, async () => {
        calls++;
        throw failure;
      });
      await expect(failing).rejects.toBe(failure);
      expect(calls).toBe(1);
    });

    it.each([
      '',
      'run-events',
      'run-events/999999',
      'run-events/0/999999',
      'other/1',
      'run-events/1/2/3',
      "run-events/1'",
      randomUUID(),
    ])('returns undefined for %o', async (id) => {
      expect(await underTest.deadLetters.find(id)).toBeUndefined();
    });
  });
}
