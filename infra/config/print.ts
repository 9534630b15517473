import { resolve } from 'node:path';
import type { LoadedConfig } from './load.ts';
import { type Config, type Setting, type SettingName, settings } from './settings.ts';

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

/** The settings of a process, as other commands of the same user may read them. */
export interface SharedSettings {
  /** Values by variable; null if a setting is not set. Paths are absolute. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** Variables of the secrets that are set. */
  readonly secretSettings: readonly string[];
}

const paths: readonly string[] = ['dataDir', 'tlsCaFile', 'localExportRoot', 'agentsFile'] satisfies SettingName[];
/** The addresses of both stores are shared anyway: every command needs them. */
const isSecret = (name: string, { secret }: Setting) => secret && name !== 'clickhouseUrl' && name !== 'databaseUrl';
const toShared = (name: string, value: unknown) =>
  value !== undefined && paths.includes(name) ? resolve(String(value)) : (value ?? null);

/** Returns all settings of this process, without the values of secrets. */
export function shareSettings(config: Config): SharedSettings {
  const shared: Record<string, unknown> = {};
  const secretSettings: string[] = [];
  for (const [name, setting] of Object.entries<Setting>(settings)) {
    const value = config[name as SettingName];
    if (!isSecret(name, setting)) shared[setting.variable] = toShared(name, value);
    else if (value !== undefined) secretSettings.push(setting.variable);
  }
  return { settings: shared, secretSettings };
}

/** Returns some settings of another process. Those that it does not share are omitted. */
export function pickShared<Name extends SettingName>(
  { settings: shared }: Pick<SharedSettings, 'settings'>,
  names: readonly Name[],
): Partial<Pick<Config, Name>> {
  const found = names.filter((name) => settings[name].variable in shared);
  return Object.fromEntries(found.map((name) => [name, shared[settings[name].variable] ?? undefined])) as Partial<
    Pick<Config, Name>
  >;
}

/**
 * Returns the configuration of another process, except for the variables that are set in this one.
 *
 * @returns also the variables that are set here to another value, and the secrets of the other process that are not set
 *   here.
 */
export function adoptSettings(
  { config: own, sources }: LoadedConfig,
  { settings: shared, secretSettings }: SharedSettings,
): { readonly config: Config; readonly different: string[]; readonly unknown: string[] } {
  const values: Record<string, unknown> = { ...own };
  const different: string[] = [];
  const unknown: string[] = [];
  for (const [name, setting] of Object.entries<Setting>(settings)) {
    const { variable } = setting;
    const isSecretThere = secretSettings.includes(variable);
    if (sources[name as SettingName] === 'environment') {
      const isSame = isSecret(name, setting) ? isSecretThere : toShared(name, values[name]) === shared[variable];
      if (!isSame) different.push(variable);
    } else if (isSecretThere) unknown.push(variable);
    else if (variable in shared) values[name] = shared[variable] ?? undefined;
  }
  return { config: values as unknown as Config, different, unknown };
}
