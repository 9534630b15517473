/**
 * Responses to requests that no operation serves: requests for routes of the original API that are not implemented, and
 * requests with unknown methods.
 */
import { readFileSync } from 'node:fs';
import type { FastifyError, FastifyInstance, FastifyRequest } from 'fastify';
import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { stripQuery, toCanonicalPath } from './canonical-url.ts';
import { buildRoutePath, maskParameters, type Operation } from './operation.ts';

export interface Route {
  readonly method: string;
  /** Path as the original API describes it, such as `/runs/{run_id}`. */
  readonly path: string;
}

/**
 * The routes of the API whose clients Runlake supports, ordered by path. Routes under `/api/v1` are listed without this
 * prefix.
 */
export const originalRoutes: readonly Route[] = readFileSync(
  new URL('../../schemas/main-api/routes.txt', import.meta.url),
  'utf8',
)
  .trim()
  .split('\n')
  .map((line) => {
    const [method = '', path = ''] = line.split(' ');
    return { method, path };
  });

export function createRouteNotFoundError({ method, originalUrl }: FastifyRequest): RunlakeError {
  return runlakeError('ROUTE_NOT_FOUND', { method, path: stripQuery(originalUrl) });
}

/** Error handler of static files. Their server rejects some paths, such as those outside its folder, with 4xx. */
export function handleStaticFileError(error: FastifyError, request: FastifyRequest): never {
  const isClientError = error.statusCode !== undefined && error.statusCode >= 400 && error.statusCode < 500;
  throw isClientError ? createRouteNotFoundError(request) : error;
}

/** Returns the routes that no operation serves. */
export function listUnbuiltRoutes(routes: readonly Route[], operations: readonly Operation[]): Route[] {
  const served = groupMethods(operations);
  return routes.filter(({ method, path }) => !served.get(maskRoutePath(path))?.has(method));
}

/**
 * Responds with 404 (`ROUTE_NOT_BUILT`) to routes that are not implemented. Responds with 405 if an operation has the
 * path but not the method; the response lists the allowed methods.
 */
export function rejectUnservedRoutes(
  server: FastifyInstance,
  operations: readonly Operation[],
  unbuiltRoutes: readonly Route[],
): void {
  const methodsByUrl = new Map(
    [...groupMethods(operations)].map(([url, allowed]) => [url, { allowed, unbuilt: new Set<string>() }]),
  );
  for (const { method, path } of unbuiltRoutes) {
    const url = maskRoutePath(path);
    const methods = methodsByUrl.get(url) ?? { allowed: new Set(), unbuilt: new Set() };
    methods.unbuilt.add(method);
    methodsByUrl.set(url, methods);
  }
  for (const [url, methods] of methodsByUrl) {
    reject(server, url, [...methods.unbuilt], (route) => runlakeError('ROUTE_NOT_BUILT', route));
    if (methods.allowed.size === 0) continue;
    const unknown = server.supportedMethods.filter(
      (method) => !methods.allowed.has(method) && !methods.unbuilt.has(method),
    );
    reject(server, url, unknown, (route) => runlakeError('METHOD_NOT_ALLOWED', route), [...methods.allowed].join(', '));
  }
}

function reject(
  server: FastifyInstance,
  url: string,
  method: string[],
  createError: (route: { method: string; path: string }) => RunlakeError,
  allow?: string,
): void {
  if (method.length === 0) return;
  server.route({
    method,
    url,
    exposeHeadRoute: false,
    schema: { hide: true },
    // This check runs before the body is read, so that it does not depend on the type and size of the body.
    onRequest: async (request, reply) => {
      if (allow !== undefined) reply.header('allow', allow);
      throw createError({ method: request.method, path: stripQuery(request.originalUrl) });
    },
    handler: async () => undefined,
  });
}

/** Groups the methods of the operations by path. Parameters in the paths are masked. */
function groupMethods(operations: readonly Operation[]): Map<string, Set<string>> {
  const methodsByPath = new Map<string, Set<string>>();
  for (const operation of operations) {
    for (const path of [operation.path, ...(operation.aliases ?? [])]) {
      const shape = maskParameters(buildRoutePath(operation, path));
      const methods = methodsByPath.get(shape) ?? new Set();
      methods.add(operation.method);
      if (operation.method === 'GET') methods.add('HEAD');
      methodsByPath.set(shape, methods);
    }
  }
  return methodsByPath;
}

const maskRoutePath = (path: string) => toCanonicalPath(path.replace(/\{[^}]+\}/g, ':id'));
