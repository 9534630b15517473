/** Events of one run with different key times are stored as one run. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { LogRecord } from '../../../../infra/event-log/event-log.ts';
import {
  nilUuid,
  type RunEvent,
  readStartTimeMicros,
  readTraceKey,
} from '../../../../pipelines/ingest/run-event/run-event.ts';
import { KeyTimes } from '../../../../pipelines/ingest/sink/assign-key-times.ts';
import { locateRun } from '../../../../pipelines/runs/locate-run.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { deriveUuid, json, noonMicros, otherProjectId, runEvent, tenantId } from '../../runs/run-events.ts';
import { openDrivenSink, toRecordsAtOffset } from './driven-sink.ts';
import { openSink, type SinkUnderTest, toLogMessage } from './sink-under-test.ts';

let under: SinkUnderTest;
beforeEach(async () => {
  under = await openSink();
});
afterEach(() => under.close());

const post = runEvent({ values: { inputs: json('in') } });
const later = (event: RunEvent, micros: number): RunEvent => ({
  ...event,
  startTimeMicros: event.startTimeMicros + micros,
  receivedAtMicros: event.receivedAtMicros + micros,
});
const otherPost: RunEvent = later({ ...post, values: { extra: json({ second: true }) } }, 1_000);
const patch: RunEvent = later({ ...post, kind: 'patch', values: { outputs: json('out') } }, 5_000_000);
const patchWithoutProject: RunEvent = { ...patch, projectId: nilUuid };
const sibling = runEvent({ traceId: post.traceId });

const read = () =>
  under.rows<Record<'micros' | 'inputs' | 'outputs', unknown>>(
    `SELECT toUnixTimestamp64Micro(start_time) AS micros, inputs, outputs
     FROM runs FINAL WHERE id = '${post.runId}'`,
  );
const whole = (micros: number) => [{ micros, inputs: '"in"', outputs: '"out"' }];

test.each<[string, RunEvent[][], number]>([
  ['a patch after its post', [[post], [patch]], post.startTimeMicros],
  ['both in one batch', [[post, patch]], post.startTimeMicros],
  ['a patch before its post', [[patch], [post]], patch.startTimeMicros],
  ['two posts', [[post], [otherPost], [patch]], post.startTimeMicros],
  ['two posts in one batch', [[otherPost, post, patch]], otherPost.startTimeMicros],
  ['a deferred patch', [[patchWithoutProject], [post]], post.startTimeMicros],
])('%s with another time are one run with the first time', async (_what, batches, micros) => {
  for (const batch of batches) await under.publish(...batch);
  expect(await read()).toEqual(whole(micros));
  expect(await locateRun(under.stores.clickhouse, tenantId, post.runId)).toMatchObject({ startTimeMicros: micros });
});

test.each<[string, RunEvent[], RunEvent[]]>([
  ['a patch', [post], [patch]],
  ['a second post', [otherPost, patch], [post]],
  ['a post after its patch and another run of the trace', [patch], [sibling, post]],
])('a new process finds the stored time of a run: %s', async (_what, before, after) => {
  await under.publish(...before);
  under = await under.restarted();
  for (const event of after) await under.publish(event);
  expect(await read()).toEqual(whole(before[0]?.startTimeMicros as number));
});

test('a run of another trace or workspace keeps its time', async () => {
  const others = [
    later({ ...post, traceId: deriveUuid('another trace') }, 7),
    later({ ...post, tenantId: deriveUuid('another tenant') }, 8),
  ];
  await under.publish(post, ...others);
  under = await under.restarted();
  await under.publish(...others.map((event): RunEvent => ({ ...event, kind: 'patch' })));
  const rows = await under.rows<{ offset: number }>(
    `SELECT toUnixTimestamp64Micro(start_time) - ${noonMicros} AS offset FROM runs FINAL WHERE id = '${post.runId}' ORDER BY 1`,
  );
  expect(rows.map(({ offset }) => offset)).toEqual([0, 7, 8]);
});

test.each([
  ['in the next batch', [1, 2]],
  ['in the same batch', [2]],
])('a sink that moves a trace finds the stored times of its runs: %s', async (_what, ends) => {
  const inOtherProject = { ...sibling, projectId: otherProjectId };
  const log = toRecordsAtOffset(1, [inOtherProject, otherPost, post].map(toLogMessage));
  const [stored, ...others] = [log[2], log[0], log[1]] as const;
  const sinks = [];
  for (let sink = 0; sink < 2; sink++) sinks.push(await openDrivenSink({ stores: under.stores, isShared: true }));
  try {
    await sinks[0]?.deliver(runEvents, [stored as LogRecord]);
    let from = 0;
    for (const end of ends) {
      await sinks[1]?.deliver(runEvents, others.slice(from, end) as LogRecord[]);
      from = end;
    }
    expect(await read()).toMatchObject([{ micros: post.startTimeMicros, inputs: '"in"' }]);
  } finally {
    for (const sink of sinks) await sink.close();
  }
});

test('a sink that gets a partition back finds the stored times of runs that another sink has stored', async () => {
  const log = toRecordsAtOffset(1, [sibling, post, otherPost].map(toLogMessage));
  const sinks = [];
  for (let sink = 0; sink < 2; sink++) sinks.push(await openDrivenSink({ stores: under.stores, isShared: true }));
  try {
    for (const [index, record] of log.entries()) await sinks[index % 2]?.deliver(runEvents, [record]);
    expect(await read()).toMatchObject([{ micros: post.startTimeMicros, inputs: '"in"' }]);
  } finally {
    for (const sink of sinks) await sink.close();
  }
});

test('does not look up runs that were posted recently, nor new posts', async () => {
  const queries: string[] = [];
  const { clickhouse } = under.stores;
  const query = clickhouse.query.bind(clickhouse);
  clickhouse.query = (asked) => {
    queries.push(asked.name);
    return query(asked);
  };
  under = await under.restarted();
  await under.publish(post, otherPost);
  await under.publish(patch);
  expect(queries).not.toContain('find-key-times');
  await under.publish({ ...patch, runId: deriveUuid('unknown'), traceId: deriveUuid('unknown') });
  expect(queries).toContain('find-key-times');
});

test('a run keeps its time if the memory forgets it while other runs of the batch are added', async () => {
  const times = new KeyTimes(4);
  const others = Array.from({ length: 8 }, (_, number) => runEvent({ runId: deriveUuid(`other ${number}`) }));
  const assign = async (...events: readonly RunEvent[]) => {
    const records = toRecordsAtOffset(1, events.map(toLogMessage));
    const valid = records.map((record) => ({ record, schemaId: 1, traceKey: readTraceKey(record.value) }));
    const assigned = await times.assign(valid, new Map(), under.stores.clickhouse);
    return assigned.map(({ record }) => readStartTimeMicros(record.value));
  };
  await assign(post, ...others.slice(0, 6));
  expect((await assign(...others.slice(6), patch)).at(-1)).toBe(post.startTimeMicros);
});

test('only records that another process may have handled are a gap', () => {
  const times = new KeyTimes(4);
  const note = (first: number, last: number, isStored = true, partition = 0) => {
    const records = toRecordsAtOffset(first, [post, patch].map(toLogMessage));
    const end = { ...(records[1] as LogRecord), offset: last };
    const batch = { topic: runEvents, partition, records: [records[0] as LogRecord, end] };
    const isAfterGap = times.noteBatch(batch);
    if (isStored) times.noteStored(batch);
    return isAfterGap;
  };
  const batches: [first: number, last: number, isAfterGap: boolean, isStored?: boolean][] = [
    [10, 19, true],
    [20, 29, false],
    [20, 29, false],
    [20, 39, false, false],
    [20, 39, false],
    [40, 49, false],
    [60, 69, true],
    [40, 49, true, false],
    [50, 59, true],
  ];
  for (const [first, last, isAfterGap, isStored] of batches)
    expect([first, note(first, last, isStored)]).toEqual([first, isAfterGap]);
  expect(note(70, 79, true, 1)).toBe(true);
});
