/** A client that did not receive the response sends its event again; the repeat must not override newer events. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ClickHouse } from '../../../../infra/clickhouse/clickhouse.ts';
import { loadConfig } from '../../../../infra/config/load.ts';
import { AvroWriter, buildWirePrefix } from '../../../../infra/event-log/avro.ts';
import type { LogMessage } from '../../../../infra/event-log/event-log.ts';
import type { Database } from '../../../../infra/postgres/pool.ts';
import { encodeAttachment } from '../../../../pipelines/attachments/read-attachment.ts';
import { type FeedbackEvent, toFeedbackMessage } from '../../../../pipelines/feedback/feedback-event.ts';
import { nilUuid, type RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { EventVersions, repeatWindowMicros } from '../../../../pipelines/ingest/sink/event-versions.ts';
import { attachmentEvents, feedbackEvents, runEvents } from '../../../../schemas/topics.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { deriveUuid, json, otherProjectId, projectId, runEvent } from '../../runs/run-events.ts';
import { type ManualSink, openDrivenSink, toRecordsAtOffset } from './driven-sink.ts';
import { framed, openSink, type SinkUnderTest, toLogMessage } from './sink-under-test.ts';

const post = runEvent({ values: { inputs: json('in') } });
const sibling = runEvent({ traceId: post.traceId });
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
const laterMicros = post.startTimeMicros + 1_000_000;

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
    [
      'whose key times are its time of acceptance',
      [
        [post, patch('v1'), patch('v2')],
        [again(patch('v1', { startTimeMicros: laterMicros, traceTimeMicros: laterMicros }))],
      ],
    ],
    ['of a trace that was unknown at first', [[patch('v1'), patch('v2')], [again(patch('v1'))], [post]]],
    [
      'of a trace that becomes known with the repeat',
      [
        [patch('v1'), patch('v2')],
        [post, again(patch('v1'))],
      ],
    ],
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
    await expect(under.publish(patch('v1'))).rejects.toThrow('ClickHouse is away');
    await under.publish(again(patch('v1')));
    expect(await read()).toMatchObject({ outputs: '"v1"' });
  });

  test.each<[string, RunEvent[][], RunEvent[][]]>([
    ['the repeat alone', [[post], [patch('v1')], [patch('v2')]], [[again(patch('v1'))]]],
    ['the newer patch and the repeat', [[post, patch('v1')]], [[patch('v2')], [again(patch('v1'))]]],
    ['the newer patch and the repeat in one batch', [[post, patch('v1')]], [[patch('v2'), again(patch('v1'))]]],
    ['of a trace that became known before', [[patch('v1'), patch('v2')], [post]], [[again(patch('v1'))]]],
    ['of a trace that becomes known after', [[patch('v1'), patch('v2')]], [[post], [again(patch('v1'))]]],
    ['of a trace that becomes known with the repeat', [[patch('v1'), patch('v2')]], [[post, again(patch('v1'))]]],
    ['after another run of the trace', [[post, patch('v1'), patch('v2')]], [[sibling], [again(patch('v1'))]]],
  ])('a new process recognises a repeat: %s', async (_what, before, after) => {
    for (const batch of before) await under.publish(...batch);
    under = await under.restarted();
    for (const batch of after) await under.publish(...batch);
    expect(await read()).toEqual({ inputs: '"in"', outputs: '"v2"' });
  });

  test('a new process stores a repeated request with two posts of a run under their versions', async () => {
    const request = [post, { ...post, values: { inputs: json('newer') } }];
    await under.publish(...request);
    under = await under.restarted();
    await under.publish(...request.map((event) => again(event)));
    expect(await read()).toMatchObject({ inputs: '"newer"' });
  });

  test('a new process recognises a repeated post', async () => {
    await under.publish(post, { ...post, values: { inputs: json('newer') } });
    under = await under.restarted();
    await under.publish(again(post));
    expect(await read()).toMatchObject({ inputs: '"newer"' });
  });

  test('a new process knows when the window of a stored event ends', async () => {
    await under.publish(post, patch('v1'), patch('v2'));
    under = await under.restarted();
    const late = repeatWindowMicros / 1_000_000 + 1;
    await under.publish(again(patch('v1'), late));
    expect(await read()).toMatchObject({ outputs: '"v1"' });
    await under.publish(again(patch('v2'), late), again(patch('v1'), late + 1));
    expect(await read()).toMatchObject({ outputs: '"v2"' });
  });

  test('events of another workspace or trace location are not repeats', async () => {
    const other = { ...post, tenantId: deriveUuid('another tenant'), projectId: otherProjectId };
    await under.publish(post, again(other));
    const rows = await under.rows(`SELECT DISTINCT tenant_id FROM runs WHERE id = '${post.runId}'`);
    expect(rows).toHaveLength(2);
  });
});

/** Several sinks of a log that redelivers batches. */
describe('repeats after a rebalance', () => {
  const stores = forSuite(() => freshStores());
  const sinks: ManualSink[] = [];
  beforeEach(async () => {
    for (let sink = 0; sink < 2; sink++) sinks.push(await openDrivenSink({ stores, isShared: true }));
  });
  afterEach(async () => {
    for (const sink of sinks.splice(0)) await sink.close();
  });

  const records = [post, patch('v1'), patch('v2'), again(patch('v1')), again(patch('v2')), again(patch('v1'), 2)];
  // Sinks by offset: a sink loses the partition and gets it back, or reads a batch again after a failed commit.
  test.each<[string, readonly (readonly [sink: number, from: number, to: number])[]]>([
    ['one sink', [[0, 0, 6]]],
    [
      'another sink handles the repeat',
      [
        [0, 0, 3],
        [1, 3, 4],
      ],
    ],
    [
      'another sink handles the newer patch',
      [
        [0, 0, 2],
        [1, 2, 3],
        [0, 3, 4],
      ],
    ],
    [
      'another sink handles the first patch and the newer one',
      [
        [0, 0, 1],
        [1, 1, 3],
        [0, 3, 4],
      ],
    ],
    [
      'each record by the other sink',
      [
        [0, 0, 1],
        [1, 1, 2],
        [0, 2, 3],
        [1, 3, 4],
        [0, 4, 5],
        [1, 5, 6],
      ],
    ],
    [
      'a redelivered batch',
      [
        [0, 0, 4],
        [1, 1, 4],
        [1, 4, 6],
      ],
    ],
    [
      'a late process',
      [
        [0, 0, 3],
        [1, 3, 6],
        [0, 1, 3],
      ],
    ],
  ])('%s: the newer patch wins', async (what, deliveries) => {
    const runId = deriveUuid(what);
    const log = toRecordsAtOffset(
      7,
      records.map((event) => toLogMessage({ ...event, runId, traceId: runId })),
    );
    for (const [sink, from, to] of deliveries) await sinks[sink]?.deliver(runEvents, log.slice(from, to));
    const sql = `SELECT inputs, outputs FROM runs FINAL WHERE id = '${runId}'`;
    const rows = await stores.clickhouse.query({ name: 'test', sql });
    expect(rows).toEqual([{ inputs: '"in"', outputs: '"v2"' }]);
  });
});

test('a sink that gets a partition back, whose batch it could not store, finds what another sink has stored of it', async () => {
  const stores = await freshStores();
  let isDown = false;
  const query: Database['query'] = (...asked) =>
    isDown ? Promise.reject(new Error('Postgres is down')) : stores.database.query(...asked);
  const sinks = [
    await openDrivenSink({ stores: { ...stores, database: { ...stores.database, query } }, isShared: true }),
    await openDrivenSink({ stores, isShared: true }),
  ] as const;
  try {
    const first = toRecordsAtOffset(7, [post].map(toLogMessage));
    const failing = toRecordsAtOffset(8, [patch('v1'), patch('v2')].map(toLogMessage));
    const repeat = toRecordsAtOffset(10, [again(patch('v1'))].map(toLogMessage));
    await sinks[0].deliver(runEvents, first);
    isDown = true;
    await expect(sinks[0].deliver(runEvents, failing)).rejects.toThrow('Postgres is down');
    isDown = false;
    await sinks[1].deliver(runEvents, failing);
    await sinks[0].deliver(runEvents, repeat);
    const sql = `SELECT outputs FROM runs FINAL WHERE id = '${post.runId}'`;
    expect(await stores.clickhouse.query({ name: 'test', sql })).toEqual([{ outputs: '"v2"' }]);
  } finally {
    for (const sink of sinks) await sink.close();
    await stores.close();
  }
});

describe('repeats of other events', () => {
  const stores = forSuite(() => freshStores());
  let sink: ManualSink;
  beforeEach(async () => {
    sink = await openDrivenSink({ stores, isShared: true });
  });
  afterEach(() => sink.close());
  const restart = async () => {
    await sink.close();
    sink = await openDrivenSink({ stores, isShared: true });
  };
  const query = (sql: string) => stores.clickhouse.query({ name: 'test', sql });

  test.each([false, true])('feedback; new process: %s', async (isRestarted) => {
    const config = loadConfig({}).config;
    const id = deriveUuid(`feedback ${isRestarted}`);
    const feedback = (event: Partial<FeedbackEvent>) =>
      toFeedbackMessage(
        {
          ...{ tenantId: post.tenantId, runId: post.runId, id, userId: nilUuid, key: 'k' },
          ...{ sourceType: 'api', receivedAtMicros: post.receivedAtMicros, createdAtMicros: 1, modifiedAtMicros: 1 },
          ...event,
        },
        sink.log,
        config,
      );
    const repeat = { score: Buffer.from('1'), receivedAtMicros: post.receivedAtMicros + 5_000_000 };
    const log = toRecordsAtOffset(1, [
      feedback({ score: Buffer.from('1') }),
      feedback({ score: Buffer.from('2'), receivedAtMicros: post.receivedAtMicros + 1 }),
      feedback(repeat),
      feedback({ ...repeat, receivedAtMicros: post.receivedAtMicros + repeatWindowMicros + 1 }),
    ]);
    await sink.deliver(feedbackEvents, log.slice(0, 2));
    if (isRestarted) await restart();
    await sink.deliver(feedbackEvents, log.slice(2, 3));
    expect(await query(`SELECT score FROM feedback FINAL WHERE id = '${id}'`)).toEqual([{ score: '2' }]);
    await sink.deliver(feedbackEvents, log.slice(3));
    expect(await query(`SELECT score FROM feedback FINAL WHERE id = '${id}'`)).toEqual([{ score: '1' }]);
  });

  const attachmentOf =
    (runId: string) =>
    (content: string, seconds: number, name = 'file'): LogMessage => {
      const writer = new AvroWriter(1_024);
      writer.raw(buildWirePrefix(sink.log.schemaId(attachmentEvents)));
      encodeAttachment(writer, {
        ...{ tenantId: post.tenantId, runId, name, mimeType: 'text/plain', content: Buffer.from(content) },
        receivedAtMicros: post.receivedAtMicros + seconds * 1_000_000,
      });
      return { key: 'k', value: writer.since(0) };
    };

  test.each([false, true])('attachments; new process: %s', async (isRestarted) => {
    const runId = deriveUuid(`attachments ${isRestarted}`);
    const attachment = attachmentOf(runId);
    const log = toRecordsAtOffset(1, [
      attachment('v1', 0),
      attachment('v2', 1),
      attachment('v1', 2, 'other'),
      attachment('v1', 3),
    ]);
    await sink.deliver(attachmentEvents, log.slice(0, 3));
    if (isRestarted) await restart();
    await sink.deliver(attachmentEvents, log.slice(3));
    expect(await query(`SELECT name, content FROM attachments FINAL WHERE run_id = '${runId}' ORDER BY name`)).toEqual([
      { name: 'file', content: 'v2' },
      { name: 'other', content: 'v1' },
    ]);
  });

  // More events in a batch than the sink remembers.
  const many = Array.from({ length: 2_500 }, (_, index) => `${index}`);

  test.each([false, true])('a large batch of attachments that is sent again; new process: %s', async (isRestarted) => {
    const runId = deriveUuid(`many attachments ${isRestarted}`);
    const attachment = attachmentOf(runId);
    const batch = (seconds: number) => many.map((name) => attachment('v1', seconds, name));
    const log = toRecordsAtOffset(1, [...batch(0), ...batch(1)]);
    await sink.deliver(attachmentEvents, log.slice(0, many.length));
    if (isRestarted) await restart();
    await sink.deliver(attachmentEvents, log.slice(many.length));
    const newest = log[many.length - 1]?.version;
    expect(
      await query(`SELECT uniqExact(name) AS names, toString(max(version)) AS newest
                   FROM attachments WHERE run_id = '${runId}'`),
    ).toEqual([{ names: many.length, newest: String(newest) }]);
  });

  test('v1, v2, many others and v1 again in one batch', async () => {
    const runId = deriveUuid('all in one batch');
    const attachment = attachmentOf(runId);
    const others = many.map((name) => attachment('v1', 2, name));
    const batch = [attachment('v1', 0), attachment('v2', 1), ...others, attachment('v1', 3)];
    await sink.deliver(attachmentEvents, toRecordsAtOffset(1, batch));
    expect(await query(`SELECT content FROM attachments FINAL WHERE run_id = '${runId}' AND name = 'file'`)).toEqual([
      { content: 'v2' },
    ]);
  });
});

describe('versions of events', () => {
  const makeEvent = (event: RunEvent, offset: number) => ({
    record: { partition: 0, offset, key: 'k', value: framed(event), headers: {}, version: BigInt(offset) },
    schemaId: 1,
    mayBeRepeat: false,
  });
  const noQueries = {} as ClickHouse;
  const assign = async (versions: EventVersions, ...events: ReturnType<typeof makeEvent>[]) =>
    (await versions.assign(runEvents, events, noQueries)).events.map(({ record }) => Number(record.version));

  test('a redelivered event and a replayed dead-letter record keep their version', async () => {
    const versions = new EventVersions();
    expect(await assign(versions, makeEvent(patch('v1'), 7), makeEvent(patch('v1'), 7))).toEqual([7, 7]);
    expect(await assign(versions, makeEvent(again(patch('v1')), 6))).toEqual([6]);
    expect(await assign(versions, makeEvent(again(patch('v1')), 9))).toEqual([7]);
  });

  test('the bytes of an event do not change', async () => {
    const event = makeEvent(patch('v1', { projectId }), 7);
    const before = Buffer.from(event.record.value);
    await assign(new EventVersions(), event);
    expect(event.record.value).toEqual(before);
  });

  test('memory is bounded: at least the last events are remembered, and at most twice as many', async () => {
    const versions = new EventVersions(400);
    const some = 100;
    const fill = (name: string) =>
      assign(versions, ...Array.from({ length: some }, (_, index) => makeEvent(patch(`${name} ${index}`), index + 1)));
    const repeated = async (name: string) => (await assign(versions, makeEvent(again(patch(name)), some + 1)))[0];
    for (let round = 0; round < 4; round++) await fill(`${round}`);
    expect(await repeated('0 0')).toBe(1);
    for (let round = 4; round < 9; round++) await fill(`${round}`);
    expect(await repeated('0 0')).toBe(some + 1);
  });
});
