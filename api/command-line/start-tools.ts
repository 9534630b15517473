/**
 * The tool server in one process. Its tools use the main API of the same process: the one that the role serves, or one
 * without a port.
 *
 * Start order (each part adds its shutdown step): main API without a port → endpoints → sessions → HTTP. At shutdown HTTP
 * refuses new requests and finishes those in flight, before the main API ends.
 */
import type { FastifyInstance } from 'fastify';
import type { Config } from '../../infra/config/settings.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { getBodyBudget } from '../../pipelines/ingest/body/body-budget.ts';
import { buildServer } from '../server/build-server.ts';
import type { Services } from '../server/services.ts';
import { createToolAccess } from '../tools/caller.ts';
import { openEndpoints } from '../tools/endpoints.ts';
import { sendInProcess } from '../tools/in-process.ts';
import { type ToolServices, toolOperations, toolsApi } from '../tools/operations.ts';
import { Sessions } from '../tools/sessions.ts';
import { createToolServers } from '../tools/tool-server.ts';
import { toolServerAddress } from './check-port.ts';
import { listenHttp } from './serve-http.ts';
import type { ShutdownSteps } from './shutdown-steps.ts';

export interface ToolParts {
  readonly config: Config;
  readonly logger: Logger;
  readonly services: Services;
  /** The server of the main API, if this process has one. */
  readonly mainApi: FastifyInstance | undefined;
  /** URL at which clients reach the main API. */
  readonly endpoint: string;
}

/** Starts the tool server. @throws PORT_IN_USE, HOST_UNUSABLE */
export async function startTools(
  { config, logger, services, mainApi, endpoint }: ToolParts,
  shutdown: ShutdownSteps,
): Promise<{ readonly url: string }> {
  const server = mainApi ?? (await buildMainApi({ config, logger, services }, shutdown));
  const endpoints = openEndpoints({
    allowPrivate: config.allowPrivateEndpoints,
    maxResponseBytes: config.maxPageBytes,
    authorities: readTrustedAuthorities(config),
  });
  shutdown.add('endpoints of tools', () => endpoints.close());
  const createServer = createToolServers({ config, logger });
  const sessions = new Sessions(createServer, { heartbeatMs: config.toolsHeartbeatMs });
  shutdown.add('sessions of tools', () => sessions.close());
  // A page of runs is limited by the size of what is stored, and its JSON has a little more.
  const limits = { maxResponseBytes: 2 * config.maxPageBytes, budget: getBodyBudget(config) };
  const own = { endpoint, send: sendInProcess(server, new URL(endpoint).host, limits) };
  const access = createToolAccess({ authenticator: services.authenticator, config, own, endpoints });
  const { authenticator, rateLimiter, healthChecks } = services;
  const toolServices: ToolServices & Pick<Services, 'authenticator' | 'rateLimiter'> = {
    ...{ authenticator, rateLimiter, config, healthChecks, createServer, sessions },
  };
  const { url, drain } = await listenHttp({
    server: { config, services: toolServices, logger, operations: toolOperations, form: toolsApi(config, access) },
    at: toolServerAddress(config),
  });
  shutdown.add('tools', drain);
  return { url };
}

/** A main API that only tools use. */
async function buildMainApi(
  { config, logger, services }: Pick<ToolParts, 'config' | 'logger' | 'services'>,
  shutdown: ShutdownSteps,
) {
  const { operations } = await import('../main/operations.ts');
  const server = await buildServer({ config, services, logger, operations });
  await server.ready();
  shutdown.add('main API of tools', () => server.close());
  return server;
}
