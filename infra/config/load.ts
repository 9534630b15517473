import { type TStringOptions, Type } from 'typebox';
import { Compile } from 'typebox/compile';
import Format from 'typebox/format';
import { fault } from '../errors/runlake-error.ts';
import { sslModes, unknownSslMode } from '../postgres/address.ts';
import { type Config, type Setting, type SettingName, settings } from './settings.ts';
import { isStackVariable } from './stack-settings.ts';

export type SettingSource = 'environment' | 'default' | 'not set';

export interface LoadedConfig {
  readonly config: Config;
  /** Where each value comes from, for `runlake config`. */
  readonly sources: Readonly<Record<SettingName, SettingSource>>;
  /** Variables that begin with `RUNLAKE_` and are no setting; reported as warnings. */
  readonly unknownVariables: readonly string[];
}

/**
 * Reads every setting out of `environment`, once, and freezes the result.
 * An empty variable counts as absent. Unknown variables that begin with `RUNLAKE_` are listed: mostly they are typing errors.
 *
 * @throws INVALID_CONFIG that lists all faults together.
 */
export function loadConfig(environment: Readonly<Record<string, string | undefined>> = process.env): LoadedConfig {
  const faults: string[] = [];
  const values: Record<string, unknown> = {};
  const sources: Record<string, SettingSource> = {};
  for (const [name, setting] of Object.entries<Setting>(settings)) {
    const raw = environment[setting.variable];
    if (raw === undefined || raw.trim() === '') {
      values[name] = setting.fallback;
      sources[name] = setting.fallback === undefined ? 'not set' : 'default';
      continue;
    }
    const value = convert(raw.trim(), setting);
    const reason = value === undefined ? 'does not have the right form' : firstFault(setting, value);
    if (reason !== undefined)
      faults.push(
        `${setting.variable}${setting.secret ? '' : `='${withoutSignIn(raw)}'`}: ${reason}. ${setting.about}`,
      );
    values[name] = value;
    sources[name] = 'environment';
  }
  faults.push(...contradictions(values));
  if (faults.length > 0) {
    throw fault('INVALID_CONFIG', { count: faults.length, faults: faults.map((line) => `  - ${line}`).join('\n') });
  }
  return Object.freeze({
    config: Object.freeze(values) as Config,
    sources: Object.freeze(sources) as LoadedConfig['sources'],
    unknownVariables: unknownVariables(environment),
  });
}

/** Somebody may have put a user and password where none belong. */
function withoutSignIn(raw: string): string {
  return raw.replace(/[^\s,/]+@/g, '***@');
}

function convert(raw: string, setting: Setting): unknown {
  if (Type.IsInteger(setting.schema)) return /^-?\d{1,15}$/.test(raw) ? Number(raw) : undefined;
  if (Type.IsBoolean(setting.schema)) {
    if (/^(true|1|yes|on)$/i.test(raw)) return true;
    return /^(false|0|no|off)$/i.test(raw) ? false : undefined;
  }
  return raw;
}

function firstFault(setting: Setting, value: unknown): string | undefined {
  const { schema } = setting;
  const { format, schemes } = schema as TStringOptions & { schemes?: readonly string[] };
  if (format && !Format.Test(format, String(value))) return `must be a valid ${format}`;
  const check = Compile(schema);
  if (check.Check(value)) return undefined;
  if (schemes) return `must begin with ${schemes.map((scheme) => `${scheme}://`).join(' or ')}`;
  if (Type.IsUnion(schema)) {
    const choices = schema.anyOf.map((choice) => ('const' in choice ? String(choice.const) : '')).join(', ');
    return `must be one of ${choices}`;
  }
  return check.Errors(value)[0]?.message ?? 'is not valid';
}

/** Faults between settings, which no single schema can see. */
function contradictions(values: Readonly<Record<string, unknown>>): string[] {
  const found: string[] = [];
  if (values.kafkaBrokers !== undefined && values.schemaRegistryUrl === undefined) {
    found.push('RUNLAKE_KAFKA_BROKERS needs RUNLAKE_SCHEMA_REGISTRY_URL');
  }
  if ((values.kafkaSaslMechanism === undefined) !== (values.kafkaUser === undefined)) {
    found.push('RUNLAKE_KAFKA_SASL_MECHANISM and RUNLAKE_KAFKA_USER go together');
  }
  if ((values.kafkaUser === undefined) !== (values.kafkaPassword === undefined)) {
    found.push('RUNLAKE_KAFKA_USER and RUNLAKE_KAFKA_PASSWORD go together');
  }
  const sslMode = unknownSslMode(String(values.databaseUrl));
  if (sslMode !== undefined) {
    found.push(`RUNLAKE_DATABASE_URL: sslmode is '${sslMode}', and must be one of ${sslModes.join(', ')}`);
  }
  if (Number(values.maxRunBytes) > Number(values.maxBodyBytes)) {
    found.push('RUNLAKE_MAX_RUN_BYTES must not be larger than RUNLAKE_MAX_BODY_BYTES');
  }
  if (Number(values.maxRunBytes) > Number(values.maxPendingBytes)) {
    found.push('RUNLAKE_MAX_RUN_BYTES must not be larger than RUNLAKE_MAX_PENDING_BYTES');
  }
  if (Number(values.maxBodyBytes) > Number(values.maxCollectingBytes)) {
    found.push('RUNLAKE_MAX_BODY_BYTES must not be larger than RUNLAKE_MAX_COLLECTING_BYTES');
  }
  return found;
}

function unknownVariables(environment: Readonly<Record<string, string | undefined>>): string[] {
  const known = new Set(Object.values<Setting>(settings).map((setting) => setting.variable));
  return Object.keys(environment).filter(
    (variable) => variable.startsWith('RUNLAKE_') && !known.has(variable) && !isStackVariable(variable),
  );
}
