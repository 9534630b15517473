import { type HeaderChoice, headerPatterns } from '../graphs/http-settings.ts';

/** Longer names are ignored, because matching a pattern against them can be slow. */
const maxNameLength = 200;

/** LangGraph reads these keys of `configurable` as the checkpoint to start from, which only the request body may set. */
const checkpointKeys = new Set(['checkpoint_id', 'checkpoint_ns', 'checkpoint_map']);

export type HeaderRule = (name: string) => boolean;

/** Headers with API keys, or with the tenant that a key is used for. */
const apiKeyHeaders = new Set(['x-api-key', 'x-tenant-id', 'x-service-key']);
/** Headers with keys or sessions. Patterns do not match them; they must be included by their full name. */
const confidential = new Set([...apiKeyHeaders, 'authorization', 'proxy-authorization', 'cookie']);
/** Words that mark other headers as confidential, as in `x-amz-security-token`. */
const secretWord =
  /(?:^|-)(?:api-?key|key|token|jwt|secret|password|auth|authorization|credentials?|cookie|session|signature)(?:-|$)/;
const isConfidential = (name: string) => confidential.has(name) || secretWord.test(name);

/**
 * Returns the test for request headers that the server copies to `configurable` of a run: those that
 * `http.configurable_headers` includes and does not exclude. If it includes none, only `user-agent`. The reference
 * server copies all `x-*` headers by default. Runlake does not, because runs are stored and readable, and proxies and
 * clients put tokens, addresses and user names into such headers.
 */
export function headerRule(choice?: HeaderChoice | null): HeaderRule {
  const { includes, excludes } = headerPatterns(choice);
  const excluded = compilePatterns(excludes);
  const included = compilePatterns(includes.length === 0 ? ['user-agent'] : includes);
  return (name) =>
    name.length <= maxNameLength &&
    !checkpointKeys.has(name) &&
    !excluded(name) &&
    (isConfidential(name) ? includes.includes(name) : included(name));
}

/** Returns the headers that pass the test, with lists joined by commas. */
export function copiedHeaders(
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
  isCopied: HeaderRule,
): Record<string, string> {
  const copied = Object.entries(headers).filter(([name, value]) => value !== undefined && isCopied(name));
  return Object.fromEntries(copied.map(([name, value]) => [name, String(value)]));
}

function compilePatterns(patterns: readonly string[]): HeaderRule {
  const parts = patterns.map((pattern) => pattern.replace(/\W/g, '\\$&').replaceAll('\\*', '.*'));
  const whole = new RegExp(`^(?:${parts.join('|')})$`);
  return (name) => parts.length > 0 && whole.test(name);
}
