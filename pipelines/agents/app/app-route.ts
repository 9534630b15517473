/** A route as a Hono app lists it. `:name` matches one segment of the path. */
export interface AppRoute {
  readonly method: string;
  readonly path: string;
}

/**
 * Lists the routes that a Hono app defines with a method and a fixed or parametrised path. Leaves out middleware and
 * handlers for all methods, which Hono lists in the same form, and wildcard and regular-expression patterns. Returns
 * none for other kinds of apps.
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

/** Returns a function that tests whether a request matches one of `routes`. HEAD matches the routes of GET. */
export function matchRoutes(routes: readonly AppRoute[]): (method: string, path: string) => boolean {
  const patterns = routes.map(({ method, path }) => ({ method, segments: path.split('/') }));
  return (method, path) => {
    const routeMethod = method === 'HEAD' ? 'GET' : method;
    const segments = decode(path).split('/');
    return patterns.some(
      (route) =>
        route.method === routeMethod &&
        route.segments.length === segments.length &&
        route.segments.every((segment, index) =>
          segment.startsWith(':') ? segments[index] !== '' : segment === segments[index],
        ),
    );
  };
}

function decode(path: string): string {
  try {
    return decodeURI(path);
  } catch {
    return path;
  }
}
