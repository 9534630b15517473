import { fault, isRunlakeError, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Refusal } from './worker-messages.ts';
import type { GraphRequest } from './worker-pool.ts';

/** What a question failed with, to be sent: an error of the catalogue, else that the graph threw. */
export function refusalOf(request: GraphRequest, error: unknown): Refusal {
  if (isRunlakeError(error)) return { code: error.code, params: error.parameters };
  return failureOf(request, error instanceof Error ? `${error.name}: ${error.message}` : String(error));
}

/** That code of the project failed at a question. */
export function failureOf(request: GraphRequest, reason: string): Refusal {
  if (request.kind === 'embed') return { code: 'STORE_EMBEDDER_UNUSABLE', params: { reason } };
  const graph = 'thread' in request ? request.thread.graphId : request.graphId;
  return { code: 'GRAPH_FAILED', params: { graph, reason } };
}

export function faultOf({ code, params }: Refusal): RunlakeError {
  return fault(code, params);
}
