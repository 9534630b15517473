import { type Static, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { registry } from '../../infra/telemetry/metrics.ts';
import { checkHealth } from '../../infra/telemetry/telemetry-server.ts';
import { OneOf } from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';

export const getMetrics = defineOperation({
  operationId: 'getMetrics',
  method: 'GET',
  path: '/metrics',
  mount: 'root',
  summary: 'Get the Prometheus metrics of the process',
  description: 'Enabled by RUNLAKE_SERVE_METRICS.',
  access: { public: true, tenantScope: 'none' },
  servesWhileDraining: true,
  schema: { response: { 200: Type.String() }, produces: 'text/plain; version=0.0.4; charset=utf-8' },
  errors: ['ROUTE_NOT_FOUND'],
  handler: async ({ services, request }) => {
    if (!services.config.serveMetrics)
      throw runlakeError('ROUTE_NOT_FOUND', { method: request.method, path: '/metrics' });
    return new RawResponse({ body: Buffer.from(await registry.metrics()) });
  },
});

const getOk = defineOperation({
  operationId: 'getOk',
  method: 'GET',
  path: '/ok',
  summary: 'Check that the process is alive',
  description: 'Always 200. For readiness see `/ready`.',
  access: { public: true, tenantScope: 'none' },
  servesWhileDraining: true,
  schema: { response: { 200: Type.Object({ ok: Type.Literal(true) }) } },
  handler: async () => ({ ok: true as const }),
});

const Component = Type.Object({
  up: Type.Boolean(),
  latency_ms: Type.Integer(),
  code: Type.Optional(Type.String({ description: 'Error code of the part.' })),
  reason: Type.Optional(Type.String()),
  remedy: Type.Optional(Type.String()),
});

const Readiness = Type.Object({
  status: OneOf(['ready', 'not_ready', 'draining']),
  parts: Type.Unsafe<Record<string, Static<typeof Component>>>({ type: 'object', additionalProperties: Component }),
});

export const getReady = defineOperation({
  operationId: 'getReady',
  method: 'GET',
  path: '/ready',
  mount: 'root',
  summary: 'Check that the process is ready, and which part is down',
  access: { public: true, tenantScope: 'none' },
  servesWhileDraining: true,
  schema: { response: { 200: Readiness, 503: Readiness } },
  handler: async ({ services, request }) => {
    const parts = await checkHealth(services.healthChecks);
    const isUp = Object.values(parts).every((part) => part.up);
    const status = request.server.draining ? 'draining' : isUp ? 'ready' : 'not_ready';
    return new RawResponse({ status: status === 'ready' ? 200 : 503, body: { status, parts } });
  },
});

export const healthOperations = [getOk, getReady, getMetrics];
