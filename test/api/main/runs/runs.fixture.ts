import { randomUUID } from 'node:crypto';
import type { RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { insertEvents, json, noonMicros, runEvent } from '../../../pipelines/runs/run-events.ts';
import { type ApiUnderTest, addKey, addOrganization, type OrganizationUnderTest, startApi } from '../../start-api.ts';

export interface RunsApi {
  readonly api: ApiUnderTest;
  readonly ours: OrganizationUnderTest;
  readonly theirs: OrganizationUnderTest;
  /** A key of our first workspace without the permission to read runs. */
  readonly keyWithoutRunsRead: string;
  readonly projectId: string;
  readonly projectName: string;
  /** A trace of three runs: root, child, grandchild, one second apart. */
  readonly trace: readonly [RunEvent, RunEvent, RunEvent];
  ask(request: Ask): Promise<Answered>;
  close(): Promise<void>;
}

export interface Ask {
  readonly url: string;
  readonly key?: string;
  /** If set, the method is POST. */
  readonly body?: unknown;
}

export interface Answered {
  readonly status: number;
  readonly text: string;
  readonly type: string;
  readonly body: { readonly [name: string]: unknown; readonly runs: readonly Record<string, unknown>[] };
}

/** Starts the API with two organisations on their own stores; ours has a project with one trace. */
export async function startRunsApi(): Promise<RunsApi> {
  const api = await startApi();
  const ours = await addOrganization(api.database, 'ours');
  const theirs = await addOrganization(api.database, 'theirs');
  const tenantId = ours.workspaceIds[0];
  const keyWithoutRunsRead = await addKey({
    database: api.database,
    organizationId: ours.id,
    userId: ours.userId,
    workspaceIds: [tenantId],
    permissions: ['runs:write'],
  });
  const projectId = randomUUID();
  const projectName = `project ${projectId}`;
  await api.database.execute('INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, $3)', [
    projectId,
    tenantId,
    projectName,
  ]);
  const values = (name: string) => ({
    name,
    runType: 'chain' as const,
    inputs: json({ name }),
    outputs: Buffer.from('{"n":12345678901234567890}'),
    serialized: json({ lc: 1 }),
    endedAtMicros: noonMicros + 9_000_000,
  });
  const root = runEvent({ tenantId, projectId, values: values('root') });
  const inTrace = { tenantId, projectId, traceId: root.runId, traceTimeMicros: noonMicros };
  const child = runEvent({
    ...inTrace,
    startTimeMicros: noonMicros + 1_000_000,
    values: { ...values('child'), parentRunId: root.runId },
  });
  const grandchild = runEvent({
    ...inTrace,
    startTimeMicros: noonMicros + 2_000_000,
    values: { ...values('grandchild'), parentRunId: child.runId, error: Buffer.from('"boom"') },
  });
  const placed = { ...grandchild, dottedOrder: `${child.dottedOrder}.${grandchild.dottedOrder?.split('.')[1]}` };
  await insertEvents(api.services.clickhouse, [root, child, placed]);

  async function ask({ url, key = ours.workspaceKeys[0], body }: Ask): Promise<Answered> {
    const answer = await api.server.inject({
      url,
      method: body === undefined ? 'GET' : 'POST',
      headers: { 'x-api-key': key, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { payload: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const type = String(answer.headers['content-type']);
    return { status: answer.statusCode, text: answer.body, type, body: JSON.parse(answer.body) };
  }
  return {
    ...{ api, ours, theirs, keyWithoutRunsRead, projectId, projectName },
    ...{ trace: [root, child, placed], ask, close: () => api.close() },
  };
}
