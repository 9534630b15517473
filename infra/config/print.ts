import type { LoadedConfig } from './load.ts';
import { type Setting, settings } from './settings.ts';

/**
 * Prints the output of `runlake config`: one line `VARIABLE=value (source)` for each setting. Secrets are printed as
 * `***`.
 */
export function printConfig({ config, sources }: LoadedConfig): string {
  return Object.entries<Setting>(settings)
    .map(([name, setting]) => {
      const value = config[name as keyof typeof config];
      return `${setting.variable}=${value === undefined ? '' : redact(setting, value)}  (${sources[name as keyof typeof sources]})`;
    })
    .join('\n');
}

/** Hides secrets. If the secret is a URL, the scheme, host and path stay visible, so that operators can identify it. */
function redact(setting: Setting, value: unknown): string {
  if (!setting.secret) return String(value);
  // The value of a setting may contain several URLs.
  return String(value)
    .split(/,\s*(?=\w+:\/\/)/)
    .map(redactUrl)
    .join(',');
}

function redactUrl(text: string): string {
  const address = URL.canParse(text) ? new URL(text) : undefined;
  return address?.host ? `${address.protocol}//***@${address.host}${address.pathname}` : '***';
}
