import { Type } from 'typebox';
import { registry } from '../../../infra/telemetry/metrics.ts';
import { Answer, defineOperation } from '../../server/operation.ts';

export const getMetrics = defineOperation({
  operationId: 'getMetrics',
  method: 'GET',
  path: '/metrics',
  mount: 'root',
  tag: 'health',
  summary: 'Metrics of the process, for Prometheus',
  access: { public: true, tenantScope: 'none' },
  whileDraining: true,
  schema: { response: { 200: Type.String() }, produces: 'text/plain; version=0.0.4; charset=utf-8' },
  handler: async () => new Answer({ body: Buffer.from(await registry.metrics()) }),
});
