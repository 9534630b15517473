import { type HeaderChoice, headerPatterns } from '../graphs/http-settings.ts';

/** Longer ones are nobody's, and patterns may take long over them. */
const longestName = 200;

/** The library takes them for the place in a thread that a run begins at, which only the body of a request says. */
const ofLibrary = new Set(['checkpoint_id', 'checkpoint_ns', 'checkpoint_map']);

export type HeaderRule = (name: string) => boolean;

/** They hold keys of the API, or say what those are for. */
const ofKeys = new Set(['x-api-key', 'x-tenant-id', 'x-service-key']);
/** Headers that hold keys or sessions; no pattern takes them in, only their whole name does. */
const confidential = new Set([...ofKeys, 'authorization', 'proxy-authorization', 'cookie']);
/** Words in the names of other headers that hold secrets, as `x-amz-security-token`. */
const secretWord =
  /(?:^|-)(?:api-?key|key|token|jwt|secret|password|auth|authorization|credentials?|cookie|session|signature)(?:-|$)/;
const isConfidential = (name: string) => confidential.has(name) || secretWord.test(name);

/**
 * Which headers of its request a run finds in `configurable`, by `http.configurable_headers`: those that are included and not excluded.
 * Where nothing is included, only `user-agent`. Runs are stored and shown to their readers, so the reference server's default of all
 * `x-*` headers is not ours: proxies and clients put tokens, addresses and names of users into such headers.
 */
export function headerRule(choice?: HeaderChoice | null): HeaderRule {
  const { includes, excludes } = headerPatterns(choice);
  const excluded = matcherOf(excludes);
  const included = matcherOf(includes.length === 0 ? ['user-agent'] : includes);
  return (name) =>
    name.length <= longestName &&
    !ofLibrary.has(name) &&
    !excluded(name) &&
    (isConfidential(name) ? includes.includes(name) : included(name));
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
