import { graphTracing } from '../../../infra/config/graph-tracing.ts';
import { ChildRunCollector } from './child-run-collector.ts';
import { RunTracer } from './run-tracer.ts';
import type { TracedRuns, TraceOrder } from './trace-order.ts';

export interface OpenTracer {
  readonly handler: RunTracer;
  /** Stops tracing. Runs that have not ended end with the error `reason`. */
  close(reason: string): void;
}

/**
 * Creates a tracer for one attempt of a run. Returns undefined if the environment of the project configures or disables
 * tracing.
 */
export function openTracer(order: TraceOrder, onFlush: (runs: TracedRuns) => void): OpenTracer | undefined {
  const { state, ...hides } = graphTracing();
  if (state !== 'unsaid') return undefined;
  const collector = new ChildRunCollector({ order, onFlush, ...hides });
  return { handler: new RunTracer(collector), close: (reason) => collector.close(reason) };
}
