import { randomUUID } from 'node:crypto';
import { loadConfig } from '../../../infra/config/load.ts';
import { formatDottedOrderSegment } from '../../../pipelines/ingest/run-event/dotted-order.ts';
import { createProject } from '../../../pipelines/projects/write-project.ts';
import { changeTraces } from '../../../pipelines/retention/change-traces.ts';
import type { TraceTier } from '../../../pipelines/retention/lifetimes.ts';
import { type ApiUnderTest, addOrganization, startApi } from '../../api/start-api.ts';
import { runOnStoredTable } from '../../engines/on-stored-table.ts';

const environment = { RUNLAKE_RETENTION_SHORTLIVED_DAYS: '14', RUNLAKE_RETENTION_LONGLIVED_DAYS: '400' };
const { retentionShortlivedDays, retentionLonglivedDays } = loadConfig(environment).config;
export const retentionConfig = { retentionShortlivedDays, retentionLonglivedDays };

export const dayMs = 86_400_000;

/** Tables whose rows expire with their trace. */
export const expiring = ['runs', 'run_locator', 'trace_locations', 'attachments', 'feedback'] as const;
export type ExpiringTable = (typeof expiring)[number];

export interface SentTrace {
  readonly projectId: string;
  readonly traceId: string;
  readonly childId: string;
}

export interface RetentionUnderTest {
  readonly api: ApiUnderTest;
  readonly key: string;
  readonly workspaceId: string;
  readonly deploymentId: string;
  addProject(tier?: TraceTier): Promise<string>;
  /** Stores a trace that began `daysAgo` and consists of a root with an attachment, and a child. */
  sendTrace(projectId: string, daysAgo: number, metadata?: object): Promise<SentTrace>;
  storeTrace(trace: SentTrace, daysAgo: number, metadata?: object): Promise<void>;
  sendLateChild(trace: SentTrace, daysAgo: number, metadata?: object): Promise<string>;
  ask: ApiUnderTest['ask'] extends (key: string, ...rest: infer Rest) => infer Answer
    ? (...rest: Rest) => Answer
    : never;
  /** Returns the ids of the runs of a trace that a query returns. */
  readRuns(traceId: string): Promise<string[]>;
  /** Returns the number of rows that belong to a trace, by table, after merging. */
  storedRows(trace: SentTrace): Promise<Record<ExpiringTable, number>>;
  /** Returns the number of rows in ClickHouse, in any table, that contain a text which only the trace has. */
  contents(trace: SentTrace): Promise<number>;
  /**
   * Runs the job. `again` makes the requests due that wait for their second execution, `behind` lets the log say that its
   * events are not stored yet.
   */
  change(again?: 'again', behind?: 'behind'): Promise<void>;
  /** Returns the number of traces on the bill of the workspace. */
  billed(): Promise<number>;
  sql<Row>(sql: string): Promise<Row[]>;
  command(sql: string): Promise<void>;
  /** Runs a statement on the table that stores the rows. */
  runOnTable(table: string, statement: (stored: string) => string): Promise<void>;
  close(): Promise<void>;
}

export async function openRetention(): Promise<RetentionUnderTest> {
  const api = await startApi({ config: retentionConfig });
  const owner = await addOrganization(api.database, 'acme');
  const [workspaceId] = owner.workspaceIds;
  const [key] = owner.workspaceKeys;
  const { clickhouse } = api.services;
  const sql = <Row>(text: string) => clickhouse.query<Row>({ name: 'test', sql: text });
  const command = (text: string) => clickhouse.command({ name: 'test', sql: text });

  function run(id: string, trace: SentTrace, daysAgo: number, more: object = {}) {
    const startMicros = (Date.now() - daysAgo * dayMs) * 1_000;
    const root = formatDottedOrderSegment(startMicros, trace.traceId);
    return {
      ...{ id, trace_id: trace.traceId, session_id: trace.projectId, name: 'run', run_type: 'chain' },
      start_time: new Date(startMicros / 1_000).toISOString(),
      ...(id === trace.traceId
        ? { dotted_order: root }
        : {
            dotted_order: `${root}.${formatDottedOrderSegment(startMicros + 1_000, id)}`,
            parent_run_id: trace.traceId,
          }),
      inputs: { secret: 'content of the run' },
      ...more,
    };
  }

  async function sendParts(parts: readonly { name: string; type: string; body: string }[]) {
    const lines = parts.flatMap(({ name, type, body }) => [
      ...['--cut', `Content-Disposition: form-data; name="${name}"`, `Content-Type: ${type}; length=${body.length}`],
      ...['', body],
    ]);
    const answer = await api.server.inject({
      method: 'POST',
      url: '/runs/multipart',
      headers: { 'x-api-key': key, 'content-type': 'multipart/form-data; boundary=cut' },
      payload: [...lines, '--cut--', ''].join('\r\n'),
    });
    if (answer.statusCode !== 202) throw new Error(answer.body);
    await api.settled();
  }

  const post = (each: { id: string }) => ({
    ...{ name: `post.${each.id}`, type: 'application/json', body: JSON.stringify(each) },
  });

  const under: RetentionUnderTest = {
    api,
    key,
    workspaceId,
    deploymentId: owner.id,
    sql,
    command,
    runOnTable: (table, statement) => runOnStoredTable(clickhouse, table, statement),
    close: () => api.close(),
    async addProject(tier) {
      const project = { name: randomUUID(), traceTier: tier };
      return (await createProject(api.database, workspaceId, project, { upsert: false, maxProjects: 1_000 })).id;
    },
    async sendTrace(projectId, daysAgo, metadata = {}) {
      const trace = { projectId, traceId: randomUUID(), childId: randomUUID() };
      await under.storeTrace(trace, daysAgo, metadata);
      return trace;
    },
    async storeTrace(trace, daysAgo, metadata = {}) {
      await sendParts([
        post(run(trace.traceId, trace, daysAgo)),
        { name: `attachment.${trace.traceId}.notes`, type: 'text/plain', body: 'content of the attachment' },
        post(run(trace.childId, trace, daysAgo, { extra: { metadata } })),
      ]);
    },
    async sendLateChild(trace, daysAgo, metadata = {}) {
      const id = randomUUID();
      await sendParts([
        post(run(id, trace, daysAgo, { extra: { metadata } })),
        { name: `attachment.${id}.notes`, type: 'text/plain', body: 'content of the attachment' },
      ]);
      return id;
    },
    ask: (method, url, payload) => api.ask(key, method, url, payload),
    async readRuns(traceId) {
      const { body } = await api.ask(key, 'POST', '/runs/query', { trace: traceId, select: ['id'] });
      return body.runs.map(({ id }: { id: string }) => id);
    },
    async storedRows({ traceId, childId }) {
      const ofRuns = `IN ('${traceId}', '${childId}')`;
      const count = async (table: ExpiringTable) => {
        const condition = {
          run_locator: `id ${ofRuns}`,
          attachments: `run_id ${ofRuns}`,
          feedback: `run_id ${ofRuns}`,
        };
        const [row] = await sql<{ rows: number }>(
          `SELECT count() AS rows FROM ${table} FINAL WHERE ${{ ...condition }[table as 'feedback'] ?? `trace_id = '${traceId}'`}`,
        );
        return [table, row?.rows ?? -1] as const;
      };
      return Object.fromEntries(await Promise.all(expiring.map(count))) as Record<ExpiringTable, number>;
    },
    async contents({ traceId, childId }) {
      const ids = `('${traceId}', '${childId}')`;
      const [row] = await sql<{ rows: number }>(
        `SELECT (SELECT count() FROM runs WHERE trace_id = '${traceId}' AND isNotNull(inputs))
           + (SELECT count() FROM attachments WHERE run_id IN ${ids}) + (SELECT count() FROM feedback WHERE run_id IN ${ids})
           + (SELECT count() FROM stream_events WHERE run_id IN ${ids}) AS rows`,
      );
      return row?.rows ?? -1;
    },
    async change(again, behind) {
      if (again) await api.database.execute('UPDATE trace_changes SET due_at = now()');
      const log = behind ? { position: async () => ({ 0: 1 }), isStored: async () => false } : api.services.system.log;
      await changeTraces({ ...api.services, log, config: retentionConfig }, undefined, behind && 0);
    },
    async billed() {
      const { runRollUp } = await import('../../../pipelines/usage/rollup.ts');
      await runRollUp(api.services);
      const [row] = await sql<{ traces: number }>(
        `SELECT sum(arraySum(traces)) AS traces FROM usage_hourly FINAL
         WHERE tenant_id = '${workspaceId}' AND dimension = 'workspace'`,
      );
      return row?.traces ?? -1;
    },
  };
  return under;
}
