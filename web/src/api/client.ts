import { formatExact } from '../components/values/exact-json.ts';
import type { paths } from './types.d.ts';

/**
 * Client of the main API. The browser adds the session cookie; `call` adds the CSRF token of the session to requests
 * that change something.
 */

type Method = 'get' | 'post' | 'put' | 'patch' | 'delete';
type Path<M extends Method> = {
  [P in keyof paths]: paths[P] extends { [Key in M]: { responses: unknown } } ? P : never;
}[keyof paths];
type Operation<M extends Method, P extends keyof paths> = paths[P] extends { [Key in M]: infer O } ? O : never;
type Query<O> = O extends { parameters: { query?: infer Q } } ? Q : never;
type Parameters<O> = O extends { parameters: { path: infer Values } } ? Values : never;
type RequestBody<O> = O extends { requestBody?: { content: { 'application/json': infer B } } } ? B : never;
type Content<R> = R extends { content: infer C } ? C[Extract<keyof C, `application/json${string}`>] : undefined;
export type Answer<M extends Method, P extends keyof paths> =
  Operation<M, P> extends { responses: infer R } ? Content<R[keyof R]> : never;
export type Body<M extends Method, P extends keyof paths> = RequestBody<Operation<M, P>>;

/** Optional parameters that are undefined are left out. */
type Omittable<T> = { [Name in keyof T]: object extends Pick<T, Name> ? T[Name] | undefined : T[Name] };

export interface CallOptions<M extends Method, P extends keyof paths> {
  readonly query?: Omittable<Query<Operation<M, P>>>;
  readonly path?: Parameters<Operation<M, P>>;
  readonly body?: Body<M, P>;
  readonly signal?: AbortSignal;
}

/** An error response of the API, or a request without a response (`status` 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly requestId: string | null;
  constructor(message: string, status: number, requestId: string | null = null) {
    super(message);
    this.status = status;
    this.requestId = requestId;
  }
}

let csrfToken: string | undefined;
/** Sets the CSRF token of the session; undefined when there is no session. */
export function setCsrfToken(token: string | undefined): void {
  csrfToken = token;
}

let workspaceId: string | undefined;
const workspaceListeners = new Set<() => void>();
/** Sets the workspace that the header `X-Tenant-Id` names. */
export function setWorkspace(id: string | undefined): void {
  workspaceId = id;
  for (const listener of workspaceListeners) listener();
}
/** Returns the workspace that the header `X-Tenant-Id` names. */
export function getWorkspace(): string | undefined {
  return workspaceId;
}
/** Calls `listener` after each change of the workspace, until the returned function is called. */
export function onWorkspaceChange(listener: () => void): () => void {
  workspaceListeners.add(listener);
  return () => workspaceListeners.delete(listener);
}
/** These do not name a workspace, so that they succeed after the workspace was deleted. */
const urlsWithoutWorkspace = ['/api/v1/session', '/api/v1/workspaces'];

let onSignedOut: () => void = () => undefined;
/** Sets the callback for a response of the main API that means that the session has ended. */
export function onSessionEnd(handle: () => void): void {
  onSignedOut = handle;
}

/** Sends a request. Rejects with an ApiError if the response is not 2xx or does not arrive. */
export async function call<M extends Method, P extends Path<M>>(
  method: M,
  path: P,
  options: CallOptions<M, P> = {},
): Promise<Answer<M, P>> {
  const { body, signal } = options;
  const response = await send(method, fillPath(path, options.path, options.query), { body, signal });
  return (response.status === 204 ? undefined : await readJson(response)) as Answer<M, P>;
}

/** Returns the options of a query that {@link call} answers. */
export function readFrom<M extends Method, P extends Path<M>>(
  method: M,
  path: P,
  options: Omit<CallOptions<M, P>, 'signal'> = {},
) {
  return { queryFn: ({ signal }: { readonly signal: AbortSignal }) => call(method, path, { ...options, signal }) };
}

/** Sends a request like {@link call}, and returns the text of the response, with the bytes that the API stores. */
export async function callText<M extends Method, P extends Path<M>>(
  method: M,
  path: P,
  options: CallOptions<M, P> = {},
): Promise<string> {
  const { body, signal } = options;
  return (await send(method, fillPath(path, options.path, options.query), { body, signal })).text();
}

export interface SendOptions {
  /** Sent as a form, or as JSON in which numbers that were parsed exactly keep their digits. */
  readonly body?: unknown;
  readonly signal?: AbortSignal | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * Set for requests to a deployment. `session`: the session authenticates the request, which needs the CSRF token for
   * every method. `own`: `headers` authenticate the request. If the deployment refuses a request, the session does not
   * end.
   */
  readonly deployment?: 'session' | 'own';
}

/** Sends a request to an operation that is not a part of the generated types. */
export async function send(
  method: string,
  url: string,
  { body, signal, headers: more, deployment }: SendOptions = {},
): Promise<Response> {
  const headers = new Headers({ accept: 'application/json', ...more });
  const isForm = body instanceof FormData;
  if (body !== undefined && !isForm) headers.set('content-type', 'application/json');
  const isConfirmed = deployment === undefined ? method !== 'get' : deployment === 'session';
  if (isConfirmed && csrfToken !== undefined) headers.set('x-csrf-token', csrfToken);
  if (deployment !== 'own' && workspaceId !== undefined && !urlsWithoutWorkspace.includes(url))
    headers.set('x-tenant-id', workspaceId);
  const init: RequestInit = { method: method.toUpperCase(), headers, credentials: 'same-origin' };
  if (body !== undefined) init.body = isForm ? body : formatExact(body, 0);
  if (signal) init.signal = signal;
  const response = await fetchWithinLimits(url, init);
  if (response.ok) return response;
  const error = await toApiError(response);
  if (response.status === 401 && csrfToken !== undefined) {
    if (deployment === undefined) onSignedOut();
    // A deployment may refuse a request for its own reasons. Only the main API knows whether the session has ended.
    else if (deployment === 'session') void send('get', '/api/v1/session').catch(() => undefined);
  }
  throw error;
}

/** Maximum number of times that a request is sent, and maximum pause in seconds, if a rate limit of the API refuses it. */
const maxAttempts = 10;
const maxPauseSeconds = 2;

/**
 * Sends a request, again if a rate limit refuses it: screens send many requests at once. A longer pause, such as after
 * failed sign-ins, is left to the viewer.
 */
async function fetchWithinLimits(url: string, init: RequestInit): Promise<Response> {
  for (let attempt = 1; ; attempt++) {
    const response = await fetch(url, init).catch((cause: unknown) => {
      if (init.signal?.aborted) throw cause;
      throw new ApiError('Runlake does not answer. Check that it runs and that the network is up.', 0);
    });
    const seconds = Number(response.headers.get('retry-after') ?? Number.POSITIVE_INFINITY);
    if (response.status !== 429 || attempt === maxAttempts || !(seconds <= maxPauseSeconds)) return response;
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}

async function readJson(response: Response): Promise<unknown> {
  return response.json().catch(() => {
    throw new ApiError('The response is not JSON. Is there a proxy in front of Runlake?', response.status);
  });
}

async function toApiError(response: Response): Promise<ApiError> {
  const body: unknown = await response.json().catch(() => undefined);
  return new ApiError(
    readMessage(body) ?? `The API answered ${response.status}.`,
    response.status,
    response.headers.get('x-request-id'),
  );
}

/**
 * Returns the message of an error body: `detail` as text or as a list of 422, `error`, or `title`. Only the `remedy` of
 * `Forbidden` says what is missing.
 */
function readMessage(body: unknown): string | undefined {
  if (typeof body !== 'object' || body === null) return undefined;
  const { detail, error, title, remedy } = body as Record<string, unknown>;
  if (detail === 'Forbidden' && typeof remedy === 'string') return remedy;
  if (typeof detail === 'string') return detail;
  if (Array.isArray(detail))
    return detail
      .map((item: { loc?: unknown[]; msg?: string }) => `${item.loc?.join('.') ?? ''}: ${item.msg ?? ''}`)
      .join('\n');
  if (typeof error === 'string') return error;
  return typeof title === 'string' ? title : undefined;
}

/** Returns the URL of `path` with its parameters filled in. Items of lists are repeated parameters. */
export function fillPath(path: string, parameters: unknown, query: unknown): string {
  const values = (parameters ?? {}) as Record<string, string>;
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(values[name] ?? ''));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries((query ?? {}) as Record<string, unknown>)) {
    if (value === undefined || value === null) continue;
    for (const item of Array.isArray(value) ? value : [value]) search.append(name, String(item));
  }
  return search.size === 0 ? filled : `${filled}?${search}`;
}

/** Returns the options of an infinite query that reads a list by offset. A page that is not full is the last one. */
export function offsetPages(pageSize: number) {
  return {
    initialPageParam: 0,
    getNextPageParam: (page: readonly unknown[], pages: readonly unknown[]) =>
      page.length < pageSize ? undefined : pages.length * pageSize,
  };
}

/** Returns the options of an infinite query that reads a list of the main API by offset; see {@link offsetPages}. */
export function readByOffset<P extends Path<'get'>>(
  path: P,
  pageSize: number,
  options: Omit<CallOptions<'get', P>, 'body' | 'signal'> = {},
) {
  return {
    queryFn: ({ pageParam, signal }: { readonly pageParam: number; readonly signal: AbortSignal }) => {
      const query = { ...options.query, limit: pageSize, offset: pageParam } as never;
      return call('get', path, { ...options, query, signal });
    },
    ...offsetPages(pageSize),
  };
}

/** Throws an ApiError with status 404, for an operation that responds with 2xx if the object does not exist. */
export function throwNotFound(message: string): never {
  throw new ApiError(message, 404);
}
