/** A route as a Hono app lists it: `:name` stands for one segment of the path. */
export interface AppRoute {
  readonly method: string;
  readonly path: string;
}

/**
 * The routes that an app names by method and path, in the form in which Hono apps list them. Middleware and handlers for all methods are
 * told alike there, and patterns may mean anything, so that neither counts. An app of another kind names none.
 */
export function namedRoutes(app: object): readonly AppRoute[] {
  const listed = 'routes' in app && Array.isArray(app.routes) ? (app.routes as unknown[]) : [];
  return listed.filter(isRoute).flatMap(({ method, path }) => (isNamed(method, path) ? [{ method, path }] : []));
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

function isNamed(method: string, path: string): boolean {
  return method !== 'ALL' && !/[*{?]/.test(path);
}

/** Whether one of `routes` is that of a request. HEAD is answered as GET is. */
export function routeNames(routes: readonly AppRoute[]): (method: string, path: string) => boolean {
  const patterns = routes.map(({ method, path }) => ({ method, segments: path.split('/') }));
  return (method, path) => {
    const asked = method === 'HEAD' ? 'GET' : method;
    const segments = decoded(path).split('/');
    return patterns.some(
      (route) =>
        route.method === asked &&
        route.segments.length === segments.length &&
        route.segments.every((segment, place) =>
          segment.startsWith(':') ? segments[place] !== '' : segment === segments[place],
        ),
    );
  };
}

function decoded(path: string): string {
  try {
    return decodeURI(path);
  } catch {
    return path;
  }
}
