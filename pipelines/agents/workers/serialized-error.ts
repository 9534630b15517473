import { isRunlakeError, type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { GraphRequest, SerializedError } from './messages.ts';

/**
 * Converts the error of a query to a message. An error that is not a `RunlakeError` is reported as a failure of project
 * code.
 */
export function serializeError(request: GraphRequest, error: unknown): SerializedError {
  if (isRunlakeError(error)) return { code: error.code, params: error.parameters };
  return serializeFailure(request, error instanceof Error ? `${error.name}: ${error.message}` : String(error));
}

/** Returns the error to report if project code failed during a query: GRAPH_FAILED or STORE_EMBEDDER_UNUSABLE. */
export function serializeFailure(request: GraphRequest, reason: string): SerializedError {
  if (request.kind === 'embed') return { code: 'STORE_EMBEDDER_UNUSABLE', params: { reason } };
  const graph = 'thread' in request ? request.thread.graphId : request.graphId;
  return { code: 'GRAPH_FAILED', params: { graph, reason } };
}

/** Converts a serialised error back to a `RunlakeError`. */
export function toRunlakeError({ code, params }: SerializedError): RunlakeError {
  return runlakeError(code, params);
}
