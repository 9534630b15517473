import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { Agent, type IncomingMessage, request } from 'node:http';
import { getRunStats } from '../../api/main/run-stats.ts';
import { queryRuns } from '../../api/main/runs.ts';
import { buildServer } from '../../api/server/build-server.ts';
import { listByTag } from '../../api/server/operation.ts';
import type { Services } from '../../api/server/services.ts';
import { stockFields } from '../../api/tools/runs.ts';
import { loadConfig } from '../../infra/config/load.ts';
import { createTokenSigner } from '../../infra/signing/token-signer.ts';
import { createAuthenticator } from '../../pipelines/tenants/authenticate.ts';
import { bootstrap } from '../../pipelines/tenants/bootstrap.ts';
import type { BenchEngines } from '../engines.ts';

/** Creates workspace and key of a first start, and projects. */
export async function addProjects({ database }: Pick<BenchEngines, 'database'>, count: number) {
  const key = `bench-${randomBytes(16).toString('hex')}`;
  await bootstrap(database, { ...loadConfig({}).config, bootstrapApiKey: key });
  const [workspace] = await database.query<{ id: string }>('SELECT id FROM workspaces');
  const workspaceId = workspace!.id;
  const projectIds = Array.from({ length: count }, () => randomUUID());
  await database.execute(
    'INSERT INTO projects (id, workspace_id, name) SELECT id, $2, id::text FROM unnest($1::uuid[]) AS id',
    [projectIds, workspaceId],
  );
  return { key, workspaceId, projectIds };
}

export interface PageServer {
  /** Returns the body of the response with the 100 newest runs, or those that failed, over a keep-alive connection. */
  ask(projectId: string, error?: boolean): Promise<string>;
  /** Returns the body of the response to a query with the 100 newest runs of all projects that match. */
  query(filters: object): Promise<string>;
  /** Returns the body of the response with statistics. */
  stats(body: object): Promise<string>;
  close(): Promise<void>;
}

/** A product server with only the query for runs and their statistics. */
export async function servePages({ clickhouse, database, logger }: BenchEngines, key: string): Promise<PageServer> {
  const config = { ...loadConfig({}).config, port: 0 };
  const authenticator = createAuthenticator({ database, logger });
  const attachmentSigner = createTokenSigner('secret of the bench', 'attachments');
  const services = { config, database, clickhouse, authenticator, attachmentSigner } as Partial<Services> as Services;
  const server = await buildServer({
    config,
    services,
    logger,
    operations: listByTag({ runs: [queryRuns, getRunStats] }),
  });
  const address = await server.listen({ host: '127.0.0.1', port: 0 });
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  return {
    ask: (projectId, error) =>
      post(
        `${address}/runs/query`,
        key,
        agent,
        JSON.stringify({ session: [projectId], limit: 100, select: stockFields, ...(error && { error }) }),
      ),
    query: (filters) =>
      post(`${address}/runs/query`, key, agent, JSON.stringify({ limit: 100, select: stockFields, ...filters })),
    stats: (body) => post(`${address}/runs/stats`, key, agent, JSON.stringify(body)),
    async close() {
      agent.destroy();
      await server.drain();
      await authenticator.close();
    },
  };
}

async function post(url: string, key: string, agent: Agent, body: string): Promise<string> {
  const headers = { 'x-api-key': key, 'content-type': 'application/json' };
  const sent = request(url, { agent, method: 'POST', headers }).end(body);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString('utf8');
  assert.equal(response.statusCode, 200, text);
  return text;
}
