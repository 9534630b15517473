const CANONICAL_PREFIX = '/api/v1';

/** Any run of `/api` and `/api/v1` at the start; clients also double it (`/api/v1/api/v1/…`). */
const PREFIXES = /^(?:\/+api(?:\/+v1)?)+(?=\/|$)/;

/** The canonical path under which an operation with `path` is routed. */
export function canonicalPath(path: string): string {
  return CANONICAL_PREFIX + path;
}

/**
 * Rewrites the target of a request to its canonical form: `/runs`, `/api/runs`, `/api/v1/runs` and `/api/v1/api/v1/runs` all
 * become `/api/v1/runs`. Paths whose first segment is in `rootSegments` stay as they are. The query is not touched.
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
