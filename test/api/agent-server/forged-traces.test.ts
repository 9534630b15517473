import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { formatDottedOrderSegment } from '../../../pipelines/ingest/run-event/dotted-order.ts';
import { forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';
import { startAgentServer } from './start-agent-server.ts';

/** Graph code that writes runs into the pipe to the front process, as the tracer does. */

const server = forSuite(() => startAgentServer({ project: 'hostile' }));

it('accepts inner runs only for the trace and project of their own run', async () => {
  const micros = Date.now() * 1_000;
  const time = formatDottedOrderSegment(micros, '');
  const forged = (traceId: string, values = '') => {
    const id = randomUUID();
    const order = `${time}${traceId}.${time}${id}`;
    const head = `"id":"${id}","trace_id":"${traceId}","parent_run_id":"${traceId}","dotted_order":"${order}"`;
    const members = `"name":"forged","run_type":"chain","start_time":${micros / 1_000}`;
    return { id, parts: [head, members, values] };
  };
  const records = {
    own: forged('RUN'),
    otherTrace: forged(randomUUID()),
    otherProject: forged('RUN', ',"session_name":"another"'),
    otherProjectById: forged('RUN', `,"session_id":"${randomUUID()}"`),
    otherId: { ...forged('RUN'), id: randomUUID() },
  };
  const { client, shared } = server;
  const { thread_id: threadId } = await client.threads.create();
  // The run has key 1, because it is the first run of this server.
  const attack = { how: 'trace', key: 1, records: Object.values(records) };
  const { run_id: runId } = await client.runs.create(threadId, 'attack', { input: { attack } });
  await client.runs.join(threadId, runId);
  const traced = () =>
    shared.stores.clickhouse.query<{ id: string; trace: string; project: string }>({
      name: 'test',
      sql: `SELECT toString(id) AS id, toString(trace_id) AS trace, toString(session_id) AS project
            FROM runs FINAL WHERE id = '${runId}' OR name = 'forged' ORDER BY id`,
    });
  // A record that names another project is accepted, but its values are dropped, including that name.
  const { own, otherProject, otherProjectById } = records;
  const ids = [runId, own.id, otherProject.id, otherProjectById.id];
  await until('the trace to be stored', async () => (await traced()).length >= ids.length);
  const stored = await traced();
  const project = stored.find(({ id }) => id === runId)?.project;
  expect(stored.map(({ id }) => id).sort()).toEqual(ids.sort());
  for (const run of stored) expect(run).toMatchObject({ trace: runId, project });
});
