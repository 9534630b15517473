import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { toFeedbackMessage } from '../../../pipelines/feedback/feedback-event.ts';
import { changeTraces } from '../../../pipelines/retention/change-traces.ts';
import { runFactRollUp } from '../../../pipelines/runs/stats/count-facts.ts';
import { readDirtyHours } from '../../../pipelines/runs/stats/fact-rows.ts';
import { runRollUp } from '../../../pipelines/usage/rollup.ts';
import { feedbackEvents } from '../../../schemas/topics.ts';
import { forSuite } from '../../for-suite.ts';
import { openRetention, retentionConfig, type SentTrace } from './retention-under-test.ts';

const under = forSuite(() => openRetention());

const oneTrace = { runs: 2, run_locator: 2, trace_locations: 1, attachments: 1 };
const nothing = { runs: 0, run_locator: 0, trace_locations: 0, attachments: 0, feedback: 0 };

/**
 * Deletes all rows that do not have the long lifetime, as `TTL` would delete rows that ClickHouse has not merged yet.
 */
async function expireShortRows(): Promise<void> {
  for (const table of Object.keys(nothing)) {
    const condition = 'expires_at < now() + INTERVAL 100 DAY SETTINGS mutations_sync = 2';
    await under.runOnTable(table, (stored) => `ALTER TABLE ${stored} DELETE WHERE ${condition}`);
  }
}

async function giveFeedback(runId: string, more: object = {}): Promise<void> {
  const payload = { id: randomUUID(), run_id: runId, key: 'good', score: 1, comment: 'content of feedback', ...more };
  expect((await under.ask('POST', '/feedback', payload)).status).toBe(200);
  await under.api.settled();
}

/** Publishes feedback like a process that does not know of the deletion yet. */
async function publishFeedback(runId: string, id: string = randomUUID()): Promise<string> {
  const { log } = under.api.services.accept;
  const nowMicros = Date.now() * 1_000;
  const times = { receivedAtMicros: nowMicros, createdAtMicros: nowMicros, modifiedAtMicros: nowMicros };
  const by = { tenantId: under.workspaceId, userId: under.workspaceId, key: 'late', sourceType: 'api' };
  const event = { ...by, ...times, runId, id, comment: Buffer.from('"content of feedback"') };
  await log.publish(feedbackEvents, [toFeedbackMessage(event, log, under.api.services.config)]);
  await under.api.settled();
  return id;
}

async function readWhole({ traceId, childId }: SentTrace) {
  const runs = [];
  for (const id of [traceId, childId]) {
    const url = `/runs/${id}`;
    const { statusCode, body } = await under.api.server.inject({ url, headers: { 'x-api-key': under.key } });
    const { s3_urls, ...run } = JSON.parse(body);
    // A name that occurs twice would be lost by parsing.
    runs.push({ status: statusCode, run, attachments: body.match(/attachment\.\w+(?=":)/g) ?? [] });
  }
  return runs;
}

describe('keeping a trace', () => {
  it.each([
    ['feedback on a child', (trace: SentTrace) => giveFeedback(trace.childId)],
    [
      'a request',
      async ({ projectId, traceId }: SentTrace) => {
        const body = { session_id: projectId, trace_ids: [traceId] };
        expect((await under.ask('POST', '/runs/keep', body)).status).toBe(200);
      },
    ],
  ])('%s: all its rows get the longer lifetime, with the same values', async (_, keep) => {
    const projectId = await under.addProject('shortlived');
    const [kept, other] = [await under.sendTrace(projectId, 10), await under.sendTrace(projectId, 10)];
    await keep(kept);
    const before = await readWhole(kept);
    const long = { trace_tier: 'longlived', ttl_seconds: 400 * 86_400 };
    const expected = before.map((each) => ({ ...each, run: { ...each.run, ...long } }));
    await under.change();
    expect(await readWhole(kept)).toEqual(expected);
    await expireShortRows();
    expect(await under.storedRows(kept)).toMatchObject(oneTrace);
    expect(await under.storedRows(other)).toEqual(nothing);
    const after = await readWhole(kept);
    expect(after).toEqual(expected);
    expect(after[0]?.attachments).toEqual(['attachment.notes']);
  });

  it('keeps the feedback, too', async () => {
    const trace = await under.sendTrace(await under.addProject('shortlived'), 10);
    await giveFeedback(trace.traceId);
    await under.change();
    await expireShortRows();
    expect((await under.ask('GET', `/feedback?run=${trace.traceId}`)).body).toMatchObject([
      { comment: 'content of feedback' },
    ]);
  });

  it('covers runs that were on their way the first time, and forgets the request after the second time', async () => {
    const trace = await under.sendTrace(await under.addProject('shortlived'), 10);
    await giveFeedback(trace.traceId);
    await under.change();
    const late = await under.sendLateChild(trace, 10);
    // The same state as if the sink had not known the mark when it stored the child.
    const values = `trace_tier = 1, expires_at = now() + INTERVAL 4 DAY WHERE id = '${late}' SETTINGS mutations_sync = 2`;
    await under.runOnTable('runs', (stored) => `ALTER TABLE ${stored} UPDATE ${values}`);
    await under.change('again');
    await expireShortRows();
    expect((await under.readRuns(trace.traceId)).sort()).toEqual([trace.traceId, trace.childId, late].sort());
    expect(await under.api.database.query('SELECT FROM trace_changes WHERE run_id = $1', [trace.traceId])).toEqual([]);
  });

  it.each([
    ['with extend_trace_retention false', 10, { extend_trace_retention: false }],
    ['after the trace has expired', 15, {}],
  ])('does not happen by feedback %s', async (_, daysAgo, more) => {
    const trace = await under.sendTrace(await under.addProject('shortlived'), daysAgo);
    await giveFeedback(trace.traceId, more);
    await under.change();
    const rows = `SELECT max(trace_tier) AS tier FROM runs WHERE trace_id = '${trace.traceId}'`;
    expect(await under.sql(rows)).toEqual([{ tier: 1 }]);
  });

  it('waits for a run that is not stored yet', async () => {
    const trace = { projectId: await under.addProject('shortlived'), traceId: randomUUID(), childId: randomUUID() };
    const later = await under.sendTrace(trace.projectId, 10);
    await giveFeedback(trace.traceId);
    await under.change();
    const waiting = await under.api.database.query<{ second: boolean }>(
      'SELECT is_second AS second FROM trace_changes WHERE run_id = $1',
      [trace.traceId],
    );
    expect(waiting).toEqual([{ second: false }]);
    expect(await under.storedRows(later)).toMatchObject(oneTrace);
  });

  it.each([
    ['before', [1, 0]],
    ['after', [0, 1]],
  ])('is not prevented by a request in another project %s it', async (_, order) => {
    const projects = [await under.addProject('shortlived'), await under.addProject()] as const;
    const { traceId } = await under.sendTrace(projects[0], 10);
    for (const index of order) {
      const body = { session_id: projects[index], trace_ids: [traceId] };
      expect((await under.ask('POST', '/runs/keep', body)).status).toBe(200);
    }
    await under.change();
    expect(await under.sql(`SELECT max(trace_tier) AS tier FROM runs WHERE trace_id = '${traceId}'`)).toEqual([
      { tier: 2 },
    ]);
  });

  it('does not concern traces of another project', async () => {
    const trace = await under.sendTrace(await under.addProject('shortlived'), 10);
    const body = { session_id: await under.addProject(), trace_ids: [trace.traceId] };
    expect((await under.ask('POST', '/runs/keep', body)).status).toBe(200);
    await under.change();
    const rows = `SELECT max(trace_tier) AS tier FROM runs WHERE trace_id = '${trace.traceId}'`;
    expect(await under.sql(rows)).toEqual([{ tier: 1 }]);
  });
});

async function addStreamEvent(runId: string): Promise<void> {
  await under.command(
    `INSERT INTO stream_events (version, organization_id, thread_id, run_id, attempt, seq, expires_at, data)
     SELECT 1, '${under.deploymentId}', generateUUIDv4(), '${runId}', 1, 1, now() + INTERVAL 1 DAY, 'streamed content'`,
  );
}

describe('deleting traces', () => {
  it('by id deletes runs, attachments, feedback and streamed events, and leaves other traces and the bill', async () => {
    const projectId = await under.addProject();
    const [gone, stays] = [await under.sendTrace(projectId, 1), await under.sendTrace(projectId, 1)];
    for (const { traceId } of [gone, stays]) {
      await giveFeedback(traceId);
      await addStreamEvent(traceId);
    }
    const billed = await under.billed();
    const { s3_urls: urls } = (await under.ask('GET', `/runs/${gone.traceId}`)).body;
    const body = { session_id: projectId, trace_ids: [gone.traceId.toUpperCase()] };
    expect((await under.ask('POST', '/runs/delete', body)).status).toBe(200);
    await under.change();

    expect(await under.readRuns(gone.traceId)).toEqual([]);
    for (const id of [gone.traceId, gone.childId]) expect((await under.ask('GET', `/runs/${id}`)).status).toBe(404);
    const link = new URL(urls['attachment.notes'].presigned_url).pathname;
    expect((await under.api.server.inject({ url: link })).statusCode).toBe(404);
    expect(await under.contents(gone)).toBe(0);
    expect(await under.storedRows(gone)).toMatchObject({ runs: 0, run_locator: 0, attachments: 0, feedback: 0 });
    await under.change('again');
    expect(await under.storedRows(gone)).toEqual(nothing);
    expect(await under.storedRows(stays)).toEqual({ ...oneTrace, feedback: 1 });
    expect(await under.contents(stays)).toBe(5);
    expect(await under.billed()).toBe(billed);
  });

  it('by metadata deletes the traces that have a run with all pairs, in this project only', async () => {
    const [projectId, otherProject] = [await under.addProject(), await under.addProject()];
    const customer = { customer: 'x" OR 1', plan: 7, extra: true };
    const gone = await under.sendTrace(projectId, 1, customer);
    const stay = [
      await under.sendTrace(projectId, 1, { ...customer, plan: 8 }),
      await under.sendTrace(projectId, 1, { customer: customer.customer }),
      await under.sendTrace(otherProject, 1, customer),
    ];
    const body = { session_id: projectId, metadata: { customer: 'x" OR 1', plan: '7' } };
    expect((await under.ask('POST', '/runs/delete', body)).status).toBe(200);
    await under.change();
    expect(await under.contents(gone)).toBe(0);
    for (const trace of stay) expect((await under.readRuns(trace.traceId)).length).toBe(2);
  });

  it('goes on in other projects when it fails in one', async () => {
    const [failing, other] = [await under.addProject(), await under.addProject()];
    const traces = [await under.sendTrace(failing, 0), await under.sendTrace(other, 0)] as const;
    for (const { projectId, traceId } of traces) {
      await under.ask('POST', '/runs/delete', { session_id: projectId, trace_ids: [traceId] });
    }
    const { clickhouse, database } = under.api.services;
    const command: typeof clickhouse.command = (sent) =>
      sent.params?.project === failing ? Promise.reject(new Error('as intended')) : clickhouse.command(sent);
    const { log } = under.api.services.system;
    const deps = { clickhouse: { ...clickhouse, command }, database, log, config: retentionConfig };
    await expect(changeTraces(deps)).rejects.toThrow('as intended');
    expect(await under.readRuns(traces[0].traceId)).toHaveLength(2);
    expect(await under.readRuns(traces[1].traceId)).toEqual([]);
    await under.change('again');
    expect(await under.readRuns(traces[0].traceId)).toEqual([]);
  });

  it('covers what arrives between the two times', async () => {
    const trace = await under.sendTrace(await under.addProject(), 1);
    const body = { session_id: trace.projectId, trace_ids: [trace.traceId] };
    expect((await under.ask('POST', '/runs/delete/traces', body)).status).toBe(200);
    await under.change();
    const late = await under.sendLateChild(trace, 1);
    await publishFeedback(late);
    await publishFeedback(trace.traceId);
    await under.change('again');
    expect(await under.contents({ ...trace, childId: late })).toBe(0);
    expect((await under.ask('GET', `/runs/${late}`)).status).toBe(404);
    expect(await under.storedRows(trace)).toEqual(nothing);
    expect(
      await under.api.database.query('SELECT FROM trace_changes WHERE session_id = $1', [trace.projectId]),
    ).toEqual([]);
  });

  it('refuses feedback on them, and does not store what the log has already', { timeout: 60_000 }, async () => {
    const trace = await under.sendTrace(await under.addProject(), 1);
    const feedbackId = randomUUID();
    await giveFeedback(trace.traceId, { id: feedbackId });
    const body = { session_id: trace.projectId, trace_ids: [trace.traceId] };
    expect((await under.ask('POST', '/runs/delete/traces', body)).status).toBe(200);
    await under.change();
    const late = await under.sendLateChild(trace, 1);
    const give = (run_id: string, more: object = {}) =>
      under.ask('POST', '/feedback', { id: randomUUID(), run_id, key: 'late', score: 1, ...more });
    for (const [run, more] of [
      [trace.traceId, {}],
      [late, {}],
      [trace.childId, { trace_id: trace.traceId }],
      // Its run is not stored any more, so its trace is not known.
      [trace.childId, {}],
    ] as const)
      expect(await give(run, more)).toMatchObject({ status: 404, body: { code: 'NOT_FOUND' } });
    expect((await under.ask('PATCH', `/feedback/${feedbackId}`, { score: 0 })).status).toBe(404);

    // The sink needs a few seconds at most until it looks for marks.
    await expect
      .poll(
        async () => {
          const id = await publishFeedback(trace.traceId);
          await publishFeedback(late, id);
          await publishFeedback(trace.childId, id);
          return (await under.ask('GET', `/feedback/${id}`)).status;
        },
        { timeout: 20_000, interval: 500 },
      )
      .toBe(404);
    // The second deletion removes what was stored before the sink found the mark.
    await under.change('again');
    const listed = await under.ask('GET', `/feedback?run=${trace.traceId}&run=${late}&run=${trace.childId}`);
    expect(listed.body).toEqual([]);
    for (const run of [trace.traceId, trace.childId, late]) expect(await give(run)).toMatchObject({ status: 404 });
  });

  it('deletes its deferred events and dead-letter records', async () => {
    const trace = await under.sendTrace(await under.addProject(), 1);
    await under.api.database.execute(
      `INSERT INTO deferred_events (topic, partition, log_offset, version, tenant_id, trace_id, key, value, headers)
       VALUES ('run-events', 0, 1, 1, $1, $2, 'key', 'content', '{}')`,
      [under.workspaceId, trace.traceId],
    );
    for (const [topic, id] of [
      ['run-events', trace.traceId],
      ['attachment-events', trace.childId],
      ['feedback-events', trace.childId],
    ]) {
      await under.api.database.execute(
        `INSERT INTO dead_letters (topic, partition, log_offset, key, value, headers, reason, step)
         VALUES ($1, 0, 1, convert_to($2, 'UTF8'), 'content', '{}', 'test', 'insert')`,
        [topic, `${under.workspaceId}:${id}`],
      );
    }
    const body = { session_id: trace.projectId, trace_ids: [trace.traceId] };
    expect((await under.ask('POST', '/runs/delete', body)).status).toBe(200);
    await under.change();
    for (const table of ['deferred_events', 'dead_letters']) {
      expect(await under.api.database.query(`SELECT FROM ${table}`)).toEqual([]);
    }
  });

  it.each([
    ['neither ids nor metadata', {}, 400],
    ['both', { trace_ids: [randomUUID()], metadata: { a: 'b' } }, 400],
    ['empty metadata', { metadata: {} }, 400],
    ['an empty list', { trace_ids: [] }, 422],
  ])('refuses %s', async (_, body, status) => {
    const projectId = await under.addProject();
    expect((await under.ask('POST', '/runs/delete', { session_id: projectId, ...body })).status).toBe(status);
  });

  it.each(['/runs/delete', '/runs/delete/traces', '/runs/keep'])('%s: 404 for an unknown project', async (url) => {
    const body = { session_id: randomUUID(), trace_ids: [randomUUID()] };
    expect((await under.ask('POST', url, body)).status).toBe(404);
  });
});

describe('statistics of changed traces', () => {
  const countRuns = async (projectId: string) => {
    const stats = await under.ask('POST', '/runs/stats', { session: [projectId], select: ['run_count'] });
    return stats.body.run_count as number;
  };
  const listFacts = async () => {
    await runRollUp(under.api.services);
    while ((await runFactRollUp(under.api.services, { minAgeSeconds: 0 })).more);
    expect(await readDirtyHours(under.api.database, under.workspaceId)).toEqual([]);
  };
  /** Returns how many facts of the trace are stored; with `replaced`, also in rows that were replaced. */
  const countFacts = async ({ traceId }: SentTrace, replaced?: 'replaced') => {
    const [row] = await under.sql<{ facts: number }>(
      `SELECT count() AS facts FROM run_facts ${replaced ? '' : 'FINAL'}
       ARRAY JOIN \`runs.trace_id\` AS trace WHERE trace = '${traceId}'`,
    );
    return row?.facts;
  };

  it('leave out deleted traces, whose facts are deleted, too', async () => {
    const projectId = await under.addProject();
    const [gone, stays] = [await under.sendTrace(projectId, 1), await under.sendTrace(projectId, 1)];
    await listFacts();
    expect([await countRuns(projectId), await countFacts(gone), await countFacts(stays)]).toEqual([4, 2, 2]);
    await under.ask('POST', '/runs/delete', { session_id: projectId, trace_ids: [gone.traceId] });
    await under.change();
    expect([await countRuns(projectId), await countFacts(gone, 'replaced')]).toEqual([2, 0]);
    await listFacts();
    expect([await countRuns(projectId), await countFacts(gone, 'replaced'), await countFacts(stays)]).toEqual([
      2, 0, 2,
    ]);
  });

  it('leave them out even if facts were listed while the traces were deleted', async () => {
    const projectId = await under.addProject();
    const [gone] = [await under.sendTrace(projectId, 1), await under.sendTrace(projectId, 1)];
    await listFacts();
    const facts = `SELECT * REPLACE (roll_up + 1000000 AS roll_up) FROM run_facts WHERE session_id = '${projectId}'`;
    // In a cluster, only this server has the temporary table.
    const [server] = under.api.services.clickhouse.servers;
    await server?.command({ name: 'test', sql: `CREATE TABLE former_facts ENGINE = Memory AS ${facts}` });
    await under.ask('POST', '/runs/delete', { session_id: projectId, trace_ids: [gone.traceId] });
    await under.change();
    await listFacts();
    await server?.command({ name: 'test', sql: 'INSERT INTO run_facts SELECT * FROM former_facts' });
    expect(await countRuns(projectId)).toBe(4);
    await under.change('again');
    expect([await countRuns(projectId), await countFacts(gone, 'replaced')]).toEqual([2, 0]);
    await listFacts();
    expect(await countRuns(projectId)).toBe(2);
  });

  it('include kept traces after the others have expired', async () => {
    const projectId = await under.addProject('shortlived');
    const [kept] = [await under.sendTrace(projectId, 10), await under.sendTrace(projectId, 10)];
    await listFacts();
    await under.ask('POST', '/runs/keep', { session_id: projectId, trace_ids: [kept.traceId] });
    await under.change();
    await listFacts();
    const rows = await under.sql(
      `SELECT trace_id, dateDiff('day', now(), expiry) > 300 AS is_kept, count() AS runs FROM run_facts FINAL
       ARRAY JOIN \`runs.trace_id\` AS trace_id, \`runs.expires_at\` AS expiry
       WHERE session_id = '${projectId}' GROUP BY ALL ORDER BY is_kept`,
    );
    expect(rows).toEqual([
      { trace_id: expect.not.stringMatching(kept.traceId), is_kept: 0, runs: 2 },
      { trace_id: kept.traceId, is_kept: 1, runs: 2 },
    ]);
  });
});
