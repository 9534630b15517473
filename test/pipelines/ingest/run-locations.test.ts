import { randomUUID } from 'node:crypto';
import { v7 as uuidv7 } from 'uuid';
import { expect, it } from 'vitest';
import { openInProcessLog } from '../../../infra/event-log/in-process/in-process-log.ts';
import { readSourceRuns } from '../../../pipelines/datasets/source-runs.ts';
import { acceptSingle } from '../../../pipelines/ingest/accept/accept-single.ts';
import { RunLocations } from '../../../pipelines/ingest/accept/run-locations.ts';
import { requireThreads } from '../../../pipelines/queues/read-queue-runs.ts';
import { locateRuns } from '../../../pipelines/runs/locate-run.ts';
import { runEvents, topics } from '../../../schemas/topics.ts';
import { addOrganization, startApi } from '../../api/start-api.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';

const api = forSuite(() => startApi());
const owner = forSuite(() => addOrganization(api.database, 'owner'));

it('coalesces concurrent lookups of runs into one query, and gives each caller its own answer', async () => {
  const [workspaceId, other] = owner.workspaceIds as [string, string];
  const stored = [uuidv7(), uuidv7()];
  for (const id of stored) {
    const payload = { id, name: 'stored', run_type: 'chain', start_time: new Date().toISOString() };
    const headers = { 'x-api-key': owner.adminKey, 'x-tenant-id': workspaceId };
    const answer = await api.server.inject({ method: 'POST', url: '/runs', headers, payload });
    expect(answer.statusCode).toBe(202);
  }
  await api.settled();
  const queries: (readonly string[])[] = [];
  const locations = new RunLocations((workspace, runIds) => {
    queries.push(runIds);
    return locateRuns(api.services.clickhouse, workspace, runIds);
  });
  const unknown = uuidv7();

  const found = await Promise.all([...stored, unknown].map((id) => locations.find(workspaceId, id, 0)));

  expect(found.map((location) => location?.traceId)).toEqual([...stored, undefined]);
  expect(queries).toEqual([[...stored, unknown]]);
  expect(await Promise.all(stored.map((id) => locations.find(other, id, 0)))).toEqual([undefined, undefined]);
});

it('rejects all concurrent lookups if the store fails, and asks again for the next one', async () => {
  let isUnavailable = true;
  const locations = new RunLocations(async (_workspace, runIds) => {
    if (isUnavailable) throw new Error('away');
    return runIds.map((runId) => ({ runId, traceId: runId, startTimeMicros: 1, traceTimeMicros: 1 }));
  });
  const ends = await Promise.allSettled(['a', 'b'].map((id) => locations.find('workspace', id, 0)));
  expect(ends.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  isUnavailable = false;
  expect(await locations.find('workspace', 'a', 0)).toMatchObject({ traceId: 'a' });
});

it('identical posts without a start time that reach two API processes at once are one run', async () => {
  const { accept, clickhouse } = api.services;
  const [workspaceId] = owner.workspaceIds;
  const sender = { workspaceId, userId: owner.userId, keyId: randomUUID() };
  const id = randomUUID();
  const request = {
    kind: 'post',
    body: Buffer.from(JSON.stringify({ id, name: 'twice', run_type: 'chain' })),
  } as const;
  let letContinue = () => {};
  const lookupResumed = new Promise<void>((resolve) => {
    letContinue = resolve;
  });
  let slow = new RunLocations(async () => []);
  const lookedUp = new Promise<void>((resolve) => {
    slow = new RunLocations(async (workspace, runIds) => {
      const found = await locateRuns(clickhouse, workspace, runIds);
      resolve();
      await lookupResumed;
      return found;
    });
  });
  const second = acceptSingle(sender, request, { ...accept, runLocations: slow });
  await lookedUp;
  await acceptSingle(sender, request, accept);
  letContinue();
  await second;
  const patch = { kind: 'patch', pathId: id, body: Buffer.from('{"outputs":{"done":true}}') } as const;
  await acceptSingle(sender, patch, { ...accept, runLocations: slow });
  await api.settled();

  const { body } = await api.ask(owner.workspaceKeys[0], 'POST', '/runs/query', { trace: id });

  expect(body.runs).toMatchObject([{ id, outputs: { done: true } }]);
});

it('a run that was accepted and is not stored yet is no unknown run: its client sends the request again', async () => {
  const { accept, clickhouse } = api.services;
  const [workspaceId] = owner.workspaceIds;
  const sender = { workspaceId, userId: owner.userId, keyId: randomUUID() };
  // The log of a process whose sink does not store anything.
  const options = { clickhouse, database: api.database, topics, partitions: 1, maxPendingBytes: 1_000_000, logger };
  const log = await openInProcessLog(options);
  const restarted = {
    ...accept,
    log,
    config: { ...accept.config, patchWaitMs: 50 },
    runLocations: new RunLocations((workspace, runIds) => locateRuns(clickhouse, workspace, runIds)),
  };
  const id = randomUUID();
  const body = (run: object) => Buffer.from(JSON.stringify(run));
  await acceptSingle(sender, { kind: 'post', body: body({ id, name: 'late', run_type: 'chain' }) }, { ...accept, log });
  const patch = { kind: 'patch', pathId: id, body: body({ outputs: {} }) } as const;
  const child = { kind: 'post', body: body({ id: randomUUID(), parent_run_id: id }) } as const;

  const notStored = { code: 'NOT_STORED_YET', status: 503, retryAfterSeconds: 2 };
  await expect(acceptSingle(sender, patch, restarted)).rejects.toMatchObject(notStored);
  await expect(acceptSingle(sender, child, restarted)).rejects.toMatchObject(notStored);
  const services = { ...api.services, accept: restarted };
  const copy = [{ id: randomUUID(), sourceRunId: id, useSourceRunIo: true }];
  const readSources = () => readSourceRuns(services, workspaceId, copy, { withTools: false });
  await expect(readSources()).rejects.toMatchObject(notStored);
  const projectId = (await api.ask(owner.workspaceKeys[0], 'POST', '/sessions', { name: 'threads' })).body.id;
  const addThread = () => requireThreads(services, workspaceId, [{ projectId, threadId: 'late' }]);
  await expect(addThread()).rejects.toMatchObject(notStored);

  // Requests that wait together ask the log together.
  let positions = 0;
  const counted: typeof log = Object.create(log, {
    position: {
      value: (topic: typeof runEvents) => {
        positions += 1;
        return log.position(topic);
      },
    },
    isStored: { value: log.isStored.bind(log) },
  });
  const patches = Array.from({ length: 20 }, () => acceptSingle(sender, patch, { ...restarted, log: counted }));
  for (const end of await Promise.allSettled(patches)) expect(end).toMatchObject({ reason: notStored });
  expect(positions).toBeLessThan(patches.length);

  await log.subscribe({ topic: runEvents, group: 'test', limits: { rows: 1, bytes: 1 }, handle: async () => {} });
  await expect(acceptSingle(sender, patch, restarted)).rejects.toMatchObject({ code: 'RUN_UNKNOWN' });
  await expect(readSources()).rejects.toMatchObject({ code: 'INVALID_EXAMPLE' });
  await expect(addThread()).rejects.toMatchObject({ code: 'NOT_FOUND' });
  await log.close();
});
