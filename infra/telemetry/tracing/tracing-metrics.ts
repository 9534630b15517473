import { counter } from '../metrics.ts';

export const exportedSpans = counter(
  'runlake_tracing_spans_total',
  'Spans of Runlake itself that were handed to the exporter, by outcome: exported, failed.',
  ['outcome'],
);
