/** Examples that copy a run of which another process has accepted events that are not stored yet. */

import { randomUUID } from 'node:crypto';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openInProcessLog } from '../../../infra/event-log/in-process/in-process-log.ts';
import { readAttachment } from '../../../pipelines/attachments/read-attachment.ts';
import { createExamples, type NewExample } from '../../../pipelines/datasets/write-examples.ts';
import { acceptSingle } from '../../../pipelines/ingest/accept/accept-single.ts';
import { attachmentEvents, runEvents, topics } from '../../../schemas/topics.ts';
import { addOrganization, startApi } from '../../api/start-api.ts';
import { wrapCommands } from '../../engines/on-stored-table.ts';
import { untilStored } from '../../engines/settling.ts';
import { forSuite } from '../../for-suite.ts';
import { deferred } from '../../infra/deferred.ts';
import { logger } from '../../silent-logger.ts';

const api = forSuite(() => startApi());
const owner = forSuite(() => addOrganization(api.database, 'acme'));
let datasetId: string;
/** The log of another process, whose events are not stored until {@link storing} is resolved. */
const log = forSuite(() =>
  openInProcessLog({
    ...{ clickhouse: api.services.clickhouse, database: api.database, topics, partitions: 1 },
    ...{ maxPendingBytes: 1_000_000, logger },
  }),
);
let storing = deferred();

const notStored = { code: 'NOT_STORED_YET', status: 503, retryAfterSeconds: 2 };

beforeAll(async () => {
  datasetId = (await api.ask(owner.workspaceKeys[0], 'POST', '/datasets', { name: 'copies' })).body.id;
  for (const topic of [runEvents, attachmentEvents])
    await log.subscribe({ topic, group: 'test', limits: { rows: 1, bytes: 1 }, handle: () => storing.promise });
});
beforeEach(() => {
  storing = deferred();
});

const sender = () => ({ workspaceId: owner.workspaceIds[0], userId: owner.userId, keyId: randomUUID() });

async function addRun(more: object = {}): Promise<string> {
  const id = randomUUID();
  const run = { id, name: 'run', run_type: 'chain', start_time: new Date().toISOString(), inputs: { n: 1 }, ...more };
  expect((await api.ask(owner.workspaceKeys[0], 'POST', '/runs', run)).status).toBe(202);
  await api.settled();
  return id;
}

const end = () => ({ outputs: { n: 2 }, end_time: new Date().toISOString() });

/** Creates an example from a run in a process that waits only briefly for events to be stored. */
async function copyRun(sourceRunId: string, more: Partial<NewExample> = { useSourceRunIo: true }) {
  const { accept } = api.services;
  const services = { ...api.services, accept: { ...accept, log, config: { ...accept.config, patchWaitMs: 50 } } };
  const id = randomUUID();
  await createExamples(services, owner.workspaceIds[0], datasetId, [{ id, inputs: '{}', sourceRunId, ...more }]);
  return (await api.ask(owner.workspaceKeys[0], 'GET', `/examples/${id}`)).body;
}

describe('an example that copies a run', () => {
  it('waits for the end of the run, which brings its outputs', async () => {
    const [finished, running] = [await addRun(end()), await addRun()];
    const patch = { kind: 'patch', pathId: running, body: Buffer.from(JSON.stringify(end())) } as const;
    await acceptSingle(sender(), patch, { ...api.services.accept, log });
    await expect(copyRun(running)).rejects.toMatchObject(notStored);
    expect(await copyRun(finished)).toMatchObject({ inputs: { n: 1 }, outputs: { n: 2 } });
    storing.resolve();
    await untilStored(log, runEvents);
    // The stored run has not ended, and no further event of it was accepted.
    expect(await copyRun(running)).toMatchObject({ inputs: { n: 1 }, outputs: null });
  });

  it.each<[string, Partial<NewExample>]>([
    ['all', { useSourceRunIo: true }],
    ['named', { useSourceRunAttachments: ['file'] }],
  ])('waits for the attachments of the run: %s', async (name, wanted) => {
    const runId = await addRun(end());
    const attachment = { runId, name: 'file', mimeType: 'text/plain', content: Buffer.from('content') };
    const message = readAttachment(sender(), attachment, { log, config: api.services.config });
    await log.publish(attachmentEvents, [message]);
    await expect(copyRun(runId, wanted)).rejects.toMatchObject(notStored);
    storing.resolve();
    await untilStored(log, attachmentEvents);
    // The group of the test has stored nothing.
    if (name === 'all') expect(await copyRun(runId, wanted)).toMatchObject({ attachment_urls: {} });
    else await expect(copyRun(runId, wanted)).rejects.toMatchObject({ code: 'INVALID_EXAMPLE' });
  });

  it('does not wait for attachments of a run that started more than a day ago', async () => {
    const started = { start_time: new Date(Date.now() - 90_000_000).toISOString() };
    const runId = await addRun({ ...end(), ...started });
    const attachment = { runId: randomUUID(), name: 'file', mimeType: 'text/plain', content: Buffer.from('content') };
    await log.publish(attachmentEvents, [readAttachment(sender(), attachment, { log, config: api.services.config })]);
    expect(await copyRun(runId)).toMatchObject({ outputs: { n: 2 } });
    storing.resolve();
  });
});

it('the attachments of many runs are copied with few statements', async () => {
  const [runId, otherId] = [await addRun(end()), await addRun(end())];
  const ownLog = api.services.accept.log;
  const { config } = api.services;
  for (const [run, name] of [
    [runId, 'a'],
    [runId, 'b'],
    [otherId, 'a'],
    [otherId, 'c'],
  ] as const) {
    const content = Buffer.from(`${name} of ${run}`);
    const message = readAttachment(
      sender(),
      { runId: run, name, mimeType: 'text/plain', content },
      { log: ownLog, config },
    );
    await ownLog.publish(attachmentEvents, [message]);
  }
  await api.settled();
  let statements = 0;
  const clickhouse = wrapCommands(api.services.clickhouse, (command, run) => {
    if (command.name === 'copy-attachments') statements++;
    return run();
  });
  const copies = Array.from(
    { length: 60 },
    (_, n): NewExample => ({
      ...{ id: randomUUID(), inputs: '{}', sourceRunId: n % 2 === 0 ? runId : otherId },
      ...(n % 3 === 0 ? { useSourceRunAttachments: ['a'] } : { useSourceRunIo: true }),
    }),
  );
  await createExamples({ ...api.services, clickhouse }, owner.workspaceIds[0], datasetId, copies);
  expect(statements).toBe(5);
  for (const { id, sourceRunId, useSourceRunAttachments } of copies.slice(0, 6)) {
    const { body } = await api.ask(owner.workspaceKeys[0], 'GET', `/examples/${id}`);
    const found = Object.entries(body.attachment_urls as Record<string, { presigned_url: string }>);
    const names = useSourceRunAttachments ?? (sourceRunId === runId ? ['a', 'b'] : ['a', 'c']);
    expect(found.map(([name]) => name).sort()).toEqual(names.map((name) => `attachment.${name}`));
    for (const [name, { presigned_url: url }] of found) {
      const answer = await api.server.inject({ url: new URL(url, 'http://runlake').pathname });
      expect(answer.body).toBe(`${name.replace('attachment.', '')} of ${sourceRunId}`);
    }
  }
});
