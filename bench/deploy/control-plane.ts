import { Readable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { create } from 'tar';
import { openDatabase } from '../../infra/postgres/pool.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import type { RunlakeProcess } from '../../test/runlake-process.ts';

export interface Deployment {
  readonly id: string;
  readonly latest_revision_id: string;
  readonly source_config: { readonly custom_url: string };
}

const pollMs = 25;
const deployTimeoutMs = 120_000;

/** Deploys folders on a Runlake process, as its clients do. */
export class ControlPlane {
  readonly #runlake: RunlakeProcess;

  constructor(runlake: RunlakeProcess) {
    this.#runlake = runlake;
  }

  async ask<Answer>(method: string, path: string, body?: object): Promise<Answer> {
    const response = await fetch(`${this.#runlake.url}/v2/deployments${path}`, {
      method,
      headers: { 'x-api-key': this.#runlake.apiKey, 'content-type': 'application/json' },
      ...(method !== 'GET' && { body: JSON.stringify(body ?? {}) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return (text === '' ? undefined : JSON.parse(text)) as Answer;
  }

  /** Creates a deployment from a folder, and waits until it is DEPLOYED. */
  async deploy(name: string, folder: string, files: readonly string[], sourceConfig: object = {}): Promise<Deployment> {
    const { id } = await this.ask<Deployment>('POST', '', {
      ...{ name, source: 'internal_source', source_revision_config: {}, secrets: [] },
      source_config: { deployment_type: 'prod', ...sourceConfig },
    });
    const { upload_url, object_path } = await this.ask<Record<string, string>>('POST', `/${id}/upload-url`);
    const tarball = Readable.from(create({ cwd: folder, gzip: true, portable: true }, [...files]));
    const uploaded = await fetch(String(upload_url), {
      method: 'PUT',
      body: Readable.toWeb(tarball) as ReadableStream<Uint8Array>,
      duplex: 'half',
    } as RequestInit);
    if (!uploaded.ok) throw new Error(`upload: ${uploaded.status} ${await uploaded.text()}`);
    return this.change(id, {
      source_revision_config: { source_tarball_path: object_path, langgraph_config_path: 'langgraph.json' },
    });
  }

  /** Changes a deployment, which creates a revision, and waits until that is DEPLOYED. */
  async change(id: string, change: object): Promise<Deployment> {
    const deployment = await this.ask<Deployment>('PATCH', `/${id}`, change);
    const path = `/${id}/revisions/${deployment.latest_revision_id}`;
    const deadlineMs = performance.now() + deployTimeoutMs;
    for (;;) {
      const revision = await this.ask<{ status: string }>('GET', path);
      if (revision.status === 'DEPLOYED') return deployment;
      if (/FAILED|SKIPPED|INTERRUPTED/.test(revision.status) || performance.now() > deadlineMs)
        throw new Error(`not deployed: ${JSON.stringify(revision)}`);
      await pause(pollMs);
    }
  }

  /** Deletes a deployment, and waits until it is gone. */
  async remove(id: string): Promise<void> {
    await this.ask('DELETE', `/${id}`);
    while (
      await this.ask('GET', `/${id}`).then(
        () => true,
        () => false,
      )
    )
      await pause(pollMs);
  }

  /** Returns the addresses of the replicas that serve a deployment. */
  async findReplicas(id: string): Promise<string[]> {
    const { databaseUrl: url } = this.#runlake.stores();
    const database = openDatabase({ url, logger: createLogger('silent', 'bench'), timeoutMs: 10_000 });
    try {
      const rows = await database.query<{ url: string }>(
        'SELECT url FROM deployment_replicas WHERE deployment_id = $1 AND url IS NOT NULL',
        [id],
      );
      return rows.map((row) => row.url);
    } finally {
      await database.close();
    }
  }
}
