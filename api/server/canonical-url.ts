const CANONICAL_PREFIX = '/api/v1';

/** Matches paths of API version 2, which have their own prefix. */
const VERSION_2 = /^\/+v2(?=\/|$)/;

/** Matches platform paths. Clients send them with or without `/v1`, depending on how their base URL ends. */
const PLATFORM = /^\/+v1(?=\/+platform(?:\/|$))/;

/**
 * Matches any sequence of `/api` and `/api/v1` at the start of a path, because some clients double the prefix
 * (`/api/v1/api/v1/…`).
 */
const PREFIXES = /^(?:\/+api(?:\/+v1)?)+(?=\/|$)/;

/** Prefix of the control plane. Below it, `/v1/x` is `/api/v1/x`. */
const CONTROL_PLANE = /^\/+api-host(?:\/+v1)?(?=\/|$)/;

/** Matches the target that `listSharedRuns` of the JavaScript SDK sends: its query follows without `?`. */
const SHARED_RUNS = /^([^?]*\/public\/[^/?]+\/runs)(?=share_token=)/;

/** Returns the path under which an operation with `path` is registered. */
export function toCanonicalPath(path: string): string {
  return VERSION_2.test(path) ? `/api${path}` : CANONICAL_PREFIX + path.replace(PLATFORM, '');
}

/**
 * Rewrites a request target to its canonical form: `/runs`, `/api/runs`, `/api/v1/runs` and `/api/v1/api/v1/runs`
 * become `/api/v1/runs`; `/v2/runs` and `/api-host/v2/runs` become `/api/v2/runs`; and `/v1/platform/x` becomes
 * `/api/v1/platform/x`. Paths whose first segment is in `rootSegments` are not changed. The query is never changed.
 */
export function toCanonicalUrl(target: string, rootSegments: ReadonlySet<string>): string {
  if (!target.startsWith('/')) return target;
  const url = target.replace(SHARED_RUNS, '$1?');
  const end = url.indexOf('?');
  const path = end < 0 ? url : url.slice(0, end);
  const query = end < 0 ? '' : url.slice(end);
  const first = /^\/+([^/]*)/.exec(path)?.[1] ?? '';
  if (rootSegments.has(first)) return url;
  return toCanonicalPath(path.replace(CONTROL_PLANE, '').replace(PREFIXES, '')) + query;
}

/** Returns the path of a URL without its query, which may contain secrets. */
export function stripQuery(url: string): string {
  return url.split('?', 1)[0] ?? url;
}
