import { isRunlakeError, type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { GraphRequest, SerializedError } from './messages.ts';

/**
 * Converts the error of a query to a message. An error that is not a `RunlakeError` is reported as a failure of project
 * code.
 */
export function serializeError(request: GraphRequest, error: unknown): SerializedError {
  if (isRunlakeError(error)) return { code: error.code, params: error.parameters };
  return serializeFailure(request, formatProjectError(error));
}

/** Maximum length of an error message, in characters. The message is stored in an event, in rows and in the trace. */
const maxMessageCharacters = 64 * 1024;

/** Describes a value that project code threw. Reading such a value, or converting it to text, can throw as well. */
export function describeProjectError(thrown: unknown): { readonly error: string; readonly message: string } {
  return { error: 'Error', ...readThrown(thrown) };
}

/** Describes an error of project code, with its name. */
export function formatProjectError(thrown: unknown): string {
  const { error, message } = readThrown(thrown);
  return error === undefined ? message : `${error}: ${message}`;
}

/** `error` is set if `thrown` is an `Error` with text. */
function readThrown(thrown: unknown): { readonly error?: string; readonly message: string } {
  try {
    return thrown instanceof Error
      ? { error: toText(thrown.name), message: toText(thrown.message) }
      : { message: toText(thrown) };
  } catch {
    return { message: 'The graph threw a value that has no text.' };
  }
}

function toText(value: unknown): string {
  const text = String(value);
  if (text.length <= maxMessageCharacters) return text;
  return `${text.slice(0, maxMessageCharacters)} … (${text.length} characters in total)`;
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
