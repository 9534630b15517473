const CANONICAL_PREFIX = '/api/v1';

/** Paths of version 2 of the API, which have their own prefix. */
const VERSION_2 = /^\/+v2(?=\/|$)/;

/** Platform paths, which clients send with and without `/v1`, depending on the end of their base URL. */
const PLATFORM = /^\/+v1(?=\/+platform(?:\/|$))/;

/** Any sequence of `/api` and `/api/v1` at the start; some clients double the prefix (`/api/v1/api/v1/…`). */
const PREFIXES = /^(?:\/+api(?:\/+v1)?)+(?=\/|$)/;

/** Returns the path that an operation with `path` is registered under. */
export function canonicalPath(path: string): string {
  return VERSION_2.test(path) ? `/api${path}` : CANONICAL_PREFIX + path.replace(PLATFORM, '');
}

/**
 * Rewrites a request target to its canonical form: `/runs`, `/api/runs`, `/api/v1/runs` and `/api/v1/api/v1/runs` all become
 * `/api/v1/runs`, `/v2/runs` becomes `/api/v2/runs`, and `/v1/platform/x` becomes `/api/v1/platform/x`. Paths whose first
 * segment is in `rootSegments` stay unchanged. The query is not changed.
 */
export function canonicalUrl(url: string, rootSegments: ReadonlySet<string>): string {
  if (!url.startsWith('/')) return url;
  const end = url.indexOf('?');
  const path = end < 0 ? url : url.slice(0, end);
  const query = end < 0 ? '' : url.slice(end);
  const first = /^\/+([^/]*)/.exec(path)?.[1] ?? '';
  if (rootSegments.has(first)) return url;
  return canonicalPath(path.replace(PREFIXES, '')) + query;
}
