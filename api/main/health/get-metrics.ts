import { Type } from 'typebox';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { registry } from '../../../infra/telemetry/metrics.ts';
import { Answer, defineOperation } from '../../server/operation.ts';

export const getMetrics = defineOperation({
  operationId: 'getMetrics',
  method: 'GET',
  path: '/metrics',
  mount: 'root',
  tag: 'health',
  summary: 'Metrics of the process, for Prometheus',
  description: 'Served where RUNLAKE_SERVE_METRICS is set.',
  access: { public: true, tenantScope: 'none' },
  whileDraining: true,
  schema: { response: { 200: Type.String() }, produces: 'text/plain; version=0.0.4; charset=utf-8' },
  errors: ['ROUTE_NOT_FOUND'],
  handler: async ({ services, request }) => {
    if (!services.config.serveMetrics) throw fault('ROUTE_NOT_FOUND', { method: request.method, path: '/metrics' });
    return new Answer({ body: Buffer.from(await registry.metrics()) });
  },
});
