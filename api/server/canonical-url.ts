const CANONICAL_PREFIX = '/api/v1';

/** Paths of version 2 of the API, which have their own prefix. */
const VERSION_2 = /^\/+v2(?=\/|$)/;

/** Any sequence of `/api` and `/api/v1` at the start; some clients double the prefix (`/api/v1/api/v1/…`). */
const PREFIXES = /^(?:\/+api(?:\/+v1)?)+(?=\/|$)/;

/** Returns the path that an operation with `path` is registered under. */
export function canonicalPath(path: string): string {
  return VERSION_2.test(path) ? `/api${path}` : CANONICAL_PREFIX + path;
}

/**
 * Rewrites a request target to its canonical form: `/runs`, `/api/runs`, `/api/v1/runs` and `/api/v1/api/v1/runs` all become
 * `/api/v1/runs`, and `/v2/runs` becomes `/api/v2/runs`. Paths whose first segment is in `rootSegments` stay unchanged. The query is not changed.
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
