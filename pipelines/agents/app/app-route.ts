import type { AgentUser } from '../auth/agent-user.ts';

/** A route as a Hono app lists it. `:name` matches one segment of the path. */
export interface AppRoute {
  readonly method: string;
  readonly path: string;
}

/**
 * Lists the routes that a Hono app defines with a method and a fixed or parametrised path. Omits middleware and
 * handlers for all methods, although Hono lists them in the same form, and omits wildcard and regular-expression
 * patterns. Returns no routes for other kinds of apps.
 */
export function listRoutes(app: object): readonly AppRoute[] {
  const listed = 'routes' in app && Array.isArray(app.routes) ? (app.routes as unknown[]) : [];
  return listed.filter(isRoute).flatMap(({ method, path }) => (isMatchable(method, path) ? [{ method, path }] : []));
}

function isRoute(route: unknown): route is AppRoute {
  return (
    typeof route === 'object' &&
    route !== null &&
    'method' in route &&
    typeof route.method === 'string' &&
    'path' in route &&
    typeof route.path === 'string'
  );
}

function isMatchable(method: string, path: string): boolean {
  return method !== 'ALL' && !/[*{?]/.test(path);
}

/** Returns the path of a request target. The target may be a whole URL (RFC 9112, 3.2.2) and repeat slashes. */
export function normaliseTargetPath(path: string): string {
  return `/${path.replace(/^https?:\/\/[^/]*/i, '')}`.replace(/\/+/g, '/');
}

/**
 * Returns a function that tests whether a request matches one of `routes`. HEAD matches the routes of GET. Ignores the
 * differences that the router of the server ignores (host, duplicate slashes, a slash at the end), because the app must
 * also get these requests if it overrides an operation.
 */
export function createRouteMatcher(routes: readonly AppRoute[]): (method: string, path: string) => boolean {
  const patterns = routes.map(({ method, path }) => ({ method, segments: path.split('/') }));
  return (method, path) => {
    const routeMethod = method === 'HEAD' ? 'GET' : method;
    const segments = decodePath(normaliseTargetPath(path)).split('/');
    const matches = (requested: readonly string[]) =>
      patterns.some(
        (route) =>
          route.method === routeMethod &&
          route.segments.length === requested.length &&
          route.segments.every((segment, index) =>
            segment.startsWith(':') ? requested[index] !== '' : segment === requested[index],
          ),
      );
    return matches(segments) || (segments.length > 2 && segments.at(-1) === '' && matches(segments.slice(0, -1)));
  };
}

function decodePath(path: string): string {
  try {
    return decodeURI(path);
  } catch {
    return path;
  }
}

/** The authenticated user that the app finds in `c.env.auth`. Field names follow the reference server. */
interface AppUser {
  readonly user: AgentUser;
  readonly scopes: readonly string[];
}

/**
 * Header that passes the user to the app's process over the socket. If a client sends this header, the server drops it.
 */
export const userHeader = 'x-runlake-app-user';

export function encodeUser(user: AgentUser): string {
  return Buffer.from(JSON.stringify({ user, scopes: user.permissions } satisfies AppUser)).toString('base64url');
}

export function parseUser(text: string): AppUser {
  return JSON.parse(Buffer.from(text, 'base64url').toString('utf8')) as AppUser;
}
