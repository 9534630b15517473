/** Queues that get the runs of an experiment of which another process has accepted runs that are not stored yet. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { EventLog } from '../../../infra/event-log/event-log.ts';
import { openInProcessLog } from '../../../infra/event-log/in-process/in-process-log.ts';
import { acceptSingle } from '../../../pipelines/ingest/accept/accept-single.ts';
import { createPopulatedQueue, populateQueue } from '../../../pipelines/queues/queue-items.ts';
import { runEvents, topics } from '../../../schemas/topics.ts';
import { addOrganization, startApi } from '../../api/start-api.ts';
import { untilStored } from '../../engines/settling.ts';
import { forSuite } from '../../for-suite.ts';
import { deferred } from '../../infra/deferred.ts';
import { logger } from '../../silent-logger.ts';
import { noExtras } from '../runs/reading.ts';

const api = forSuite(() => startApi());
const owner = forSuite(() => addOrganization(api.database, 'acme'));
let workspaceId: string;
let datasetId: string;
/** The log of another process, whose events are not stored until {@link storing} is resolved. */
let log: EventLog;
const storing = deferred();

beforeAll(async () => {
  [workspaceId] = owner.workspaceIds;
  datasetId = (await ask('/datasets', { name: 'reviewed' })).id;
  const stores = { clickhouse: api.services.clickhouse, database: api.database };
  log = await openInProcessLog({ ...stores, topics, partitions: 1, maxPendingBytes: 1_000_000, logger });
  const limits = { rows: 1, bytes: 1 };
  await log.subscribe({ topic: runEvents, group: 'test', limits, handle: () => storing.promise });
});
afterAll(async () => {
  storing.resolve();
  await log?.close();
});

const ask = async (path: string, body: object) => (await api.ask(owner.adminKey, 'POST', path, body)).body;
const addExperiment = async (name: string, startTime: string): Promise<string> =>
  (await ask('/sessions', { name, reference_dataset_id: datasetId, start_time: startTime })).id;
const addQueue = async (): Promise<string> => (await ask('/annotation-queues', { name: 'queue' })).id;

it('a queue waits for the runs of an experiment, unless that began more than a day ago', async () => {
  const { accept } = api.services;
  // A process that waits only briefly for events to be stored.
  const config = { ...accept.config, patchWaitMs: 50 };
  const deps = { ...api.services, extras: noExtras, accept: { ...accept, log, config } };
  const newId = await addExperiment('new', new Date().toISOString());
  const oldId = await addExperiment('old', new Date(Date.now() - 90_000_000).toISOString());
  const queueId = await addQueue();
  const run = { id: randomUUID(), name: 'run', run_type: 'chain', start_time: new Date().toISOString(), inputs: {} };
  const body = Buffer.from(JSON.stringify({ ...run, session_id: newId }));
  const sender = { workspaceId, userId: owner.userId, keyId: randomUUID() };
  await acceptSingle(sender, { kind: 'post', body }, { ...accept, log });

  const populate = (projectId: string) =>
    populateQueue(deps, workspaceId, { queueId, projectIds: [projectId], keepsTraces: false });
  const notStored = { code: 'NOT_STORED_YET', status: 503, retryAfterSeconds: 2 };
  await expect(populate(newId)).rejects.toMatchObject(notStored);
  expect(await populate(oldId)).toBe(0);
  const fields = { name: 'filled', description: null, default_dataset: null, rubric_instructions: null } as const;
  const rest = { rubric_items: null, metadata: null, num_reviewers_per_item: 1 } as const;
  const reservations = { enable_reservations: true, reservation_minutes: 1, reviewer_access_mode: 'any' } as const;
  const filled = { id: randomUUID(), fields: { ...fields, ...rest, ...reservations }, projectIds: [newId] };
  await expect(createPopulatedQueue(deps, workspaceId, filled)).rejects.toMatchObject(notStored);
  storing.resolve();
  await untilStored(log, runEvents);
  // The request that is repeated creates the queue.
  expect(await createPopulatedQueue(deps, workspaceId, filled)).toMatchObject({ id: filled.id });
});
