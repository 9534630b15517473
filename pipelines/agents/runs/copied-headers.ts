import { type HeaderChoice, headerPatterns } from '../graphs/http-settings.ts';

/** Longer ones are nobody's, and patterns may take long over them. */
const longestName = 200;

/** The library takes them for the place in a thread that a run begins at, which only the body of a request says. */
const ofLibrary = new Set(['checkpoint_id', 'checkpoint_ns', 'checkpoint_map']);

export type HeaderRule = (name: string) => boolean;

/** They hold keys of the API, or say what those are for. */
const ofKeys = new Set(['x-api-key', 'x-tenant-id', 'x-service-key']);
/** They hold keys or sessions, so that no pattern takes them in: only their whole name does. */
const confidential = new Set([...ofKeys, 'authorization', 'proxy-authorization', 'cookie']);

/**
 * Which headers of its request a run finds in `configurable`, by `http.configurable_headers`: none that is excluded; of the others
 * those that are included, or, where nothing is, `user-agent` and what begins with `x-`.
 */
export function headerRule(choice?: HeaderChoice | null): HeaderRule {
  const { includes, excludes } = headerPatterns(choice);
  const excluded = matcherOf(excludes);
  const included = matcherOf(includes.length === 0 ? ['x-*', 'user-agent'] : includes);
  return (name) =>
    name.length <= longestName &&
    !ofLibrary.has(name) &&
    !excluded(name) &&
    (confidential.has(name) ? includes.includes(name) : included(name));
}

export function copiedHeaders(
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
  isCopied: HeaderRule,
): Record<string, string> {
  const copied = Object.entries(headers).filter(([name, value]) => value !== undefined && isCopied(name));
  return Object.fromEntries(copied.map(([name, value]) => [name, String(value)]));
}

function matcherOf(patterns: readonly string[]): HeaderRule {
  const parts = patterns.map((pattern) => pattern.replace(/\W/g, '\\$&').replaceAll('\\*', '.*'));
  const whole = new RegExp(`^(?:${parts.join('|')})$`);
  return (name) => parts.length > 0 && whole.test(name);
}
