/** Attachments and feedback get the lifetime of their run, also if they are stored before it, or while its trace moves. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { loadConfig } from '../../../infra/config/load.ts';
import { buildTraceHeaders, readAttachment } from '../../../pipelines/attachments/read-attachment.ts';
import { toFeedbackMessage } from '../../../pipelines/feedback/feedback-event.ts';
import type { RunEvent } from '../../../pipelines/ingest/run-event/run-event.ts';
import { changeTraces } from '../../../pipelines/retention/change-traces.ts';
import { attachmentEvents, feedbackEvents, runEvents, type Topic } from '../../../schemas/topics.ts';
import type { FreshStores } from '../../engines/stores.ts';
import { type ManualSink, openDrivenSink, toRecordsAtOffset } from '../ingest/sink/driven-sink.ts';
import { toLogMessage } from '../ingest/sink/sink-under-test.ts';
import { otherProjectId, runEvent, projectId as shortProjectId, tenantId } from '../runs/run-events.ts';
import { retentionConfig } from './retention-under-test.ts';
import { openTwoTiers, readStoredLifetimes, storedLog } from './two-tiers.ts';

let stores: FreshStores;
beforeAll(async () => {
  stores = await openTwoTiers();
});
afterAll(() => stores?.close());

const { config } = loadConfig({});
const nowMicros = Date.now() * 1_000;
const tenDaysAgo = nowMicros - 10 * 86_400_000_000;
const times = { traceTimeMicros: tenDaysAgo, startTimeMicros: tenDaysAgo };
const startSeconds = Math.floor(times.traceTimeMicros / 1e6);
const shortLifetime = { tier: 1, expires: startSeconds + 14 * 86_400 };
const longLifetime = { tier: 2, expires: startSeconds + 400 * 86_400 };

let offset = 1_000;
beforeEach(() => {
  offset += 1_000;
});

function createAttachment({ log }: ManualSink, run: RunEvent, headers = buildTraceHeaders(run)) {
  const sender = { workspaceId: tenantId, userId: tenantId, keyId: tenantId };
  const attachment = {
    runId: run.runId,
    name: "it's \\ notes",
    mimeType: 'text/plain',
    content: Buffer.from('content'),
  };
  return { ...readAttachment(sender, attachment, { log, config }), headers };
}

function createFeedback({ log }: ManualSink, { runId }: RunEvent) {
  const about = { tenantId, runId, id: randomUUID(), key: 'score', sourceType: 'api', userId: tenantId };
  const at = { receivedAtMicros: nowMicros, createdAtMicros: nowMicros, modifiedAtMicros: nowMicros };
  return toFeedbackMessage({ ...about, ...at, keepsTrace: false }, log, config);
}

const openSink = (clickhouse = stores.clickhouse) =>
  openDrivenSink({ stores: { ...stores, clickhouse }, isShared: true, config: retentionConfig });
const deliver = (
  sink: ManualSink,
  topic: Topic,
  message: ReturnType<typeof createAttachment | typeof toLogMessage>,
  at = offset++,
) => sink.deliver(topic, toRecordsAtOffset(at, [message]));
const deliverRun = (sink: ManualSink, event: RunEvent, at?: number) =>
  deliver(sink, runEvents, toLogMessage(event), at);

async function changeAll(): Promise<void> {
  await stores.database.execute('UPDATE trace_changes SET due_at = now()');
  await changeTraces({ ...stores, log: storedLog, config: retentionConfig });
}

async function readLifetimes({ runId }: RunEvent) {
  const read = (table: string, column: string) =>
    readStoredLifetimes(stores.clickhouse, table, `${column} = '${runId}'`);
  return {
    runs: await read('runs', 'id'),
    attachments: await read('attachments', 'run_id'),
    feedback: await read('feedback', 'run_id'),
  };
}

const all = (lifetime: typeof shortLifetime) => ({ runs: [lifetime], attachments: [lifetime], feedback: [lifetime] });

it.each([
  ['short', shortLifetime, shortProjectId, otherProjectId],
  ['long', longLifetime, otherProjectId, shortProjectId],
])(
  'get the %s lifetime of a trace that is in another project than their event names',
  async (_, lifetime, winner, loser) => {
    const sink = await openSink();
    const root = runEvent({ ...times, projectId: winner });
    const child = runEvent({ ...times, projectId: loser, traceId: root.traceId });
    await deliver(sink, attachmentEvents, createAttachment(sink, child));
    await deliver(sink, feedbackEvents, createFeedback(sink, child));
    await changeAll();
    await deliverRun(sink, root);
    await deliverRun(sink, child);
    await sink.close();
    await changeAll();
    const found = await readLifetimes(child);
    // What would expire too early expires by itself.
    expect({ ...found, attachments: found.attachments.slice(-1) }).toEqual(all(lifetime));
    // Requests are forgotten, and what is stored stays.
    await changeAll();
    expect(await stores.database.query('SELECT FROM trace_changes')).toEqual([]);
    const sql = `SELECT name, content FROM attachments FINAL WHERE run_id = '${child.runId}' LIMIT 1 BY name`;
    expect(await stores.clickhouse.query({ name: 'test', sql })).toEqual([
      { name: "it's \\ notes", content: 'content' },
    ]);
  },
);

it('of a run without a stated trace get the lifetime of the run when it is stored', async () => {
  const sink = await openSink();
  const run = runEvent({ ...times, projectId: shortProjectId });
  await deliver(sink, attachmentEvents, createAttachment(sink, run, {}));
  await deliver(sink, feedbackEvents, createFeedback(sink, run));
  await deliverRun(sink, run);
  await sink.close();
  await changeAll();
  expect(await readLifetimes(run)).toEqual(all(shortLifetime));
});

it('get the longer lifetime of a trace that moves to another project after they were stored', async () => {
  const sinks = [await openSink(), await openSink()] as const;
  const losing = runEvent({ ...times, projectId: shortProjectId });
  const winning = runEvent({ ...times, projectId: otherProjectId, traceId: losing.traceId });
  const earlier = offset++;
  await deliverRun(sinks[0], losing);
  await deliver(sinks[0], attachmentEvents, createAttachment(sinks[0], losing));
  await deliver(sinks[0], feedbackEvents, createFeedback(sinks[0], losing));
  await deliverRun(sinks[1], winning, earlier);
  for (const sink of sinks) await sink.close();
  const found = await readLifetimes(losing);
  expect(found.attachments.at(-1)).toEqual(longLifetime);
  expect(found.feedback.at(-1)).toEqual(longLifetime);
});

it('get the longer lifetime of a trace that moves while they are stored', async () => {
  const other = await openSink();
  const losing = runEvent({ ...times, projectId: shortProjectId });
  const winning = runEvent({ ...times, projectId: otherProjectId, traceId: losing.traceId });
  const earlier = offset++;
  await deliverRun(other, losing);
  const { clickhouse } = stores;
  const insertBody: typeof clickhouse.insertBody = async (insert) => {
    // The lifetime has been read.
    if (insert.table === 'attachments') await deliverRun(other, winning, earlier);
    await clickhouse.insertBody(insert);
  };
  const sink = await openSink({ ...clickhouse, insertBody });
  await deliver(sink, attachmentEvents, createAttachment(sink, losing));
  for (const each of [sink, other]) await each.close();
  await changeAll();
  expect((await readLifetimes(losing)).attachments.at(-1)).toEqual(longLifetime);
});

it('later runs of a trace get its lifetime, if the retention of its project has changed since', async () => {
  const setTier = (tier: string) =>
    stores.database.execute('UPDATE projects SET trace_tier = $2 WHERE id = $1', [shortProjectId, tier]);
  const first = runEvent({ ...times, projectId: shortProjectId });
  const earlier = runEvent({ ...times, projectId: shortProjectId, traceId: first.traceId });
  const sink = await openSink();
  await deliverRun(sink, first, offset + 1);
  await sink.close();
  await setTier('longlived');
  // Without the cached retention.
  const next = await openSink();
  await deliverRun(next, earlier, offset);
  await next.close();
  await setTier('shortlived');
  const condition = `trace_id = '${first.traceId}'`;
  expect(await readStoredLifetimes(stores.clickhouse, 'runs', condition)).toEqual([shortLifetime]);
});
