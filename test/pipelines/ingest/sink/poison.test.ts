import { randomUUID } from 'node:crypto';
import { describe, expect, onTestFinished, test } from 'vitest';
import { computeRecordVersion } from '../../../../infra/event-log/event-log.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { forSuite } from '../../../for-suite.ts';
import { noonMicros, runEvent } from '../../runs/run-events.ts';
import { openDrivenSink, toRecordsAtOffset } from './driven-sink.ts';
import { garbled, poisonCases } from './poison-cases.ts';
import { framed, openSink, toLogMessage } from './sink-under-test.ts';

const under = forSuite(() => openSink());

const readDeadLetters = () =>
  under.stores.database.query<{ value: Buffer; headers: unknown; reason: string; step: string }>(
    'SELECT value, headers, reason, step FROM dead_letters',
  );

describe('a record that can never be stored goes to the dead-letter queue alone', () => {
  test.each(poisonCases)('%s', async (_what, step, make) => {
    await under.stores.database.query('DELETE FROM dead_letters');
    const [before, after] = [runEvent(), runEvent()];
    const poison = make(runEvent({ values: { name: 'poison' } }));
    await under.publish(before, poison, after);
    const [deadLetter, ...others] = await readDeadLetters();
    expect(others).toEqual([]);
    expect(deadLetter).toMatchObject({ step, headers: { from: 'test' } });
    expect(deadLetter?.value.equals(poison), 'its bytes are unchanged').toBe(true);
    expect(deadLetter?.reason).not.toBe('');
    const stored = await under.rows<{ id: string }>('SELECT id FROM runs');
    expect(stored.map(({ id }) => id)).toEqual(expect.arrayContaining([before.runId, after.runId]));
  });

  test('many poison records among many others: each is found, in one batch', async () => {
    await under.stores.database.query('DELETE FROM dead_letters');
    const events = Array.from({ length: 200 }, (_, index) => runEvent({ startTimeMicros: noonMicros + index }));
    const bad = new Set([0, 7, 8, 99, 199]);
    await under.publish(
      ...events.map((event, index) => (bad.has(index) ? framed({ ...event, userId: garbled }) : event)),
    );
    expect(await readDeadLetters()).toHaveLength(bad.size);
    const ids = new Set((await under.rows<{ id: string }>('SELECT id FROM runs')).map(({ id }) => id));
    expect(events.filter(({ runId }) => ids.has(runId))).toHaveLength(events.length - bad.size);
  });
});

test('a poison record that was moved to the location of its trace keeps its original bytes in the dead-letter queue', async () => {
  await under.stores.database.query('DELETE FROM dead_letters');
  const root = runEvent();
  const elsewhere = runEvent({ traceId: root.traceId, traceTimeMicros: noonMicros + 7, projectId: randomUUID() });
  const poison = framed({ ...elsewhere, userId: garbled });
  await under.publish(root, poison);
  const deadLetters = await readDeadLetters();
  expect(deadLetters).toMatchObject([{ step: 'insert' }]);
  expect(deadLetters[0]?.value.equals(poison)).toBe(true);
});

test('a batch of poison records only is acknowledged', async () => {
  await under.stores.database.query('DELETE FROM dead_letters');
  await under.publish(Buffer.from('no'), framed(runEvent({ userId: garbled })));
  expect(await readDeadLetters()).toHaveLength(2);
});

test('a poison record without a project is not deferred', async () => {
  await under.stores.database.query('DELETE FROM dead_letters');
  const nil = '00000000-0000-0000-0000-000000000000';
  await under.publish(framed(runEvent({ projectId: nil, traceId: garbled, runId: randomUUID() })));
  expect(await readDeadLetters()).toMatchObject([{ step: 'key' }]);
  expect(await under.stores.database.query('SELECT FROM deferred_events')).toEqual([]);
});

test('very many refused records: the inserts are bounded, and no record is lost', async () => {
  await under.stores.database.query('DELETE FROM dead_letters');
  const insertsBefore = under.inserts.length;
  const good = Array.from({ length: 200 }, (_, index) => runEvent({ startTimeMicros: noonMicros + index }));
  const bad = Array.from({ length: 3_000 }, () => framed(runEvent({ userId: garbled })));
  await under.publish(...good, ...bad);
  expect(under.inserts.length - insertsBefore).toBeLessThan(800);
  const deadLetters = await readDeadLetters();
  const put = new Set(deadLetters.map(({ value }) => value.toString('latin1')));
  expect(bad.every((value) => put.has(value.toString('latin1')))).toBe(true);
  // Records that were in the same bisected range as refused records are stored too, and can be replayed.
  const ids = new Set((await under.rows<{ id: string }>('SELECT id FROM runs')).map(({ id }) => id));
  expect(good.every((event) => ids.has(event.runId) || put.has(framed(event).toString('latin1')))).toBe(true);
  expect(deadLetters.length - bad.length).toBeLessThan(100);
  expect(deadLetters.some(({ reason }) => /one of \d+ records that were inserted together/.test(reason))).toBe(true);
});

test('a refused record of a full batch is isolated, also with the last ones of a batch', async () => {
  await under.stores.database.query('DELETE FROM dead_letters');
  const events = Array.from({ length: 2_000 }, (_, index) => runEvent({ startTimeMicros: noonMicros + index }));
  const bad = new Set([3, 1_000, 1_999]);
  await under.publish(
    ...events.map((event, index) => (bad.has(index) ? framed({ ...event, userId: garbled }) : event)),
  );
  expect(await readDeadLetters()).toHaveLength(bad.size);
});

test('a run is as new as the time of its acceptance allows, also if the clock of the sink is behind', async () => {
  const sink = await openDrivenSink({ stores: under.stores });
  onTestFinished(() => sink.close());
  await under.stores.database.query('DELETE FROM dead_letters');
  const laterMs = Date.now() + 5 * 86_400_000;
  const [good, poison] = [
    runEvent({ startTimeMicros: laterMs * 1_000 }),
    runEvent({ startTimeMicros: laterMs * 1_000 }),
  ];
  const [accepted, early] = toRecordsAtOffset(1, [good, poison].map(toLogMessage));
  const version = computeRecordVersion(laterMs, 1, {});
  await sink.deliver(runEvents, [{ ...accepted!, version }, early!]);
  const rows = await under.rows<{ id: string }>(`SELECT id FROM runs FINAL WHERE start_time > now() + INTERVAL 4 DAY`);
  expect(rows).toEqual([{ id: good.runId }]);
  expect(await readDeadLetters()).toMatchObject([{ step: 'key', value: framed(poison) }]);
});
