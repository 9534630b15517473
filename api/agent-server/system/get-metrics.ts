import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { registry } from '../../../infra/telemetry/metrics.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation } from '../agent-operation.ts';
import { words } from '../agent-schema.ts';

const prometheus = 'text/plain; version=0.0.4; charset=utf-8';

const json = 'application/json; charset=utf-8';

const Metric = Type.Object({
  name: Type.String(),
  help: Type.String(),
  type: words(['counter', 'gauge', 'histogram', 'summary']),
  aggregator: Type.String(),
  values: Type.Array(
    Type.Object({
      value: Type.Union([Type.Number(), Type.Null()]),
      labels: Type.Record(Type.String(), Type.Union([Type.String(), Type.Number()])),
      metricName: Type.Optional(Type.String()),
    }),
  ),
});

export const getAgentMetrics = defineAgentOperation({
  operationId: 'getAgentMetrics',
  method: 'GET',
  path: '/metrics',
  tag: 'system',
  summary: 'Get the metrics of the process, for Prometheus or as JSON',
  description: 'Enabled by RUNLAKE_SERVE_METRICS.',
  access: { public: true, tenantScope: 'none' },
  whileDraining: true,
  schema: {
    query: Type.Object({ format: words(['prometheus', 'json'], { default: 'prometheus' }) }),
    response: { 200: Type.String() },
    produces: prometheus,
    alsoProduces: { [json]: Type.Array(Metric) },
  },
  errors: ['ROUTE_NOT_FOUND'],
  handler: async ({ query, services, request }) => {
    if (!services.agents.config.serveMetrics) {
      throw runlakeError('ROUTE_NOT_FOUND', { method: request.method, path: '/metrics' });
    }
    if (query.format === 'prometheus') return new Answer({ body: Buffer.from(await registry.metrics()) });
    const body = Buffer.from(JSON.stringify(await registry.getMetricsAsJSON()));
    return new Answer({ headers: { 'content-type': json }, body });
  },
});
