import { fault, isRunlakeError, type RunlakeError } from '../../infra/errors/runlake-error.ts';
import { otlpFailure } from '../../pipelines/ingest/otlp/otlp-response.ts';
import type { ErrorStyle } from './operation.ts';

/** What the limits of a request are, for errors that name them. */
export interface RequestLimits {
  readonly bodyLimit: { readonly bytes: number; readonly setting: string };
}

/** The catalogue's error for whatever was thrown while a request was handled. Foreign text becomes the cause only. */
export function toRunlakeError(raw: unknown, limits: RequestLimits): RunlakeError {
  if (isRunlakeError(raw)) return raw;
  switch (codeOf(raw)) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return fault('BODY_TOO_LARGE', { limitBytes: limits.bodyLimit.bytes, limit: limits.bodyLimit.setting });
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
    case 'FST_ERR_CTP_INVALID_TYPE':
      return fault('BAD_REQUEST', { reason: 'The header Content-Type is not valid.' });
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return fault('BAD_REQUEST', { reason: 'The body is not as long as the header Content-Length says.' });
    case 'FST_ERR_BAD_URL':
      return fault('BAD_REQUEST', { reason: 'The URL has invalid percent-encoding.' });
    case 'ECONNRESET':
    case 'ERR_STREAM_PREMATURE_CLOSE':
      return fault(
        'BAD_REQUEST',
        { reason: 'The connection closed before the whole request had arrived.' },
        { cause: raw },
      );
    default:
      return fault('INTERNAL', {}, { cause: raw });
  }
}

function codeOf(raw: unknown): unknown {
  return typeof raw === 'object' && raw !== null && 'code' in raw ? raw.code : undefined;
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
): { readonly contentType: string; readonly body: Buffer | string } {
  if (style === 'otlp') return otlpFailure(request.contentType, `${error.message} ${error.remedy}`);
  const body = JSON.stringify(errorBody(error, style, request.id));
  return { contentType: 'application/json; charset=utf-8', body };
}

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
