import './every-metric.ts';
import { registry } from '../../infra/telemetry/metrics.ts';
import { code, type Page, page, table } from './markdown.ts';

export async function metricsPage(): Promise<Page> {
  const metrics = registry
    .getMetricsAsArray()
    .map((metric) => {
      const { name, help, labelNames } = metric as unknown as { name: string; help: string; labelNames: string[] };
      return { name, help, labelNames, type: metric.constructor.name.toLowerCase() };
    })
    .filter(({ name }) => !/^runlake_(process|nodejs)_/.test(name));
  return page(
    'metrics.md',
    'Metrics',
    'infra/telemetry/metrics.ts` and its users, `pipelines/**` and `api/**',
    '`/metrics` serves these metrics in the Prometheus text format, and those of the process (memory, CPU, event loop, garbage ' +
      'collection), whose names begin with `runlake_process_` and `runlake_nodejs_`.',
    table(
      ['Metric', 'Type', 'Labels', 'Meaning'],
      metrics
        .sort((a, b) => (a.name < b.name ? -1 : 1))
        .map(({ name, type, labelNames, help }) => [code(name), type, labelNames.map(code).join(', '), help]),
    ),
  );
}
