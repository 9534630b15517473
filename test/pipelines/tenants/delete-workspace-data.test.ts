import { randomUUID } from 'node:crypto';
import { RunTree, Client as TracingClient } from 'langsmith';
import { beforeAll, describe, expect, it } from 'vitest';
import { insertDeadLetter } from '../../../infra/event-log/in-process/dead-letter-queue.ts';
import { deleteWorkspaceData, requeueWorkspaceDeletions } from '../../../pipelines/tenants/delete-workspace-data.ts';
import { addOrganizationDeployment } from '../../agents/add-deployment.ts';
import { addExport } from '../../api/add-export.ts';
import { addOrganization, startApi } from '../../api/start-api.ts';
import { isLogicalTable } from '../../engines/on-stored-table.ts';
import { forSuite } from '../../for-suite.ts';

/** Deletes one of two workspaces that have a row in every table. */

interface WorkspaceUnderTest {
  readonly id: string;
  readonly deploymentId: string;
  readonly attachmentUrl: string;
  readonly feedbackUrl: string;
  readonly exportId: string;
  readonly destinationId: string;
}

/** Tables whose rows remain: names that usage reports show, reports, and records of exports. */
const stays = {
  postgres: [
    'deployments',
    'projects',
    'bulk_exports',
    'bulk_export_destinations',
    'audit_logs',
    'bulk_export_runs',
    'usage_dirty_hours',
    'fact_dirty_hours',
  ],
  clickhouse: ['traces', 'usage_daily', 'usage_hourly'],
  // Their rows are deleted by the second purge.
  locators: ['run_locator', 'trace_locations', 'event_versions'],
};

const api = forSuite(() => startApi({ services: { enqueueWorkspaceDeletion: async (id) => void queued.push(id) } }));
let apiUrl: string;
const owner = forSuite(() => addOrganization(api.database, 'owner'));
let deletedWorkspace: WorkspaceUnderTest;
let kept: WorkspaceUnderTest;
const queued: string[] = [];

beforeAll(async () => {
  apiUrl = await api.listen();
  const [first, second] = owner.workspaceIds;
  const deploymentId = await addOrganizationDeployment(api.database, { organizationId: owner.id, workspaceId: second });
  kept = await fill(first, owner.workspaceKeys[0], owner.id);
  deletedWorkspace = await fill(second, owner.workspaceKeys[1], deploymentId);
}, 120_000);

async function fill(id: string, key: string, deploymentId: string): Promise<WorkspaceUnderTest> {
  const client = new TracingClient({ apiUrl, apiKey: key, callerOptions: { maxRetries: 0 } });
  const run = new RunTree({ name: 'r', client, attachments: { a: ['text/plain', Buffer.from('attached')] } });
  await run.postRun();
  await client.awaitPendingTraceBatches();
  await api.settled();
  const headers = { 'x-api-key': key, host: new URL(apiUrl).host };
  const read = (await api.server.inject({ url: `/runs/${run.id}`, headers })).json();
  const payload = { run_id: run.id, key: 'correctness' };
  expect((await api.server.inject({ method: 'POST', url: '/feedback', headers, payload })).statusCode).toBe(200);

  const { database, services } = api;
  await client.createProject({ projectName: 'd', description: 'of a customer', metadata: { customer: 'ada' } });
  const dataset = await client.createDataset('d');
  await client.createExample({
    ...{ dataset_id: dataset.id, inputs: {} },
    attachments: { a: ['text/plain', Buffer.from('attached')] },
  });
  const record = {
    partition: 0,
    offset: Date.now(),
    key: `${id}:${run.id}`,
    value: Buffer.from('x'),
    headers: {},
    version: 1n,
  };
  await insertDeadLetter(database, 'run-events', record, 'test', 'insert');
  await database.execute(
    `INSERT INTO deferred_events (topic, partition, log_offset, version, tenant_id, trace_id, key, value, headers)
     SELECT topic, partition, log_offset, 1, $1, $2, key, value, headers FROM dead_letters WHERE key = $3`,
    [id, run.id, Buffer.from(record.key)],
  );
  const [assistantId, threadId, runId, cronId] = [randomUUID(), randomUUID(), randomUUID(), randomUUID()];
  const insert = (table: string, row: Readonly<Record<string, unknown>>) =>
    database.execute(
      `INSERT INTO agents.${table} (${Object.keys(row).join()}) VALUES (${Object.keys(row).map((_, at) => `$${at + 1}`)})`,
      Object.values(row),
    );
  const deployment = { deployment_id: deploymentId };
  const assistant = { ...deployment, assistant_id: assistantId, graph_id: 'echo' };
  await insert('assistants', { ...assistant, name: 'echo' });
  const version = { version: 1, name: 'echo', config: {}, metadata: {} };
  await insert('assistant_versions', { ...assistant, ...version });
  await insert('threads', { ...deployment, thread_id: threadId });
  await insert('runs', { ...assistant, thread_id: threadId, run_id: runId, status: 'pending', kwargs: {} });
  const cron = { ...deployment, cron_id: cronId };
  await insert('crons', {
    ...cron,
    assistant_id: assistantId,
    thread_id: threadId,
    schedule: '* * * * *',
    payload: {},
  });
  await insert('cron_firings', { ...cron, due_at: '2026-03-05T00:00:00Z' });
  await insert('webhooks', { ...deployment, run_id: runId, url: 'http://127.0.0.1:1/', body: {} });
  const item = { ...deployment, namespace: ['a'], key: 'k' };
  await insert('store_items', { ...item, value: {}, searchable: {} });
  await insert('store_vectors', { ...item, path: '$', embedding: [1] });
  const state = { thread_id: `${deploymentId}:${threadId}` };
  await insert('checkpoints', { ...state, checkpoint_id: 'c', checkpoint: {} });
  await insert('checkpoint_blobs', { ...state, channel: 'x', version: '1', type: 'json' });
  const write = { task_id: 't', idx: 0, channel: 'x', blob: Buffer.from('x') };
  await insert('checkpoint_writes', { ...state, checkpoint_id: 'c', ...write });
  await services.clickhouse.command({
    name: 'test',
    sql: `INSERT INTO stream_events (organization_id, thread_id, run_id, attempt, seq, expires_at)
      VALUES ('${deploymentId}', '${threadId}', '${runId}', 1, 1, now() + 1000)`,
  });

  await addOAuthToken(id, key);
  const made = await addExport(database, { workspaceId: id, projectId: read.session_id, word: 'export' });
  await database.execute(
    `UPDATE bulk_export_destinations SET sealed_credentials = 'sealed', credentials_keys = '{access_key_id}' WHERE id = $1`,
    [made.destinationId],
  );
  const link = await api.ask(key, 'POST', '/feedback/tokens', { run_id: run.id, feedback_key: 'k' });
  return {
    ...{ id, deploymentId, exportId: made.exportId, destinationId: made.destinationId },
    attachmentUrl: read.s3_urls['attachment.a'].presigned_url,
    feedbackUrl: `${apiUrl}/feedback/tokens/${link.body.id}?score=1`,
  };
}

/** Adds a token that is connected with an agent, and a pending authentication; the first call adds the provider. */
async function addOAuthToken(workspaceId: string, key: string): Promise<void> {
  const urls = { auth_url: 'https://example.com/auth', token_url: 'https://example.com/token' };
  const provider = { provider_id: 'mail', name: 'mail', client_id: 'client', ...urls };
  await api.ask(owner.adminKey, 'POST', '/v2/auth/providers', provider);
  const [token] = await api.database.query<{ id: string }>(
    `INSERT INTO oauth_tokens (id, workspace_id, provider, user_id, scopes, sealed_access_token, for_any_agent, is_default)
     SELECT gen_random_uuid(), $1, id, $2, '{}', 'sealed', true, true FROM oauth_providers RETURNING id`,
    [workspaceId, owner.userId],
  );
  const connections = '/v2/auth/agents/agent/connections';
  expect(await api.ask(key, 'POST', connections, { oauth_token_id: token?.id })).toMatchObject({ status: 201 });
  const pending = await api.ask(key, 'POST', '/v2/auth/authenticate', { provider: 'mail', scopes: ['more'] });
  expect(pending).toMatchObject({ status: 200, body: { status: 'pending' } });
}

const sortedNames = (rows: readonly { name: string }[]) => rows.map(({ name }) => name).sort();

/** Returns the tables with rows of the workspace. Checks every table with a column that can name the workspace. */
async function tablesWithRows({ id, deploymentId }: WorkspaceUnderTest) {
  const { database, services } = api;
  const columns = await database.query<{ table: string; name: string; column: string }>(
    `SELECT table_schema || '.' || table_name AS table, table_name AS name, column_name AS column
     FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
     WHERE table_type = 'BASE TABLE' AND (column_name IN ('tenant_id', 'deployment_id')
       OR (column_name = 'workspace_id' AND table_name <> 'deployments')
       OR (column_name = 'thread_id' AND table_name LIKE 'checkpoint%') OR (column_name = 'key' AND table_name = 'dead_letters'))`,
  );
  const values: Readonly<Record<string, string>> = { tenant_id: id, workspace_id: id };
  const inPostgres: { name: string }[] = [];
  for (const { table, name, column } of columns) {
    const text = column === 'key' && name === 'dead_letters' ? `encode(key, 'escape')` : `${column}::text`;
    const prefix = name === 'dead_letters' ? id : (values[column] ?? deploymentId);
    const rows = await database.query(`SELECT FROM ${table} WHERE ${text} LIKE $1 LIMIT 1`, [`${prefix}%`]);
    if (rows.length > 0) inPostgres.push({ name });
  }
  const stored = await services.clickhouse.query<{ name: string; column: string }>({
    name: 'test',
    sql: `SELECT tables.name AS name, columns.name AS column FROM system.columns AS columns
      JOIN (SELECT database, name FROM system.tables WHERE ${isLogicalTable}) AS tables
        ON tables.database = columns.database AND tables.name = columns.table
      WHERE tables.database = currentDatabase() AND tables.name NOT IN ('run_events', 'run_keys')
        AND (columns.name = 'tenant_id' OR tables.name = 'stream_events' AND columns.name = 'organization_id')`,
  });
  const clickhouseTables: { name: string }[] = [];
  for (const { name, column } of stored) {
    const [row] = await services.clickhouse.query<{ rows: number }>({
      name: 'test',
      sql: `SELECT count() AS rows FROM ${name} WHERE ${column} IN ('${id}', '${deploymentId}')`,
    });
    if (Number(row?.rows) > 0) clickhouseTables.push({ name });
  }
  return { postgres: sortedNames(inPostgres), clickhouse: sortedNames(clickhouseTables) };
}

const purge = () =>
  deleteWorkspaceData(
    { ...api.services, ...api.services.exports, ...api.services.system },
    { workspaceId: deletedWorkspace.id },
  );
const link = async (url: string) => (await fetch(url)).status;

async function requeued(): Promise<string[]> {
  const ids: string[] = [];
  const enqueueWorkspaceDeletion = async (id: string) => void ids.push(id);
  await requeueWorkspaceDeletions({ database: api.database, enqueueWorkspaceDeletion });
  return ids;
}

describe('a workspace', () => {
  it('keeps its data if it is not deleted', async () => {
    const before = await tablesWithRows(deletedWorkspace);
    expect(before.postgres).toEqual(
      expect.arrayContaining(['deferred_events', 'dead_letters', 'webhooks', 'checkpoints', 'datasets', 'examples']),
    );
    expect(before.postgres).toEqual(
      expect.arrayContaining(['oauth_agent_connections', 'oauth_authentications', 'oauth_tokens']),
    );
    expect(before.clickhouse).toEqual(expect.arrayContaining(['runs', 'feedback', 'attachments', 'stream_events']));
    expect(before.clickhouse).toEqual(expect.arrayContaining([...stays.locators, 'traces']));
    await purge();
    expect(await tablesWithRows(deletedWorkspace)).toEqual(before);
    expect(await requeued()).toEqual([]);
    expect([await link(deletedWorkspace.attachmentUrl), await link(deletedWorkspace.feedbackUrl)]).toEqual([200, 200]);
  });

  it('disables its links at once on deletion, and queues the purge', async () => {
    const url = `/workspaces/${deletedWorkspace.id}`;
    const headers = { 'x-api-key': owner.adminKey };
    expect((await api.server.inject({ method: 'DELETE', url, headers })).statusCode).toBe(200);
    expect(queued).toEqual([deletedWorkspace.id]);
    expect([await link(deletedWorkspace.attachmentUrl), await link(deletedWorkspace.feedbackUrl)]).toEqual([404, 404]);
    expect([await link(kept.attachmentUrl), await link(kept.feedbackUrl)]).toEqual([200, 200]);
    // A crash may have lost the job, so it is queued again.
    expect(await requeued()).toEqual([deletedWorkspace.id]);
  });

  it('loses all data except its usage, its names and records of exports; other workspaces lose nothing', async () => {
    await api.settled();
    const others = await tablesWithRows(kept);
    for (let repeat = 0; repeat < 2; repeat += 1) {
      await purge();
      const left = await tablesWithRows(deletedWorkspace);
      expect([...stays.postgres, ...stays.clickhouse, ...stays.locators]).toEqual(
        expect.arrayContaining([...left.postgres, ...left.clickhouse]),
      );
      expect(left.clickhouse).toEqual(expect.arrayContaining(['traces', ...stays.locators]));
    }
    expect(await tablesWithRows(kept)).toEqual(others);
    const [destination] = await api.database.query(
      `SELECT status, sealed_credentials, credentials_keys FROM bulk_exports e
       JOIN bulk_export_destinations d ON d.id = e.destination_id WHERE e.id = $1`,
      [deletedWorkspace.exportId],
    );
    expect(destination).toEqual({ status: 'CANCELLED', sealed_credentials: null, credentials_keys: [] });
    const projects = (id: string) =>
      api.database.query(`SELECT description, extra, metadata FROM projects WHERE workspace_id = $1 AND name = 'd'`, [
        id,
      ]);
    expect(await projects(deletedWorkspace.id)).toEqual([{ description: null, extra: null, metadata: {} }]);
    expect(await projects(kept.id)).toMatchObject([{ description: 'of a customer', metadata: { customer: 'ada' } }]);
    expect(await requeued()).toEqual([]);
  });

  it('is purged again an hour later, including the run locators', async () => {
    await api.database.execute(
      `UPDATE workspaces SET deleted_at = deleted_at - interval '1 hour', purged_at = purged_at - interval '1 hour' WHERE id = $1`,
      [deletedWorkspace.id],
    );
    expect(await requeued()).toEqual([deletedWorkspace.id]);
    await purge();
    const { clickhouse } = await tablesWithRows(deletedWorkspace);
    expect(stays.clickhouse).toEqual(expect.arrayContaining(clickhouse));
    expect(clickhouse).toContain('traces');
    expect(await requeued()).toEqual([]);
  });
});
