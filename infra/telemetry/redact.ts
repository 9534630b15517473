/** Redacts secrets in logs, by the name of their field and by patterns in text. */

/**
 * Endings of secret names, in lower case without dashes and underscores: matches `X-Api-Key`, `sasl_password`,
 * `secretAccessKey`.
 */
const secretEndingPattern =
  /(?:password|passwd|passphrase|secret|apikey|secretkey|accesskey|privatekey|servicekey|authorization|cookie|credentials?|(?:access|refresh|session|bearer|auth|id)token)$/;
const secretNames: ReadonlySet<string> = new Set(['key', 'token', 'pass', 'pwd', 'sasl']);

const censored = '***';
const maxDepth = 8;
const maxValues = 2_000;

/** Returns true if a field with this name holds a secret. */
export function isSecretName(name: string): boolean {
  const plain = name.toLowerCase().replace(/[-_\s]/g, '');
  return secretNames.has(plain) || secretEndingPattern.test(plain);
}

/**
 * Returns a copy of any value with secrets redacted at any depth. `ofError` converts errors to objects. Values below
 * eight levels, or after two thousand values, are replaced by `…`.
 */
export function withoutSecrets(value: unknown, ofError: (error: Error) => object): unknown {
  let values = 0;
  const copy = (inner: unknown, depth: number): unknown => {
    if (typeof inner === 'string') return scrubText(inner);
    if (typeof inner !== 'object' || inner === null || inner instanceof Date) return inner;
    if (inner instanceof Error) return copy(ofError(inner), depth);
    if (ArrayBuffer.isView(inner)) return `${inner.byteLength} bytes`;
    if (depth === maxDepth || ++values > maxValues) return '…';
    if (Array.isArray(inner)) return inner.map((item) => copy(item, depth + 1));
    return Object.fromEntries(
      Object.entries(inner).map(([name, item]) => [
        name,
        isSecretName(name) && item !== undefined && item !== null ? censored : copy(item, depth + 1),
      ]),
    );
  };
  return copy(value, 0);
}

/** Matches user and password of a URL, up to the last `@` before the path, because passwords may contain `@`. */
const userInfoPattern = /([a-z][a-z0-9+.-]*:\/\/)[^\s/?#"'`]*@/gi;
const authorizationPattern = /\b(bearer|basic)\s+(?!\*)[\w.~+/=-]{6,}/gi;
const apiKeyPattern = /\b(rlk_|lsv2_[a-z]{2}_)[\w-]{8,}/g;
/** Matches `password=…`, `"api_key": "…"` and `?secret=…`: name, separator, value. */
const assignmentPattern =
  /([\w-]*(?:password|passwd|passphrase|secret|api[-_]?key|secret[-_]?key|access[-_]?key|private[-_]?key|authorization|credentials?|(?:access|refresh|session|auth)[-_]?token))(\\?["'`]?\s*(?:=|:)\s*)(\\?"(?:[^"\\]|\\[^"])*\\?"|'[^']*'|`[^`]*`|(?:(?:bearer|basic)\s+)?[^\s,;&"'`}\])]+)/gi;

/** Replaces everything in `text` that looks like a secret. */
export function scrubText(text: string): string {
  return text
    .replace(userInfoPattern, `$1${censored}@`)
    .replace(assignmentPattern, `$1$2${censored}`)
    .replace(authorizationPattern, `$1 ${censored}`)
    .replace(apiKeyPattern, `$1${censored}`);
}
