/** Takes secrets out of what is logged: by the names under which they travel, and by what they look like inside of text. */

/** Ends of names, in small letters without dashes and underscores: `X-Api-Key`, `sasl_password` and `secretAccessKey` end so. */
const secretEnding =
  /(?:password|passwd|passphrase|secret|apikey|secretkey|accesskey|privatekey|servicekey|authorization|cookie|credentials?|(?:access|refresh|session|bearer|auth|id)token)$/;
const secretNames: ReadonlySet<string> = new Set(['key', 'token', 'pass', 'pwd', 'sasl']);

const censored = '***';
const deepest = 8;
const mostValues = 2_000;

/** Whether what is called `name` must not be shown. */
export function isSecretName(name: string): boolean {
  const plain = name.toLowerCase().replace(/[-_\s]/g, '');
  return secretNames.has(plain) || secretEnding.test(plain);
}

/**
 * A copy of `value` without secrets, whatever it is made of and however deep they are nested. Errors become what `ofError`
 * makes of them. What lies deeper than eight levels, or behind two thousand values, is left out.
 */
export function withoutSecrets(value: unknown, ofError: (error: Error) => object): unknown {
  let values = 0;
  const copy = (inner: unknown, depth: number): unknown => {
    if (typeof inner === 'string') return scrubText(inner);
    if (typeof inner !== 'object' || inner === null || inner instanceof Date) return inner;
    if (inner instanceof Error) return copy(ofError(inner), depth);
    if (ArrayBuffer.isView(inner)) return `${inner.byteLength} bytes`;
    if (depth === deepest || ++values > mostValues) return '…';
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

/** User and password of an address; up to the last `@` before the path, because passwords hold such too. */
const userInfo = /([a-z][a-z0-9+.-]*:\/\/)[^\s/?#"'`]*@/gi;
const schemeAndToken = /\b(bearer|basic)\s+(?!\*)[\w.~+/=-]{6,}/gi;
const knownKeys = /\b(rlk_|lsv2_[a-z]{2}_)[\w-]{8,}/g;
/** `password=…`, `"api_key": "…"`, `?secret=…`: a name, how it is joined to its value, the value. */
const assignment =
  /([\w-]*(?:password|passwd|passphrase|secret|api[-_]?key|secret[-_]?key|access[-_]?key|private[-_]?key|authorization|credentials?|(?:access|refresh|session|auth)[-_]?token))(\\?["'`]?\s*(?:=|:)\s*)(\\?"(?:[^"\\]|\\[^"])*\\?"|'[^']*'|`[^`]*`|(?:(?:bearer|basic)\s+)?[^\s,;&"'`}\])]+)/gi;

/** `text` with everything that looks like a secret replaced. */
export function scrubText(text: string): string {
  return text
    .replace(userInfo, `$1${censored}@`)
    .replace(assignment, `$1$2${censored}`)
    .replace(schemeAndToken, `$1 ${censored}`)
    .replace(knownKeys, `$1${censored}`);
}
