/** A client that did not receive the response sends its event again; the repeat must not override newer events. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { LogRecord } from '../../../../infra/event-log/event-log.ts';
import { nilUuid, type RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { RecentEvents, repeatWindowMicros } from '../../../../pipelines/ingest/sink/recent-events.ts';
import { deriveUuid, json, otherProjectId, projectId, runEvent } from '../../runs/run-events.ts';
import { framed, openSink, type SinkUnderTest } from './sink-under-test.ts';

const post = runEvent({ values: { inputs: json('in') } });
const patch = (outputs: string, changes: Partial<RunEvent> = {}): RunEvent => ({
  ...post,
  kind: 'patch',
  projectId: nilUuid,
  receivedAtMicros: post.receivedAtMicros + 1_000,
  values: { outputs: json(outputs), endedAtMicros: post.startTimeMicros + 5 },
  ...changes,
});
/** Returns the same request, accepted a second time, possibly by another API process. */
const again = (event: RunEvent, seconds = 1): RunEvent => ({
  ...event,
  receivedAtMicros: event.receivedAtMicros + seconds * 1_000_000,
});

describe('repeats in the sink', () => {
  let under: SinkUnderTest;
  beforeEach(async () => {
    under = await openSink();
  });
  afterEach(() => under.close());

  const read = async () => {
    const [row] = await under.rows<{ inputs: string; outputs: string }>(
      `SELECT inputs, outputs FROM runs FINAL WHERE id = '${post.runId}'`,
    );
    return row;
  };

  test.each<[string, RunEvent[][]]>([
    ['in separate batches', [[post], [patch('v1')], [patch('v2')], [again(patch('v1'))]]],
    ['all in one batch', [[post, patch('v1'), patch('v2'), again(patch('v1'))]]],
    [
      'many times',
      [[post, patch('v1'), patch('v2')], [again(patch('v1')), again(patch('v1'), 2)], [again(patch('v1'), 9)]],
    ],
    [
      'accepted by a process that names the project',
      [[post, patch('v1'), patch('v2')], [again(patch('v1', { projectId }))]],
    ],
    ['of a trace that was unknown at first', [[patch('v1'), patch('v2')], [again(patch('v1'))], [post]]],
    ['of a trace that became known meanwhile', [[patch('v1'), patch('v2')], [post], [again(patch('v1'))]]],
  ])('v1, v2 and a repeat of v1 result in v2: %s', async (_what, batches) => {
    for (const batch of batches) await under.publish(...batch);
    expect(await read()).toEqual({ inputs: '"in"', outputs: '"v2"' });
    expect(await under.stores.database.query('SELECT 1 FROM deferred_events')).toEqual([]);
  });

  test('a repeated post does not override a newer post', async () => {
    await under.publish(post, { ...post, values: { inputs: json('newer') } });
    await under.publish(again(post));
    expect(await read()).toMatchObject({ inputs: '"newer"' });
  });

  test.each<[string, RunEvent]>([
    ['another end', patch('v1', { values: { outputs: json('v1'), endedAtMicros: post.startTimeMicros + 6 } })],
    ['another key', again(patch('v1', { keyId: deriveUuid('another key') }))],
    ['sent after the window', again(patch('v1'), repeatWindowMicros / 1_000_000 + 1)],
  ])('v1 sent on purpose is a new patch: %s', async (_what, event) => {
    await under.publish(post, patch('v1'), patch('v2'), event);
    expect(await read()).toMatchObject({ outputs: '"v1"' });
  });

  test('an event whose first batch failed is not a repeat', async () => {
    await under.publish(post);
    under.aroundNextInsert(async () => {
      throw new Error('ClickHouse is away');
    });
    await expect(under.publish(patch('v1'))).rejects.toMatchObject({ code: 'EVENT_LOG_UNAVAILABLE' });
    await under.publish(again(patch('v1')));
    expect(await read()).toMatchObject({ outputs: '"v1"' });
  });

  test('a new process does not know what was stored before: the repeat is the newest event', async () => {
    await under.publish(post, patch('v1'), patch('v2'));
    under = await under.restarted();
    await under.publish(again(patch('v1')));
    expect(await read()).toMatchObject({ outputs: '"v1"' });
  });

  test('events of another workspace or trace location are not repeats', async () => {
    const other = { ...post, tenantId: deriveUuid('another tenant'), projectId: otherProjectId };
    await under.publish(post, again(other));
    const rows = await under.rows(`SELECT DISTINCT tenant_id FROM runs WHERE id = '${post.runId}'`);
    expect(rows).toHaveLength(2);
  });
});

describe('recent events', () => {
  const makeRecord = (event: RunEvent, offset: number, partition = 0): { record: LogRecord } => ({
    record: { partition, offset, key: 'k', value: framed(event), headers: {}, version: 1n },
  });
  const none = new Set<LogRecord>();
  const check = (recent: RecentEvents, event: { record: LogRecord }) => recent.removeRepeats([event]).repeats === 1;

  test('do not treat a redelivered event or a replayed dead-letter record as a repeat', () => {
    const recent = new RecentEvents();
    recent.removeRepeats([makeRecord(patch('v1'), 7)]).remember(none);
    expect(check(recent, makeRecord(patch('v1'), 7))).toBe(false);
    expect(check(recent, makeRecord(patch('v1'), 9))).toBe(false);
    expect(check(recent, makeRecord(again(patch('v1')), 9))).toBe(true);
    expect(check(recent, makeRecord(again(patch('v1')), 6))).toBe(false);
    expect(check(recent, makeRecord(again(patch('v1')), 9, 1))).toBe(false);
  });

  test('do not change the bytes of an event, and forget a refused event', () => {
    const recent = new RecentEvents();
    const event = makeRecord(patch('v1', { projectId }), 7);
    const before = Buffer.from(event.record.value);
    recent.removeRepeats([event]).remember(new Set([event.record]));
    expect(event.record.value).toEqual(before);
    expect(check(recent, makeRecord(again(patch('v1')), 9))).toBe(false);
  });

  test('are bounded: at least the last events are remembered, and at most twice as many', () => {
    const recent = new RecentEvents(400);
    const some = 100;
    const events = (name: string) =>
      Array.from({ length: some }, (_, index) => makeRecord(patch(`${name} ${index}`), index + 1));
    const first = events('0');
    recent.removeRepeats(first).remember(none);
    const repeats = () => recent.removeRepeats([makeRecord(again(patch('0 0')), some + 1)]).repeats;
    for (let round = 1; round < 4; round++) recent.removeRepeats(events(`${round}`)).remember(none);
    expect(repeats()).toBe(1);
    for (let round = 4; round < 9; round++) recent.removeRepeats(events(`${round}`)).remember(none);
    expect(repeats()).toBe(0);
  });
});
