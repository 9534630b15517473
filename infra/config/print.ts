import type { LoadedConfig } from './load.ts';
import { type Config, type Setting, settings } from './settings.ts';

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

/** The settings of a process, as other commands may read them. */
export interface SharedSettings {
  /** Values by variable; null if a setting is not set. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** Variables of the secrets that are set. */
  readonly secretSettings: readonly string[];
}

/** Returns all settings of this process, without the values of secrets. */
export function shareSettings(config: Config): SharedSettings {
  const all = Object.entries<Setting>(settings).map(
    ([name, { variable, secret }]) => ({ variable, secret, value: config[name as keyof Config] ?? null }) as const,
  );
  return {
    settings: Object.fromEntries(all.flatMap(({ variable, secret, value }) => (secret ? [] : [[variable, value]]))),
    secretSettings: all.flatMap(({ variable, secret, value }) => (secret && value !== null ? [variable] : [])),
  };
}

/**
 * Returns the configuration of another process, with the secrets of this one.
 *
 * @returns also the variables whose values are different in this process, and the secrets that only the other one has.
 */
export function adoptSettings(
  own: Config,
  { settings: shared, secretSettings }: SharedSettings,
): { readonly config: Config; readonly different: string[]; readonly unknown: string[] } {
  const values: Record<string, unknown> = { ...own };
  const different: string[] = [];
  const unknown: string[] = [];
  for (const [name, { variable, secret }] of Object.entries<Setting>(settings)) {
    if (secret) {
      const isSet = secretSettings.includes(variable);
      if (isSet && values[name] === undefined) unknown.push(variable);
      if (!isSet) values[name] = undefined;
    } else if (variable in shared) {
      const value = shared[variable] ?? undefined;
      if (values[name] !== value) different.push(variable);
      values[name] = value;
    }
  }
  return { config: values as unknown as Config, different, unknown };
}
