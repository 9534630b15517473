import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import { createDeploymentProxy } from '../../../api/control-plane/proxy.ts';
import { buildServer } from '../../../api/server/build-server.ts';
import type { Services } from '../../../api/server/services.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import type { Config } from '../../../infra/config/settings.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { ReplicaFinder } from '../../../pipelines/deployments/find-replica-url.ts';
import { listenOnLoopback } from '../../infra/listen-on-loopback.ts';
import { logger } from '../../silent-logger.ts';

export interface ProxyUnderTest {
  readonly server: FastifyInstance;
  /** Address of the deployment `trips`. */
  readonly url: string;
  /** Addresses of the replicas that serve it, in the order in which they are tried. */
  readonly replicas: string[];
  close(): Promise<void>;
}

/** Starts a main API without operations whose proxy serves the deployment `trips` from the given replicas. */
export async function openProxy(
  replicas: string[] = [],
  { stallTimeoutMs, ...settings }: Partial<Config> & { readonly stallTimeoutMs?: number } = {},
): Promise<ProxyUnderTest> {
  const finder: ReplicaFinder = {
    async find(slug, { avoid } = {}) {
      if (slug !== 'trips') throw runlakeError('NOT_FOUND', { what: 'Deployment' });
      const url = replicas.find((each) => avoid?.has(each) !== true);
      if (url === undefined) throw runlakeError('DEPLOYMENT_NOT_SERVING', { deployment: slug });
      return { deploymentId: 'trips', url };
    },
  };
  const config = { ...loadConfig({}).config, ...settings };
  const services = { config, healthChecks: [], authenticator: {} } as unknown as Services;
  const server = await buildServer({
    config,
    services,
    logger,
    operations: [],
    mounted: createDeploymentProxy(finder, { stallTimeoutMs }),
  });
  const origin = await server.listen({ host: '127.0.0.1', port: 0 });
  return { server, url: `${origin}/deployments/trips`, replicas, close: () => server.close() };
}

export interface Replica {
  readonly server: Server;
  readonly url: string;
  /** Requests that arrived, newest last. */
  readonly requests: readonly IncomingMessage[];
  close(): Promise<void>;
}

/** Starts an HTTP server that responds like a replica with `respond`. */
export async function startReplica(respond: RequestListener): Promise<Replica> {
  const requests: IncomingMessage[] = [];
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    requests.push(request);
    respond(request, response);
  });
  const port = await listenOnLoopback(server);
  return {
    server,
    url: `http://127.0.0.1:${port}`,
    requests,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Starts a server and closes it, so that its address refuses connections. */
export async function findRefusingUrl(): Promise<string> {
  const replica = await startReplica(() => undefined);
  await replica.close();
  return replica.url;
}
