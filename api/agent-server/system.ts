import { Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { Dictionary } from '../../infra/json/dictionary.ts';
import { registry } from '../../infra/telemetry/metrics.ts';
import { truncateAgents } from '../../pipelines/agents/truncate-agents.ts';
import { JsonObject, jsonMediaType, OneOf, optional } from '../server/formats.ts';
import { RawResponse } from '../server/operation.ts';
import { releaseVersion } from '../server/release.ts';
import { allowAllRule } from './access/rules.ts';
import { defineAgentOperation, runAccess } from './agent-operation.ts';
import { ClosedObject } from './agent-schema.ts';

/** Release of the original server that this API is compatible with. Clients and tests are written for this release. */
const COMPATIBLE_VERSION = '1.5.1';

/** Feature flags that clients read. */
const flags = { assistants: true, crons: true, langsmith: true, langsmith_tracing_replicas: false };

const getAgentInfo = defineAgentOperation({
  operationId: 'getAgentInfo',
  method: 'GET',
  path: '/info',
  summary: 'Get the capabilities of the agent server',
  access: { public: true, tenantScope: 'none' },
  schema: {
    response: {
      200: Type.Object({
        version: Type.String({ description: 'Release of the original server that this server is compatible with.' }),
        langgraph_js_version: Type.Optional(Type.String({ description: 'Release of the library that graphs load.' })),
        context: Type.Literal('js'),
        flags: JsonObject(),
        metadata: JsonObject({ description: 'Contains the release of Runlake.' }),
      }),
    },
  },
  handler: async ({ services: { agents } }) => ({
    version: COMPATIBLE_VERSION,
    ...(agents.libraryVersion !== undefined && { langgraph_js_version: agents.libraryVersion }),
    context: 'js' as const,
    flags: { ...flags, ...agents.protocols },
    metadata: { runlake_version: releaseVersion },
  }),
});

const prometheusMediaType = 'text/plain; version=0.0.4; charset=utf-8';

const Metric = Type.Object({
  name: Type.String(),
  help: Type.String(),
  type: OneOf(['counter', 'gauge', 'histogram', 'summary']),
  aggregator: Type.String(),
  values: Type.Array(
    Type.Object({
      value: Type.Union([Type.Number(), Type.Null()]),
      labels: Dictionary(Type.Union([Type.String(), Type.Number()])),
      metricName: Type.Optional(Type.String()),
    }),
  ),
});

const getAgentMetrics = defineAgentOperation({
  operationId: 'getAgentMetrics',
  method: 'GET',
  path: '/metrics',
  summary: 'Get the metrics of the process, for Prometheus or as JSON',
  description: 'Enabled by RUNLAKE_SERVE_METRICS.',
  access: { public: true, tenantScope: 'none' },
  servesWhileDraining: true,
  schema: {
    query: Type.Object({ format: OneOf(['prometheus', 'json'], { default: 'prometheus' }) }),
    response: { 200: Type.String() },
    produces: prometheusMediaType,
    alsoProduces: { [jsonMediaType]: Type.Array(Metric) },
  },
  errors: ['ROUTE_NOT_FOUND'],
  handler: async ({ query, services, request }) => {
    if (!services.agents.config.serveMetrics) {
      throw runlakeError('ROUTE_NOT_FOUND', { method: request.method, path: '/metrics' });
    }
    if (query.format === 'prometheus') return new RawResponse({ body: Buffer.from(await registry.metrics()) });
    const body = Buffer.from(JSON.stringify(await registry.getMetricsAsJSON()));
    return new RawResponse({ headers: { 'content-type': jsonMediaType }, body });
  },
});

/**
 * Value of the `Server` header of `/ok`. It identifies the server even if all other system routes are disabled. Source:
 * RFC 9110, "Server".
 */
export const serverName = 'runlake-agents';

const getAgentOk = defineAgentOperation({
  operationId: 'getAgentOk',
  method: 'GET',
  path: '/ok',
  summary: 'Check that the process is alive and, optionally, that Postgres is reachable',
  access: { public: true, tenantScope: 'none' },
  errors: ['DATABASE_UNAVAILABLE'],
  servesWhileDraining: true,
  schema: {
    query: Type.Object({ check_db: Type.Boolean({ default: false }) }),
    response: { 200: Type.Object({ ok: Type.Literal(true) }) },
  },
  handler: async ({ query, services: { agents } }) => {
    if (query.check_db) await agents.database.ping();
    return new RawResponse({ headers: { server: serverName }, body: { ok: true } });
  },
});

const truncate = defineAgentOperation({
  operationId: 'truncate',
  method: 'POST',
  path: '/internal/truncate',
  summary: 'Delete the data of the agent server, for tests',
  description: 'Only available in tests of Runlake. Deleting threads also deletes their runs and state.',
  access: runAccess,
  // This operation exists only if the operator has enabled it for tests.
  rule: allowAllRule,
  errors: ['ROUTE_NOT_FOUND'],
  schema: {
    body: ClosedObject({
      runs: optional(Type.Boolean()),
      threads: optional(Type.Boolean()),
      assistants: optional(Type.Boolean({ description: 'Assistants that clients created; those of graphs stay.' })),
      crons: optional(Type.Boolean()),
      store: optional(Type.Boolean()),
      checkpointer: optional(Type.Boolean({ description: 'The state of all threads.' })),
      checkpoint: optional(Type.Boolean({ description: 'Same as `checkpointer`.' })),
      checkpoints: optional(Type.Boolean({ description: 'Same as `checkpointer`.' })),
    }),
    response: { 204: Type.Null() },
  },
  handler: async ({ body, services: { agents }, request }) => {
    if (!agents.config.agentsAllowTruncate) {
      throw runlakeError('ROUTE_NOT_FOUND', { method: request.method, path: '/internal/truncate' });
    }
    await truncateAgents(agents.database, agents.deploymentId, {
      runs: body.runs ?? false,
      threads: body.threads ?? false,
      assistants: body.assistants ?? false,
      crons: body.crons ?? false,
      store: body.store ?? false,
      checkpointer: (body.checkpointer || body.checkpoint || body.checkpoints) ?? false,
    });
    return null;
  },
});

export const systemOperations = [getAgentOk, getAgentInfo, getAgentMetrics, truncate];
