import { expect, it } from 'vitest';
import '../../../docs/pages/every-metric.ts';
import { collectProcessMetrics, registry } from '../../../infra/telemetry/metrics.ts';
import { queries } from './dashboard-files.ts';
import { parseNames } from './promql.ts';

collectProcessMetrics();

/** Returns the series that the roles export, with their possible labels. `up` comes from Prometheus. */
async function exported(): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const targetLabels = ['job', 'instance', 'role'];
  const series = new Map<string, ReadonlySet<string>>([['up', new Set(targetLabels)]]);
  for (const { name, type } of await registry.getMetricsAsJSON()) {
    const metric = registry.getSingleMetric(name) as unknown as { readonly labelNames?: readonly string[] };
    const labels = [...targetLabels, ...(metric.labelNames ?? [])];
    // The JSON of prom-client contains type names, although its TypeScript types declare something else.
    if (String(type) !== 'histogram') series.set(name, new Set(labels));
    else {
      series.set(`${name}_bucket`, new Set([...labels, 'le']));
      for (const part of ['sum', 'count']) series.set(`${name}_${part}`, new Set(labels));
    }
  }
  return series;
}

const asked = queries.filter(({ target }) => target.datasource.type === 'prometheus');

it.each(asked.map(({ name, target }) => [name, target] as const))(
  '%s uses only metrics and labels that the roles export',
  async (_, target) => {
    const series = await exported();
    const { metrics, labels } = parseNames(target.expr as string);
    expect(metrics).not.toEqual([]);
    expect(metrics.filter((metric) => !series.has(metric))).toEqual([]);
    const known = new Set(metrics.flatMap((metric) => [...(series.get(metric) ?? [])]));
    const shown = [...(target.legendFormat ?? '').matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label as string);
    expect([...labels, ...shown].filter((label) => !known.has(label))).toEqual([]);
  },
);

it.each<[string, readonly string[], readonly string[]]>([
  ['up', ['up'], []],
  ['sum(up{job="a_metric{}"})', ['up'], ['job']],
  [
    'sum by (le, a) (rate(b_bucket{c=~"d|e",f!=\'g\'}[$__rate_interval])) / on (h) group_left (i) j',
    ['b_bucket', 'j'],
    'c f le a h i'.split(' '),
  ],
  ['histogram_quantile(0.99, sum without (x) (rate(m_bucket[5m] offset 1h))) > bool 1e3', ['m_bucket'], ['x']],
  ['max(a) or vector(0) unless b', ['a', 'b'], []],
])('the names in %s', (expr, metrics, labels) => {
  const found = parseNames(expr);
  expect(found.metrics).toEqual(metrics);
  expect([...found.labels].sort()).toEqual([...labels].sort());
});

it('the parser refuses text that is not PromQL', () => {
  expect(() => parseNames('rate(a[5m]')).toThrow('parentheses');
  expect(() => parseNames('a{b="c}')).toThrow('character');
});
