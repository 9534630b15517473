import { randomUUID } from 'node:crypto';
import { beforeEach, describe, expect, it } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import {
  computeRecordVersion,
  type DeadLetterRecord,
  type DeadLetterStep,
} from '../../../infra/event-log/event-log.ts';
import { openPostgresDeadLetterQueue } from '../../../infra/event-log/in-process/dead-letter-queue.ts';
import {
  claimReplay,
  countReplays,
  countUnreplayedDeadLetters,
  readReplayTimes,
} from '../../../pipelines/dead-letters/dead-letter-replays.ts';
import { type ReplayDeps, replayDeadLetter } from '../../../pipelines/dead-letters/replay-dead-letter.ts';
import type { RunEvent } from '../../../pipelines/ingest/run-event/run-event.ts';
import { feedbackEvents, runEvents, type Topic, topics } from '../../../schemas/topics.ts';
import { forSuite } from '../../for-suite.ts';
import { framed, openSink } from '../ingest/sink/sink-under-test.ts';
import { json, noonMicros, runEvent } from '../runs/run-events.ts';

const under = forSuite(() => openSink());
let deps: ReplayDeps;
let published: DeadLetterRecord[];
beforeEach(() => {
  published = [];
  const { database } = under.stores;
  deps = {
    database,
    getSchema: async (id) => topics[id - 1]?.schema,
    publish: async (deadLetter) => {
      published.push(deadLetter);
      const topic = topics.find(({ name }) => name === deadLetter.topic) as Topic;
      await under.log.publish(topic, [deadLetter]);
    },
  };
});

let offset = 0;

/** Stores bytes in the dead-letter queue as the sink does, and returns the record that it reads back. */
async function storeDeadLetter(
  value: Buffer,
  { topic = runEvents, step = 'insert' as DeadLetterStep, acceptedAtMs = Date.now() } = {},
): Promise<DeadLetterRecord> {
  offset += 1;
  const version = computeRecordVersion(acceptedAtMs, offset, {});
  const record = { partition: 0, offset, key: 'the key', value, headers: { from: 'a test' }, version };
  await under.log.deadLetter(topic, record, 'a reason', step);
  const deadLetters = openPostgresDeadLetterQueue(under.stores.database);
  const [head] = await deadLetters.list({ topics: [topic] }, 1);
  return (await deadLetters.find(String(head?.id))) as DeadLetterRecord;
}

const at = (seconds: number) => noonMicros + seconds * 1_000_000;

function makeEvent(receivedAtMicros: number, more: Partial<RunEvent> = {}): RunEvent {
  const runId = randomUUID();
  return runEvent({ runId, traceId: runId, receivedAtMicros, ...more });
}

const nameOf = async (runId: string) =>
  (await under.rows<{ name: string }>(`SELECT name FROM runs FINAL WHERE id = '${runId}'`))[0]?.name;

describe('a dead-letter record', () => {
  it('is republished once, with its original key, bytes and headers', async () => {
    const event = makeEvent(at(0), { values: { name: 'from the letter' } });
    const deadLetter = await storeDeadLetter(framed(event));
    const topic = topics.find(({ name }) => name === deadLetter.topic) as Topic;
    const waiting = async () =>
      (await countUnreplayedDeadLetters(openPostgresDeadLetterQueue(deps.database), [topic]))[0]?.value ?? 0;
    const before = await waiting();
    expect(await replayDeadLetter(deadLetter, deps, { force: false })).toEqual({ outcome: 'replayed' });
    expect(await waiting()).toBe(before - 1);
    expect(published).toEqual([deadLetter]);
    expect(deadLetter).toMatchObject({ key: 'the key', headers: { from: 'a test' } });
    expect(await nameOf(event.runId)).toBe('from the letter');
    expect([...(await readReplayTimes(deps.database, [deadLetter.id])).keys()]).toEqual([deadLetter.id]);

    const again = await replayDeadLetter(deadLetter, deps, { force: false });
    expect(again).toEqual({ outcome: 'refused', reason: expect.stringMatching(/^it was replayed at 20/) });
    expect(await replayDeadLetter(deadLetter, deps, { force: true })).toEqual({ outcome: 'replayed' });
    expect(published).toHaveLength(2);
  });

  it('of Kafka is counted as replayed only while the topic has its offset', async () => {
    const { database } = deps;
    const ofKafka = ['0/4', '0/5', '0/10', '1/7', '11/7', '1/8'].map((id) => `${feedbackEvents.name}/${id}`);
    // Replays of an in-process log, and of another topic.
    const ids = [...ofKafka, `${feedbackEvents.name}/6`, `${runEvents.name}/0/6`];
    for (const id of ids) expect(await claimReplay(database, id, false)).toBeUndefined();
    const ranges = [
      { partition: 0, low: 5, high: 10 },
      { partition: 1, low: 0, high: 100 },
    ];
    expect(await countReplays(database, feedbackEvents, ranges)).toBe(0);
    await database.execute('UPDATE dead_letter_replays SET replayed_at = now() WHERE dead_letter_id = ANY($1)', [ids]);
    expect(await countReplays(database, feedbackEvents, ranges)).toBe(3);
    expect(await countReplays(database, runEvents, ranges)).toBe(1);
  });

  it('waits also if others that were replayed no longer exist', async () => {
    const { database } = deps;
    const waiting = () => countUnreplayedDeadLetters(openPostgresDeadLetterQueue(database), [runEvents]);
    const deadLetter = await storeDeadLetter(framed(makeEvent(at(0))));
    expect(await replayDeadLetter(deadLetter, deps, { force: false })).toEqual({ outcome: 'replayed' });
    await database.execute('DELETE FROM dead_letters');
    await storeDeadLetter(Buffer.from('not in the wire format'));
    expect(await waiting()).toEqual([{ labels: { topic: runEvents.name }, value: 1 }]);
  });

  it.each(['insert', 'defer'] as const)('of step %s keeps its version: newer values of its run stay', async (step) => {
    const event = makeEvent(at(10));
    const older = { ...event, values: { name: 'older', inputs: json('of the letter') } };
    const deadLetter = await storeDeadLetter(framed(older), { step, acceptedAtMs: Date.now() - 60_000 });
    await under.publish({ ...event, receivedAtMicros: at(20), values: { name: 'newer' } });
    for (const force of [false, true]) {
      expect(await replayDeadLetter(deadLetter, deps, { force })).toEqual({ outcome: 'replayed' });
      expect(await nameOf(event.runId)).toBe('newer');
    }
    const [run] = await under.rows(`SELECT inputs FROM runs FINAL WHERE id = '${event.runId}'`);
    expect(run).toEqual({ inputs: '"of the letter"' });
  });

  it('replaces the older values of its run', async () => {
    const event = makeEvent(at(30));
    await under.publish({ ...event, values: { name: 'older' } });
    const newer = { ...event, values: { name: 'of the letter' } };
    const deadLetter = await storeDeadLetter(framed(newer), { acceptedAtMs: Date.now() + 60_000 });
    expect(await replayDeadLetter(deadLetter, deps, { force: false })).toEqual({ outcome: 'replayed' });
    expect(await nameOf(event.runId)).toBe('of the letter');
  });

  it.each<[string, Buffer]>([
    ['no bytes', Buffer.alloc(0)],
    ['bytes that are no record', Buffer.from('not in the wire format')],
    ['an unknown schema', Buffer.concat([Buffer.from([0, 0, 0, 9, 9]), Buffer.from('x')])],
    ['a record that ends early', framed(makeEvent(at(0))).subarray(0, 80)],
  ])('of %s is refused, because it would fail again', async (_what, value) => {
    const deadLetter = await storeDeadLetter(value, { step: 'framing' });
    const refused = await replayDeadLetter(deadLetter, deps, { force: false });
    expect(refused).toEqual({ outcome: 'refused', reason: expect.stringContaining('cannot be read') });
    expect(published).toEqual([]);
  });

  it('releases its claim if the log refuses, and keeps it if the outcome is unknown', async () => {
    const deadLetter = await storeDeadLetter(framed(makeEvent(at(0))));
    const createRefusingDeps = (code: 'EVENT_LOG_UNAVAILABLE' | 'REPLAY_UNCONFIRMED') => ({
      ...deps,
      publish: async () => {
        throw runlakeError(code);
      },
    });
    const unforced = { force: false };
    await expect(replayDeadLetter(deadLetter, createRefusingDeps('EVENT_LOG_UNAVAILABLE'), unforced)).rejects.toThrow(
      'did not acknowledge',
    );
    await expect(replayDeadLetter(deadLetter, createRefusingDeps('REPLAY_UNCONFIRMED'), unforced)).rejects.toThrow(
      'did not confirm',
    );
    const reason = expect.stringContaining('its outcome is unknown');
    expect(await replayDeadLetter(deadLetter, deps, unforced)).toEqual({ outcome: 'refused', reason });
  });

  it('is replayed by one of two concurrent commands', async () => {
    const deadLetter = await storeDeadLetter(framed(makeEvent(at(0))));
    const both = await Promise.all([1, 2].map(() => replayDeadLetter(deadLetter, deps, { force: false })));
    expect(both.map(({ outcome }) => outcome).sort()).toEqual(['refused', 'replayed']);
  });
});
