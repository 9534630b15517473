import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { registry } from '../../../infra/telemetry/metrics.ts';
import { Answer, defineOperation } from '../../server/operation.ts';

export const getMetrics = defineOperation({
  operationId: 'getMetrics',
  method: 'GET',
  path: '/metrics',
  mount: 'root',
  tag: 'health',
  summary: 'Get the Prometheus metrics of the process',
  description: 'Enabled by RUNLAKE_SERVE_METRICS.',
  access: { public: true, tenantScope: 'none' },
  whileDraining: true,
  schema: { response: { 200: Type.String() }, produces: 'text/plain; version=0.0.4; charset=utf-8' },
  errors: ['ROUTE_NOT_FOUND'],
  handler: async ({ services, request }) => {
    if (!services.config.serveMetrics)
      throw runlakeError('ROUTE_NOT_FOUND', { method: request.method, path: '/metrics' });
    return new Answer({ body: Buffer.from(await registry.metrics()) });
  },
});
