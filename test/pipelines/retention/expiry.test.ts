import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { buildTraceHeaders, readAttachment } from '../../../pipelines/attachments/read-attachment.ts';
import { countMembers } from '../../../pipelines/exports/members.ts';
import { readDiskUse } from '../../../pipelines/retention/disk-use.ts';
import { allTimes } from '../../../pipelines/runs/run-columns.ts';
import { attachmentEvents } from '../../../schemas/topics.ts';
import { listTenantTables, storedBytes } from '../../engines/on-stored-table.ts';
import { forSuite } from '../../for-suite.ts';
import { dayMs, expiring, openRetention } from './retention-under-test.ts';

const under = forSuite(() => openRetention());

/** Makes ClickHouse apply `TTL` now. */
async function expireNow(): Promise<void> {
  for (const table of expiring)
    await under.runOnTable(
      table,
      (stored) => `OPTIMIZE TABLE ${stored} FINAL SETTINGS optimize_skip_merged_partitions = 0`,
    );
}

const nothing = { runs: 0, run_locator: 0, trace_locations: 0, attachments: 0, feedback: 0 };
const oneTrace = { runs: 2, run_locator: 2, trace_locations: 1, attachments: 1, feedback: 0 };

describe('a trace', () => {
  it('has the tier of its project, and a lifetime from its start', async () => {
    const short = await under.sendTrace(await under.addProject('shortlived'), 10);
    const defaultTierTrace = await under.sendTrace(await under.addProject(), 10);
    const read = async (id: string) => (await under.ask('GET', `/runs/${id}`)).body;
    expect(await read(short.childId)).toMatchObject({ trace_tier: 'shortlived', ttl_seconds: 14 * 86_400 });
    expect(await read(defaultTierTrace.childId)).toMatchObject({ trace_tier: 'longlived', ttl_seconds: 400 * 86_400 });
  });

  it('is in no answer from the second in which it expires, although its rows are stored', async () => {
    const trace = await under.sendTrace(await under.addProject('shortlived'), 15);
    expect((await under.ask('GET', `/runs/${trace.traceId}`)).status).toBe(404);
    expect(await under.readRuns(trace.traceId)).toEqual([]);
    await expireNow();
    expect(await under.storedRows(trace)).toMatchObject({ runs: 2, attachments: 1 });
  });

  it('leaves the disk with locators and attachments a week later, and stays on the bill', async () => {
    const before = await under.billed();
    const projectId = await under.addProject('shortlived');
    const expired = await under.sendTrace(projectId, 22);
    const stays = await under.sendTrace(projectId, 3);
    const longlived = await under.sendTrace(await under.addProject('longlived'), 22);
    expect(await under.billed()).toBe(before + 3);
    await expireNow();
    expect(await under.storedRows(expired)).toEqual(nothing);
    expect(await under.storedRows(stays)).toEqual(oneTrace);
    expect(await under.storedRows(longlived)).toEqual(oneTrace);
    await under.api.database.execute(
      'INSERT INTO usage_dirty_hours (tenant_id, hour) SELECT DISTINCT $1::uuid, h FROM unnest($2::timestamptz[]) AS hours (h)',
      [under.workspaceId, [22, 3].map((days) => new Date(Math.floor((Date.now() - days * dayMs) / 3.6e6) * 3.6e6))],
    );
    expect(await under.billed()).toBe(before + 3);
  });

  it('that has expired is not resurrected in part by a late event, and is not counted again', async () => {
    const trace = await under.sendTrace(await under.addProject('shortlived'), 22);
    await expireNow();
    const before = await under.billed();
    const late = await under.sendLateChild(trace, 22);
    expect((await under.ask('GET', `/runs/${late}`)).status).toBe(404);
    expect(await under.readRuns(trace.traceId)).toEqual([]);
    expect(await under.billed()).toBe(before);
    await expireNow();
    expect(await under.sql(`SELECT id FROM runs WHERE trace_id = '${trace.traceId}'`)).toEqual([]);
    expect(await under.sql(`SELECT run_id FROM attachments WHERE run_id = '${late}'`)).toEqual([]);
  });

  it('keeps its tier when the project changes, also for later runs', async () => {
    const projectId = await under.addProject('shortlived');
    const trace = await under.sendTrace(projectId, 10);
    await under.ask('PATCH', `/sessions/${projectId}`, { trace_tier: 'longlived' });
    const late = await under.sendLateChild(trace, 10);
    expect((await under.ask('GET', `/runs/${late}`)).body).toMatchObject({ trace_tier: 'shortlived' });
    const rows = await under.sql(`SELECT DISTINCT expires_at FROM runs WHERE trace_id = '${trace.traceId}'`);
    expect(rows).toHaveLength(1);
  });

  it('that was kept gives its lifetime to an attachment whose run is not stored yet', async () => {
    const trace = await under.sendTrace(await under.addProject('shortlived'), 10);
    const body = { session_id: trace.projectId, trace_ids: [trace.traceId] };
    expect((await under.ask('POST', '/runs/keep', body)).status).toBe(200);
    await under.change();
    const { log } = under.api.services.accept;
    const runId = randomUUID();
    const sender = { workspaceId: under.workspaceId, userId: runId, keyId: runId };
    const attachment = { runId, name: 'late', mimeType: 'text/plain', content: Buffer.from('content') };
    const message = readAttachment(sender, attachment, { log, config: under.api.services.config });
    const headers = buildTraceHeaders({ ...trace, traceTimeMicros: (Date.now() - 10 * dayMs) * 1_000 });
    await log.publish(attachmentEvents, [{ ...message, headers }]);
    await under.api.settled();
    const lifetimes = (table: string, condition: string) =>
      under.sql(`SELECT DISTINCT trace_tier, expires_at FROM ${table} FINAL WHERE ${condition}`);
    expect(await lifetimes('attachments', `run_id = '${runId}'`)).toEqual(
      await lifetimes('runs', `trace_id = '${trace.traceId}'`),
    );
  });
});

describe('an export', () => {
  it('contains runs that expire after its creation, and neither counts nor contains those that had expired', async () => {
    const projectId = await under.addProject('shortlived');
    await under.sendTrace(projectId, 15);
    await under.sendTrace(projectId, 10);
    const scope = (daysAgo: number) => ({
      ...{ tenantId: under.workspaceId, projectId, window: allTimes },
      membersUntilMicros: (Date.now() - daysAgo * dayMs) * 1_000,
    });
    const { clickhouse } = under.api.services;
    // All events were received now, so they are late for an export that was created days ago.
    expect(await countMembers(clickhouse, scope(-1))).toEqual({ members: 2, late: 0 });
    expect(await countMembers(clickhouse, scope(2))).toEqual({ members: 0, late: 4 });
  });
});

describe('disk use', () => {
  it('is divided between workspaces and tiers, in all what the tables with data of workspaces take', async () => {
    const { clickhouse, database } = under.api.services;
    const found = await listTenantTables(clickhouse);
    // Fails if a table is not counted: each one has a row.
    for (const { table, keys } of found) {
      const values = keys.map((key) => (key === 'expires_at' ? 'now() + INTERVAL 1 DAY' : 'generateUUIDv4()'));
      await clickhouse.command({ name: 'test', sql: `INSERT INTO ${table} (${keys}) SELECT ${values}` });
    }
    const tables = found.map(({ table }) => table);
    expect(tables).toEqual(expect.arrayContaining(['runs', 'usage_hourly', 'stream_events', 'event_versions']));
    // Parts may be merged between the two reads.
    await expect
      .poll(async () => {
        const uses = await readDiskUse({ clickhouse, database });
        const sum = uses.reduce((total, use) => total + use.bytes, 0);
        return Math.abs(sum - (await storedBytes(clickhouse, tables))) / uses.length;
      })
      .toBeLessThan(1);
    const own = (await readDiskUse({ clickhouse, database })).filter(
      ({ workspaceId }) => workspaceId === under.workspaceId,
    );
    expect(own.map(({ tier }) => String(tier)).sort()).toEqual(['longlived', 'shortlived', 'undefined']);
    expect(own[0]).toMatchObject({ workspace: 'acme 1', organization: 'acme' });
  });

  it('counts streamed events for the workspace of their deployment', async () => {
    const { clickhouse, database } = under.api.services;
    const deployment = randomUUID();
    await database.query(
      `INSERT INTO agents.deployments (deployment_id, organization_id, workspace_id, name)
       SELECT $1, organization_id, id, 'streams' FROM workspaces WHERE id = $2`,
      [deployment, under.workspaceId],
    );
    const bytes = async () =>
      (await readDiskUse({ clickhouse, database }))
        .filter(({ workspaceId, tier }) => workspaceId === under.workspaceId && tier === undefined)
        .map((use) => use.bytes);
    const [before] = await bytes();
    await clickhouse.command({
      name: 'test',
      sql: `INSERT INTO stream_events (organization_id, expires_at, data)
            SELECT {deployment:UUID}, now() + INTERVAL 1 DAY, randomString(1000000)`,
      params: { deployment },
    });
    const after = await bytes();
    expect(after).toHaveLength(1);
    expect(after[0]).toBeGreaterThan((before ?? 0) + 900_000);
  });
});
