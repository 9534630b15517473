import type { Config } from '../../config/settings.ts';

/** The address that traces go to; `undefined` where none is configured. */
export function tracesUrl({ otlpTracesEndpoint, otlpEndpoint }: Config): string | undefined {
  if (otlpTracesEndpoint !== undefined) return otlpTracesEndpoint;
  return otlpEndpoint === undefined ? undefined : `${otlpEndpoint.replace(/\/+$/, '')}/v1/traces`;
}

/** `name=value,name=value`, values percent-encoded; one that is not decodes to itself. */
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
