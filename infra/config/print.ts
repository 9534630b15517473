import type { LoadedConfig } from './load.ts';
import { type Setting, settings } from './settings.ts';

/** Output of `runlake config`: one line `VARIABLE=value  (source)` for each setting, secrets as `***`. */
export function printConfig({ config, sources }: LoadedConfig): string {
  return Object.entries<Setting>(settings)
    .map(([name, setting]) => {
      const value = config[name as keyof typeof config];
      return `${setting.variable}=${value === undefined ? '' : redact(setting, value)}  (${sources[name as keyof typeof sources]})`;
    })
    .join('\n');
}

/** Hides secrets. The scheme, host and path of a secret URL stay visible, so that operators can identify it. */
function redact(setting: Setting, value: unknown): string {
  if (!setting.secret) return String(value);
  // A setting may list several URLs.
  return String(value)
    .split(/,\s*(?=\w+:\/\/)/)
    .map(redactUrl)
    .join(',');
}

function redactUrl(text: string): string {
  const address = URL.canParse(text) ? new URL(text) : undefined;
  return address?.host ? `${address.protocol}//***@${address.host}${address.pathname}` : '***';
}
