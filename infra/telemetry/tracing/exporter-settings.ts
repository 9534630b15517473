import type { Config } from '../../config/settings.ts';

/** URL for trace exports; `undefined` if none is configured. */
export function tracesUrl({ otlpTracesEndpoint, otlpEndpoint }: Config): string | undefined {
  if (otlpTracesEndpoint !== undefined) return otlpTracesEndpoint;
  return otlpEndpoint === undefined ? undefined : `${otlpEndpoint.replace(/\/+$/, '')}/v1/traces`;
}

/**
 * Parses `name=value,name=value` with percent-encoded values; a value that is not valid percent-encoding is kept unchanged.
 */
export function parseHeaders(text: string | undefined): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const pair of text?.split(',') ?? []) {
    const [, name, value] = /^\s*([^=]+?)\s*=\s*(.*?)\s*$/s.exec(pair) ?? [];
    if (name !== undefined && value !== undefined) headers[name.toLowerCase()] = decoded(value);
  }
  return headers;
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}
