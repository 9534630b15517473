import { STATUS_CODES } from 'node:http';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { buildOtlpFailure } from '../../pipelines/ingest/otlp/read-otlp.ts';
import { jsonMediaType } from './formats.ts';
import type { ErrorStyle } from './operation.ts';

/** Limits that error messages mention. */
export interface RequestLimits {
  readonly bodyLimit: { readonly bytes: number; readonly setting: string };
}

const createBadRequest = (reason: string) => () => runlakeError('BAD_REQUEST', { reason });
const createIncompleteRequestError = (cause: unknown) =>
  runlakeError('BAD_REQUEST', { reason: 'The connection closed before the whole request arrived.' }, { cause });

/**
 * Errors of Fastify and Node that a request can cause, by code. Each function converts such an error to a RunlakeError.
 */
const requestErrorsByCode: Readonly<Record<string, (raw: unknown, limits: RequestLimits) => RunlakeError>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: (_raw, { bodyLimit }) =>
    runlakeError('BODY_TOO_LARGE', { limitBytes: bodyLimit.bytes, limit: bodyLimit.setting }),
  FST_ERR_CTP_INVALID_MEDIA_TYPE: createBadRequest('The header Content-Type is not valid.'),
  FST_ERR_CTP_INVALID_TYPE: createBadRequest('The header Content-Type is not valid.'),
  FST_ERR_CTP_EMPTY_TYPE: createBadRequest('The header Content-Type is empty.'),
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: createBadRequest(
    'The length of the body does not match the header Content-Length.',
  ),
  FST_ERR_CTP_EMPTY_JSON_BODY: createBadRequest('The header Content-Type says JSON, but the body is empty.'),
  FST_ERR_CTP_INVALID_JSON_BODY: createBadRequest('The body is not valid JSON.'),
  FST_ERR_ROUTE_MISSING_CONTENT_TYPE: createBadRequest('A QUERY request needs the header Content-Type.'),
  FST_ERR_ROUTE_MISSING_CONTENT: createBadRequest('A QUERY request needs a body.'),
  FST_ERR_VALIDATION: createBadRequest('The request does not match the schema of the operation.'),
  FST_ERR_BAD_URL: createBadRequest('The URL has invalid percent-encoding.'),
  FST_ERR_INVALID_URL: createBadRequest('The URL is not valid.'),
  FST_ERR_MAX_PARAM_LENGTH: createBadRequest('A part of the path is too long.'),
  FST_ERR_ASYNC_CONSTRAINT: createBadRequest('The request does not match any route.'),
  ECONNRESET: createIncompleteRequestError,
  ERR_STREAM_PREMATURE_CLOSE: createIncompleteRequestError,
};

/**
 * Converts any value that was thrown while handling a request to a RunlakeError. Responses never contain the text of an
 * error that is not a RunlakeError; the text is available only in `cause` of the new error.
 */
export function toRunlakeError(raw: unknown, limits: RequestLimits): RunlakeError {
  if (isRunlakeError(raw)) return raw;
  const code = readErrorCode(raw);
  if (code !== undefined && Object.hasOwn(requestErrorsByCode, code)) {
    return (requestErrorsByCode[code] as (typeof requestErrorsByCode)[string])(raw, limits);
  }
  // A newer release of Fastify may have errors that the table does not contain.
  if (code?.startsWith('FST_ERR_') && isClientStatus(raw)) {
    return runlakeError('BAD_REQUEST', { reason: 'The server cannot process this request.' }, { cause: raw });
  }
  return runlakeError('INTERNAL', {}, { cause: raw });
}

function isClientStatus(raw: unknown): boolean {
  const { statusCode } = raw as { readonly statusCode?: unknown };
  return typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500;
}

function readErrorCode(raw: unknown): string | undefined {
  const code = typeof raw === 'object' && raw !== null && 'code' in raw ? raw.code : undefined;
  return typeof code === 'string' ? code : undefined;
}

/** Header of responses to requests that were refused before they were processed, so that another server may get them. */
export const refusalHeader = 'x-runlake-refused';

/** Returns the number of seconds after which a client should retry. Returns undefined if a retry cannot succeed. */
export function retryAfterSeconds(error: RunlakeError): number | undefined {
  return error.retryAfterSeconds ?? (error.class === 'transient' ? 1 : undefined);
}

/**
 * Renders the response for an error. `request.contentType` is the content type of the request. Source of `otlp`:
 * OTLP/HTTP, "Failures".
 */
export function renderError(
  error: RunlakeError,
  style: ErrorStyle,
  request: { readonly id: string; readonly path: string; readonly contentType: string | undefined },
): { readonly status: number; readonly contentType: string; readonly body: Buffer | string } {
  const { status } = error;
  if (style === 'otlp') return { status, ...buildOtlpFailure(request.contentType, `${error.message} ${error.remedy}`) };
  if (style === 'problem') {
    const body = JSON.stringify(buildProblem(error, request));
    return { status, contentType: 'application/problem+json; charset=utf-8', body };
  }
  const contentType = jsonMediaType;
  if ((style === 'json-rpc' || style === 'mcp') && parseErrorCodes.has(error.code)) {
    const body = JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32700, message: error.message } });
    return { status: style === 'mcp' ? 400 : 200, contentType, body };
  }
  return { status, contentType, body: JSON.stringify(buildErrorBody(error, style, request.id)) };
}

/** Codes of errors that result in a JSON-RPC parse error. Source: JSON-RPC 2.0, 5.1, "Parse error". */
const parseErrorCodes: ReadonlySet<string> = new Set(['INVALID_JSON', 'INVALID_UTF8', 'TOO_DEEP']);

/**
 * Builds the body of an error response. Both JSON styles contain `code` and `remedy`, which clients ignore. The body of
 * a 422 response lists the invalid fields.
 */
export function buildErrorBody(
  error: RunlakeError,
  style: Exclude<ErrorStyle, 'otlp' | 'problem'>,
  requestId: string,
): object {
  const more = buildCommonFields(error, requestId);
  // SDKs search for this text in the field `error`, on every route.
  if (error.code === 'WORKSPACE_REQUIRED') return { error: error.message, detail: error.message, ...more };
  if (style === 'error' || style === 'mcp') {
    return { error: error.message, ...(error.fields ? { details: error.fields } : {}), ...more };
  }
  if (error.status !== 422) return { detail: error.message, ...more };
  const whole = { loc: ['body'], msg: error.message, type: error.code.toLowerCase() };
  return { detail: error.fields ?? [whole], message: joinFieldErrors(error), ...more };
}

/** Builds problem details. Source: RFC 9457. `type` is always `about:blank`, because `code` identifies the error. */
function buildProblem(error: RunlakeError, { id, path }: { readonly id: string; readonly path: string }): object {
  return {
    type: 'about:blank',
    title: STATUS_CODES[error.status],
    status: error.status,
    detail: joinFieldErrors(error),
    instance: path,
    // The other styles also contain `error`.
    ...(error.code === 'WORKSPACE_REQUIRED' ? { error: error.message } : {}),
    ...(error.fields ? { errors: error.fields } : {}),
    ...buildCommonFields(error, id),
  };
}

function buildCommonFields(error: RunlakeError, requestId: string): object {
  return {
    code: error.code,
    remedy: error.remedy,
    ...(error.status >= 500 ? { request_id: requestId } : {}),
  };
}

/**
 * Joins the field errors into one text. Some clients, such as the Python SDK of `langgraph`, can display only a text.
 */
function joinFieldErrors({ fields, message }: RunlakeError): string {
  if (fields === undefined) return message;
  return fields.map(({ loc, msg }) => `${loc.join('.')}: ${msg}`).join('; ');
}
