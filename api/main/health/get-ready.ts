import { type Static, Type } from 'typebox';
import { checkHealth } from '../../../infra/telemetry/check-health.ts';
import { Answer, defineOperation } from '../../server/operation.ts';

const Part = Type.Object({
  up: Type.Boolean(),
  latency_ms: Type.Integer(),
  code: Type.Optional(Type.String({ description: 'Error code of the part.' })),
  reason: Type.Optional(Type.String()),
  remedy: Type.Optional(Type.String()),
});

const Readiness = Type.Object({
  status: Type.Union([Type.Literal('ready'), Type.Literal('not_ready'), Type.Literal('draining')]),
  parts: Type.Unsafe<Record<string, Static<typeof Part>>>({ type: 'object', additionalProperties: Part }),
});

export const getReady = defineOperation({
  operationId: 'getReady',
  method: 'GET',
  path: '/ready',
  mount: 'root',
  tag: 'health',
  summary: 'Check that the process is ready, and which part is down',
  access: { public: true, tenantScope: 'none' },
  whileDraining: true,
  schema: { response: { 200: Readiness, 503: Readiness } },
  handler: async ({ services, request }) => {
    const parts = await checkHealth(services.healthChecks);
    const up = Object.values(parts).every((part) => part.up);
    const status = request.server.draining ? 'draining' : up ? 'ready' : 'not_ready';
    return new Answer({ status: status === 'ready' ? 200 : 503, body: { status, parts } });
  },
});
