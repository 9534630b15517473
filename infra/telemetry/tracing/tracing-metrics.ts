import { counter } from '../metrics.ts';

export const exportedSpans = counter(
  'runlake_tracing_spans_total',
  'Spans of Runlake itself that were passed to the exporter, by outcome (exported, failed).',
  ['outcome'],
);
