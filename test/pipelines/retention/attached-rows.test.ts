/** The rows of a trace have one lifetime, also after it has moved, and after the retention of its project has changed. */
import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { loadConfig } from '../../../infra/config/load.ts';
import { buildTraceHeaders, readAttachment } from '../../../pipelines/attachments/read-attachment.ts';
import { toFeedbackMessage } from '../../../pipelines/feedback/feedback-event.ts';
import type { RunEvent } from '../../../pipelines/ingest/run-event/run-event.ts';
import { attachmentEvents, feedbackEvents, runEvents, type Topic } from '../../../schemas/topics.ts';
import { forSuite } from '../../for-suite.ts';
import { type ManualSink, openDrivenSink, toRecordsAtOffset } from '../ingest/sink/driven-sink.ts';
import { toLogMessage } from '../ingest/sink/sink-under-test.ts';
import { otherProjectId, runEvent, projectId as shortProjectId, tenantId } from '../runs/run-events.ts';
import { retentionConfig } from './retention-under-test.ts';
import { openTwoTiers, readStoredLifetimes } from './two-tiers.ts';

const stores = forSuite(() => openTwoTiers());

const { config } = loadConfig({});
const nowMicros = Date.now() * 1_000;
const tenDaysAgo = nowMicros - 10 * 86_400_000_000;
const times = { traceTimeMicros: tenDaysAgo, startTimeMicros: tenDaysAgo };
const startSeconds = Math.floor(times.traceTimeMicros / 1e6);
const shortLifetime = { tier: 1, expires: startSeconds + 14 * 86_400 };
const longLifetime = { tier: 2, expires: startSeconds + 400 * 86_400 };

let offset = 1_000;

function createAttachment({ log }: ManualSink, run: RunEvent) {
  const sender = { workspaceId: tenantId, userId: tenantId, keyId: tenantId };
  const attachment = {
    runId: run.runId,
    name: "it's \\ notes",
    mimeType: 'text/plain',
    content: Buffer.from('content'),
  };
  return { ...readAttachment(sender, attachment, { log, config }), headers: buildTraceHeaders(run) };
}

function createFeedback({ log }: ManualSink, { runId }: RunEvent) {
  const about = { tenantId, runId, id: randomUUID(), key: 'score', sourceType: 'api', userId: tenantId };
  const at = { receivedAtMicros: nowMicros, createdAtMicros: nowMicros, modifiedAtMicros: nowMicros };
  return toFeedbackMessage({ ...about, ...at, keepsTrace: false }, log, config);
}

const openSink = () => openDrivenSink({ stores, isShared: true, config: retentionConfig });
const deliver = (
  sink: ManualSink,
  topic: Topic,
  message: ReturnType<typeof createAttachment | typeof toLogMessage>,
  at = offset++,
) => sink.deliver(topic, toRecordsAtOffset(at, [message]));
const deliverRun = (sink: ManualSink, event: RunEvent, at?: number) =>
  deliver(sink, runEvents, toLogMessage(event), at);

const readLifetimes = ({ runId }: RunEvent, table: string) =>
  readStoredLifetimes(stores.clickhouse, table, `run_id = '${runId}'`);

it('attachments and feedback get the longer lifetime of a trace that moves to another project after they were stored', async () => {
  const sinks = [await openSink(), await openSink()] as const;
  const losing = runEvent({ ...times, projectId: shortProjectId });
  const winning = runEvent({ ...times, projectId: otherProjectId, traceId: losing.traceId });
  const earlier = offset++;
  await deliverRun(sinks[0], losing);
  await deliver(sinks[0], attachmentEvents, createAttachment(sinks[0], losing));
  await deliver(sinks[0], feedbackEvents, createFeedback(sinks[0], losing));
  await deliverRun(sinks[1], winning, earlier);
  for (const sink of sinks) await sink.close();
  for (const table of ['attachments', 'feedback'])
    expect((await readLifetimes(losing, table)).at(-1), table).toEqual(longLifetime);
  const sql = `SELECT name, content FROM attachments FINAL WHERE run_id = '${losing.runId}' LIMIT 1 BY name`;
  expect(await stores.clickhouse.query({ name: 'test', sql })).toEqual([{ name: "it's \\ notes", content: 'content' }]);
});

it('later runs of a trace get its lifetime, if the retention of its project has changed since', async () => {
  const setTier = (tier: string) =>
    stores.database.execute('UPDATE projects SET trace_tier = $2 WHERE id = $1', [shortProjectId, tier]);
  const first = runEvent({ ...times, projectId: shortProjectId });
  const earlier = runEvent({ ...times, projectId: shortProjectId, traceId: first.traceId });
  const before = offset++;
  const sink = await openSink();
  await deliverRun(sink, first);
  await sink.close();
  await setTier('longlived');
  // Without the cached retention.
  const next = await openSink();
  await deliverRun(next, earlier, before);
  await next.close();
  await setTier('shortlived');
  const condition = `trace_id = '${first.traceId}'`;
  expect(await readStoredLifetimes(stores.clickhouse, 'runs', condition)).toEqual([shortLifetime]);
});

it('attachments whose trace header another producer sent, without ids, are stored', async () => {
  const run = runEvent({ ...times, projectId: shortProjectId });
  const sink = await openSink();
  const noId = '-'.repeat(36);
  const headers = { 'runlake-trace': `${noId} ${noId} 1` };
  await deliver(sink, attachmentEvents, { ...createAttachment(sink, run), headers });
  await sink.close();
  expect(await readLifetimes(run, 'attachments')).toHaveLength(1);
});
