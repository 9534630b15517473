import type { LoadedConfig } from './load.ts';
import { type Setting, settings } from './settings.ts';

/** Every setting as lines `VARIABLE=value  (source)`, secrets as `***`: what `runlake config` prints. */
export function printConfig({ config, sources }: LoadedConfig): string {
  return Object.entries<Setting>(settings)
    .map(([name, setting]) => {
      const value = config[name as keyof typeof config];
      return `${setting.variable}=${value === undefined ? '' : redact(setting, value)}  (${sources[name as keyof typeof sources]})`;
    })
    .join('\n');
}

/** A secret address keeps what tells it apart (scheme, host, path) and loses user and password; other secrets vanish. */
function redact(setting: Setting, value: unknown): string {
  if (!setting.secret) return String(value);
  const address = URL.canParse(String(value)) ? new URL(String(value)) : undefined;
  return address?.host ? `${address.protocol}//***@${address.host}${address.pathname}` : '***';
}
