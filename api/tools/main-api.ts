/**
 * The main API as tools use it: requests with the key of the caller. A tool has no other access to data, so the
 * operations of the main API check its permissions, its workspace and its parameters, and the same tools work with the
 * main API of this process, and with one that is reached over HTTP.
 */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { isJsonObject, type JsonObject } from '../../infra/json/json-value.ts';
import { parseWithPythonNumbers } from './python-numbers.ts';

/** Key and workspace of a caller. */
export interface ToolCredentials {
  readonly key: string;
  /** Id of the workspace; undefined: the workspace of the key. */
  readonly workspace: string | undefined;
}

export interface MainApiRequest {
  readonly method: 'GET' | 'POST';
  /** Path with query, below the address of the main API. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signal: AbortSignal;
}

/** Sends one request. @throws errors of the connection; not for error responses. */
export type SendToMainApi = (request: MainApiRequest) => Promise<{ readonly status: number; readonly text: string }>;

type QueryValue = string | number | boolean | readonly string[] | undefined;

export interface MainApi {
  /**
   * Returns the parsed response.
   *
   * @param path below `/api/v1`.
   * @throws TOOL_REQUEST_FAILED with the status and the message of an error response.
   */
  get(path: string, query?: Readonly<Record<string, QueryValue>>): Promise<unknown>;
  post(path: string, body: object): Promise<unknown>;
  /** False if the responses so far are so large that the call must not read further pages. */
  mayReadMore(): boolean;
}

const prefix = '/api/v1';

/** Headers with which the main API authenticates a request. */
export function toHeaders({ key, workspace }: ToolCredentials): Readonly<Record<string, string>> {
  return { 'x-api-key': key, ...(workspace !== undefined && { 'x-tenant-id': workspace }) };
}

/** Opens the main API for one call of a tool, which ends when `signal` is aborted. */
export function openMainApi(
  {
    send,
    credentials,
    endpoint,
  }: { readonly send: SendToMainApi; readonly credentials: ToolCredentials; readonly endpoint: string },
  { maxReadBytes, signal }: { readonly maxReadBytes: number; readonly signal: AbortSignal },
): MainApi {
  const keyHeaders = toHeaders(credentials);
  let readBytes = 0;
  const ask = async (request: Pick<MainApiRequest, 'method' | 'url' | 'body'>) => {
    signal.throwIfAborted();
    const headers = { ...keyHeaders, ...(request.body !== undefined && { 'content-type': 'application/json' }) };
    const { status, text } = await send({ ...request, headers, signal });
    signal.throwIfAborted();
    if (status >= 400) throw toRequestError(status, text);
    if (status >= 300) throw runlakeError('TOOLS_ENDPOINT_UNAVAILABLE', { endpoint, reason: `it answers ${status}` });
    readBytes += text.length;
    return parseResponse(text, endpoint);
  };
  return {
    get: (path, query = {}) => ask({ method: 'GET', url: `${prefix}${path}${writeQuery(query)}` }),
    post: (path, body) => ask({ method: 'POST', url: prefix + path, body: JSON.stringify(body) }),
    mayReadMore: () => readBytes < maxReadBytes,
  };
}

function writeQuery(query: Readonly<Record<string, QueryValue>>): string {
  const words = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [value].flat().map((each) => `${name}=${encodeURIComponent(String(each))}`),
  );
  return words.length === 0 ? '' : `?${words.join('&')}`;
}

/** Converts an error response to an error with its message and remedy. */
function toRequestError(status: number, text: string): Error {
  let body: Record<string, unknown> = {};
  try {
    body = JSON.parse(text) as typeof body;
  } catch {
    // The body comes from a proxy, and its text does not help a model.
  }
  if (body.code === 'WORKSPACE_REQUIRED')
    body = {
      message: 'The API key covers several workspaces.',
      remedy:
        'Send the header LANGSMITH-WORKSPACE-ID; a server on standard input reads the variable LANGSMITH_WORKSPACE_ID.',
    };
  const fields = Array.isArray(body.detail) ? joinFields(body.detail.filter(isJsonObject)) : undefined;
  const message = [fields, body.message, body.detail, body.error].find(
    (each) => typeof each === 'string' && each !== '',
  );
  // The messages of fields say what to do.
  const remedy = fields === undefined ? body.remedy : undefined;
  const sentences = [message ?? 'The main API refused the request.', remedy].filter((each) => typeof each === 'string');
  const reason = sentences.map((each) => (/[.!?]$/.test(each) ? each : `${each}.`)).join(' ');
  return runlakeError('TOOL_REQUEST_FAILED', { status, reason }, { status });
}

/** Joins the invalid fields of a 422 response, named as the parameters of tools are: without the part of the request. */
function joinFields(fields: readonly JsonObject[]): string {
  return fields
    .map(({ loc, msg }) => [Array.isArray(loc) ? loc.slice(1).join('.') : '', msg].filter(Boolean).join(': '))
    .join('; ');
}

/** @throws TOOLS_ENDPOINT_UNAVAILABLE if the response is not JSON, for example an error page of a proxy. */
function parseResponse(text: string, endpoint: string): unknown {
  try {
    return parseWithPythonNumbers(text);
  } catch (cause) {
    throw runlakeError('TOOLS_ENDPOINT_UNAVAILABLE', { endpoint, reason: 'it does not answer with JSON' }, { cause });
  }
}
