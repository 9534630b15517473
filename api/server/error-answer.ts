import { fault, isRunlakeError, type RunlakeError } from '../../infra/errors/runlake-error.ts';
import { otlpFailure } from '../../pipelines/ingest/otlp/otlp-response.ts';
import type { ErrorStyle } from './operation.ts';

/** What the limits of a request are, for errors that name them. */
export interface RequestLimits {
  readonly bodyLimit: { readonly bytes: number; readonly setting: string };
}

const badRequest = (reason: string) => () => fault('BAD_REQUEST', { reason });
const cutOff = (cause: unknown) =>
  fault('BAD_REQUEST', { reason: 'The connection closed before the whole request had arrived.' }, { cause });

/** Errors of Fastify and Node that a request can cause. */
const causedByRequests: Readonly<Record<string, (raw: unknown, limits: RequestLimits) => RunlakeError>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: (_raw, { bodyLimit }) =>
    fault('BODY_TOO_LARGE', { limitBytes: bodyLimit.bytes, limit: bodyLimit.setting }),
  FST_ERR_CTP_INVALID_MEDIA_TYPE: badRequest('The header Content-Type is not valid.'),
  FST_ERR_CTP_INVALID_TYPE: badRequest('The header Content-Type is not valid.'),
  FST_ERR_CTP_EMPTY_TYPE: badRequest('The header Content-Type is empty.'),
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: badRequest('The body is not as long as the header Content-Length says.'),
  FST_ERR_CTP_EMPTY_JSON_BODY: badRequest('The body is empty, but the header Content-Type says that it is JSON.'),
  FST_ERR_CTP_INVALID_JSON_BODY: badRequest('The body is not valid JSON.'),
  FST_ERR_ROUTE_MISSING_CONTENT_TYPE: badRequest('A QUERY request needs the header Content-Type.'),
  FST_ERR_ROUTE_MISSING_CONTENT: badRequest('A QUERY request needs a body.'),
  FST_ERR_VALIDATION: badRequest('The request does not fit the schema of its operation.'),
  FST_ERR_BAD_URL: badRequest('The URL has invalid percent-encoding.'),
  FST_ERR_INVALID_URL: badRequest('The URL is not valid.'),
  FST_ERR_MAX_PARAM_LENGTH: badRequest('A part of the path is too long.'),
  FST_ERR_ASYNC_CONSTRAINT: badRequest('The request does not fit any route.'),
  ECONNRESET: cutOff,
  ERR_STREAM_PREMATURE_CLOSE: cutOff,
};

/** The catalogue's error for whatever was thrown while a request was handled. Foreign text becomes the cause only. */
export function toRunlakeError(raw: unknown, limits: RequestLimits): RunlakeError {
  if (isRunlakeError(raw)) return raw;
  const code = codeOf(raw);
  if (code !== undefined && Object.hasOwn(causedByRequests, code)) {
    return (causedByRequests[code] as (typeof causedByRequests)[string])(raw, limits);
  }
  // An error of a later Fastify that the table does not have yet.
  if (code?.startsWith('FST_ERR_') && isClientStatus(raw)) {
    return fault('BAD_REQUEST', { reason: 'The request is not one that this server can read.' }, { cause: raw });
  }
  return fault('INTERNAL', {}, { cause: raw });
}

function isClientStatus(raw: unknown): boolean {
  const { statusCode } = raw as { readonly statusCode?: unknown };
  return typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500;
}

function codeOf(raw: unknown): string | undefined {
  const code = typeof raw === 'object' && raw !== null && 'code' in raw ? raw.code : undefined;
  return typeof code === 'string' ? code : undefined;
}

/** Seconds after which a client should try again; undefined where trying again is of no use. */
export function retryAfterSeconds(error: RunlakeError): number | undefined {
  return error.retryAfterSeconds ?? (error.class === 'transient' ? 1 : undefined);
}

/** An error's answer, ready to send; `contentType` is that of the request. Source of `otlp`: OTLP/HTTP, "Failures". */
export function errorAnswer(
  error: RunlakeError,
  style: ErrorStyle,
  request: { readonly id: string; readonly contentType: string | undefined },
): { readonly status: number; readonly contentType: string; readonly body: Buffer | string } {
  const { status } = error;
  if (style === 'otlp') return { status, ...otlpFailure(request.contentType, `${error.message} ${error.remedy}`) };
  const contentType = 'application/json; charset=utf-8';
  if (style === 'json-rpc' && unparsable.has(error.code)) {
    const body = JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32700, message: error.message } });
    return { status: 200, contentType, body };
  }
  return { status, contentType, body: JSON.stringify(errorBody(error, style, request.id)) };
}

/** Source: JSON-RPC 2.0, 5.1, "Parse error". */
const unparsable: ReadonlySet<string> = new Set(['INVALID_JSON', 'INVALID_UTF8', 'TOO_DEEP']);

/**
 * The body of an error's answer. `code` and `remedy` go with both JSON styles; clients ignore them.
 * Source: SPEC 2.3 for the list of a 422.
 */
export function errorBody(error: RunlakeError, style: Exclude<ErrorStyle, 'otlp'>, requestId: string): object {
  const more = {
    code: error.code,
    remedy: error.remedy,
    ...(error.status >= 500 ? { request_id: requestId } : {}),
  };
  // SDKs look for this text under `error`, whatever the style of the route.
  if (error.code === 'WORKSPACE_REQUIRED') return { error: error.message, detail: error.message, ...more };
  if (style === 'error') {
    return { error: error.message, ...(error.fields ? { details: error.fields } : {}), ...more };
  }
  if (error.status !== 422) return { detail: error.message, ...more };
  const whole = { loc: ['body'], msg: error.message, type: error.code.toLowerCase() };
  return { detail: error.fields ?? [whole], message: inOneText(error), ...more };
}

/** For clients that show a text alone, as the Python SDK of `langgraph` does; of a list they would tell nothing. */
function inOneText({ fields, message }: RunlakeError): string {
  if (fields === undefined) return message;
  return fields.map(({ loc, msg }) => `${loc.join('.')}: ${msg}`).join('; ');
}
