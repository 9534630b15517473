/** Requests of the tenants of the bench `fairness`. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { Agent, fetch } from 'undici';

export interface Tenant {
  readonly key: string;
  readonly workspaceId: string;
  readonly projectId: string;
  readonly destinationId: string;
}

export interface Addresses {
  readonly main: string;
  readonly agents: string;
}

const dispatcher = new Agent({ connections: 256, headersTimeout: 0, bodyTimeout: 0 });

/** Closes all connections. */
export const disconnect = (): Promise<void> => dispatcher.destroy();

/** Sends until it is accepted: the time of refused attempts counts. */
async function send<Answer>(
  { key }: Pick<Tenant, 'key'>,
  url: string,
  { method = 'POST', body, signal }: { method?: string; body?: object; signal?: AbortSignal | undefined },
): Promise<Answer> {
  for (;;) {
    const answer = await fetch(url, {
      method,
      headers: { 'x-api-key': key, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(signal && { signal }),
      dispatcher,
    });
    const text = await answer.text();
    if (answer.ok) return JSON.parse(text) as Answer;
    assert.ok(answer.status === 503 || answer.status === 429, `${url}: ${answer.status} ${text}`);
    await pause(1_000 * Number(answer.headers.get('retry-after') ?? 1), undefined, signal && { signal });
  }
}

/** Checks that the process responds; the only resource that tenants share for it is the process itself. */
export async function ok({ main }: Addresses): Promise<void> {
  await (await fetch(`${main}/ok`, { dispatcher })).arrayBuffer();
}

/** Sends a batch of runs. */
export async function ingest(
  { main }: Addresses,
  tenant: Tenant,
  { runs, bytes }: { readonly runs: number; readonly bytes: number },
  signal?: AbortSignal,
): Promise<void> {
  const now = new Date().toISOString();
  const stamp = now.replace(/[-:.]/g, '').replace('Z', '000Z');
  const inputs = { text: 'x'.repeat(bytes) };
  const post = Array.from({ length: runs }, () => {
    const id = randomUUID();
    const ids = { id, trace_id: id, dotted_order: `${stamp}${id}` };
    return { ...ids, name: 'bench', run_type: 'chain', start_time: now, inputs };
  });
  await send(tenant, `${main}/runs/batch`, { body: { post, patch: [] }, signal });
}

/** Reads a whole project: no run has this parent. */
export async function query({ main }: Addresses, tenant: Tenant, signal?: AbortSignal): Promise<void> {
  const body = { session: [tenant.projectId], parent_run: randomUUID(), select: ['id'], limit: 100 };
  await send(tenant, `${main}/runs/query`, { body, signal });
}

/** Runs a graph that sleeps. */
export async function run({ agents }: Addresses, tenant: Tenant, ms: number, signal?: AbortSignal): Promise<void> {
  await send(tenant, `${agents}/runs/wait`, { body: { assistant_id: 'sleep', input: { ms } }, signal });
}

/** A destination in the folder of exports. @returns its id. */
export async function addDestination({ main }: Addresses, tenant: Omit<Tenant, 'destinationId'>): Promise<string> {
  const body = { destination_type: 'local', display_name: 'bench', config: { prefix: tenant.workspaceId } };
  return (await send<{ id: string }>(tenant, `${main}/api/v1/bulk-exports/destinations`, { body })).id;
}

/** Exports days of a project. Cancels the export if `signal` is aborted. */
export async function exportDays(
  { main }: Addresses,
  tenant: Tenant,
  { beginSeconds, days }: { readonly beginSeconds: number; readonly days: number },
  signal?: AbortSignal,
): Promise<void> {
  const exports = `${main}/api/v1/bulk-exports`;
  const body = {
    bulk_export_destination_id: tenant.destinationId,
    session_id: tenant.projectId,
    start_time: new Date(beginSeconds * 1_000).toISOString(),
    end_time: new Date((beginSeconds + days * 86_400) * 1_000).toISOString(),
  };
  const { id } = await send<{ id: string }>(tenant, exports, { body });
  try {
    for (;;) {
      const { status } = await send<{ status: string }>(tenant, `${exports}/${id}`, { method: 'GET', signal });
      if (status === 'COMPLETED') return;
      assert.ok(status === 'CREATED' || status === 'RUNNING', status);
      await pause(50, undefined, signal && { signal });
    }
  } catch (error) {
    if (signal?.aborted) await send(tenant, `${exports}/${id}`, { method: 'PATCH', body: {} });
    throw error;
  }
}
