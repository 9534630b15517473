const parameterPattern = /;\s*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;"]*))/g;

/** Parameters of a header's value: names in lower case, quotes and escapes removed. Source: RFC 9110, 5.6.6. */
export function parseParameters(value: string): Map<string, string> {
  const parameters = new Map<string, string>();
  for (const [, name = '', quoted, bare = ''] of value.matchAll(parameterPattern)) {
    parameters.set(name.toLowerCase(), quoted === undefined ? bare.trim() : unescapeQuoted(quoted));
  }
  return parameters;
}

/**
 * Browsers and fetch write `%22`, `%0D` and `%0A` for characters that are not allowed in quotes; other clients use a
 * backslash.
 */
function unescapeQuoted(text: string): string {
  return text.replace(/\\(["\\])/g, '$1').replace(/%22|%0D|%0A/gi, (code) => decodeURIComponent(code));
}
