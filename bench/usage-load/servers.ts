import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, get, type IncomingMessage } from 'node:http';
import { getGranularUsage } from '../../api/main/billing.ts';
import { buildServer } from '../../api/server/build-server.ts';
import { listByTag } from '../../api/server/operation.ts';
import type { Services } from '../../api/server/services.ts';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { loadConfig } from '../../infra/config/load.ts';
import { createAuthenticator } from '../../pipelines/tenants/authenticate.ts';
import type { Grouping } from '../../pipelines/usage/report-query.ts';
import type { BenchEngines } from '../engines.ts';

/** Parameters of one request. */
export interface UsageQuestion {
  readonly start: string;
  readonly end: string;
  readonly groupBy: Grouping;
}

export interface UsageServer {
  /** Returns the body of the response, over a keep-alive connection. */
  ask(question: UsageQuestion): Promise<string>;
  close(): Promise<void>;
}

/** Sum of the traces in the body of a response. */
export function countTraces(body: string): number {
  const { usage } = JSON.parse(body) as { usage: readonly { traces: number }[] };
  return usage.reduce((sum, { traces }) => sum + traces, 0);
}

/**
 * A product server with only this operation; given SQL, it uses that instead of the product's own query.
 */
export async function serveUsage(
  { database, clickhouse, logger }: BenchEngines,
  { key, workspaceId }: { readonly key: string; readonly workspaceId: string },
  sqlOf?: (groupBy: Grouping) => string,
): Promise<UsageServer> {
  const config = loadConfig({}).config;
  const authenticator = createAuthenticator({ database, logger });
  const answering: ClickHouse =
    sqlOf === undefined
      ? clickhouse
      : {
          ...clickhouse,
          query: (query) => clickhouse.query({ ...query, sql: sqlOf(query.params?.dimension as Grouping) }),
        };
  const services = { config, database, clickhouse: answering, authenticator } as Partial<Services> as Services;
  const server = await buildServer({
    config,
    services,
    logger,
    operations: listByTag({ billing: [getGranularUsage] }),
  });
  const address = await server.listen({ host: '127.0.0.1', port: 0 });
  const agent = new Agent({ keepAlive: true });
  return {
    async ask({ start, end, groupBy }) {
      const query = new URLSearchParams({
        start_time: start,
        end_time: end,
        workspace_ids: workspaceId,
        group_by: groupBy,
      });
      const url = `${address}/api/v1/orgs/current/billing/granular-usage?${query}`;
      const [response] = (await once(get(url, { agent, headers: { 'x-api-key': key } }), 'response')) as [
        IncomingMessage,
      ];
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk as Buffer);
      const text = Buffer.concat(chunks).toString('utf8');
      assert.equal(response.statusCode, 200, text);
      return text;
    },
    async close() {
      agent.destroy();
      await server.drain();
      await authenticator.close();
    },
  };
}
