import { graphTracing } from '../../../infra/config/graph-tracing.ts';
import { ChildRunCollector } from './child-run-collector.ts';
import { RunTracer } from './run-tracer.ts';
import type { TracedRuns, TraceOrder } from './trace-order.ts';

export interface OpenTracer {
  readonly handler: RunTracer;
  /** Nothing more is heard; what has not ended ends with `reason`. */
  close(reason: string): void;
}

/** A tracer for one attempt of a run; undefined where the project traces itself, or says that nothing is to be. */
export function openTracer(order: TraceOrder, handOver: (runs: TracedRuns) => void): OpenTracer | undefined {
  const { state, ...hides } = graphTracing();
  if (state !== 'unsaid') return undefined;
  const collector = new ChildRunCollector({ order, handOver, ...hides });
  return { handler: new RunTracer(collector), close: (reason) => collector.close(reason) };
}
