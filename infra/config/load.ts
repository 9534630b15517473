import { isIP } from 'node:net';
import { type TStringOptions, Type } from 'typebox';
import { Compile } from 'typebox/compile';
import Format from 'typebox/format';
import { runlakeError } from '../errors/runlake-error.ts';
import { findNearestName } from '../errors/suggest-name.ts';
import { findUnknownSslMode, sslModes } from '../postgres/address.ts';
import { parseAgentsRevision, revisionVariable } from './graph-environment.ts';
import { internals, memoryShares } from './internals.ts';
import { splitList } from './setting.ts';
import { type Config, type Setting, type SettingName, settings } from './settings.ts';

/**
 * Matches variables that are not settings: those of the tests, the credentials of `runlake tools --stdio`, the revision
 * of a replica, and those that Kubernetes adds for a service whose name starts with `runlake`; see
 * {@link isServiceLink} for the remaining one.
 */
const foreignVariablePattern =
  /^RUNLAKE_(STACK|TEST)_|^RUNLAKE_(?:API_KEY|WORKSPACE_ID|ENDPOINT|AGENTS_REVISION)$|_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?$/;

/**
 * Whether the variable is the `<NAME>_PORT=tcp://10.0.0.1:80` that Kubernetes adds for a service in the namespace. Its
 * name may be that of a setting.
 */
const isServiceLink = (variable: string, value: string) =>
  variable.endsWith('_PORT') && /^(tcp|udp|sctp):\/\//.test(value);

export type SettingSource = 'environment' | 'default' | 'not set';

export interface LoadedConfig {
  readonly config: Config;
  /** Source of each value, for `runlake config`. */
  readonly sources: Readonly<Record<SettingName, SettingSource>>;
}

/**
 * Reads all settings from `environment`, and freezes the result. An empty variable and a variable that Kubernetes
 * adds for a service are treated as absent. A variable that starts with `RUNLAKE_` but is not a setting is an error,
 * because it is most likely misspelt.
 *
 * Tests that start processes set RUNLAKE_TEST_SETTINGS. It is a JSON object whose keys are constants of `internals.ts`
 * and whose values replace the values of these constants. The variable is refused unless NODE_ENV is `test`.
 *
 * @throws INVALID_CONFIG, which lists all errors.
 */
export function loadConfig(environment: Readonly<Record<string, string | undefined>> = process.env): LoadedConfig {
  const errors: string[] = [];
  const values: Record<string, unknown> = {};
  const sources: Record<string, SettingSource> = {};
  for (const [name, setting] of Object.entries<Setting>(settings)) {
    const raw = environment[setting.variable];
    if (raw === undefined || raw.trim() === '' || isServiceLink(setting.variable, raw)) {
      values[name] = setting.fallback;
      sources[name] = setting.fallback === undefined ? 'not set' : 'default';
      continue;
    }
    const value = convert(raw.trim(), setting);
    const reason = value === undefined ? 'is not a valid value' : findFirstError(setting, value);
    if (reason !== undefined)
      errors.push(
        `${setting.variable}${setting.secret ? '' : `='${removeCredentials(raw)}'`}: ${reason}. ${setting.description}`,
      );
    values[name] = value;
    sources[name] = 'environment';
  }
  Object.assign(values, computeMemoryShares(Number(values.memoryBytes)), internals);
  const revision = environment[revisionVariable];
  values.agentsRevision = revision ? parseAgentsRevision(revision) : undefined;
  if (revision && values.agentsRevision === undefined) {
    errors.push(`${revisionVariable} must be a JSON object with \`id\` and \`environment\`, an object of texts.`);
  }
  errors.push(
    ...overrideForTests(values, environment),
    ...findContradictions(values),
    ...listUnknownVariables(environment),
  );
  if (errors.length > 0) {
    throw runlakeError('INVALID_CONFIG', {
      count: errors.length,
      errors: errors.map((line) => `  - ${line}`).join('\n'),
    });
  }
  return Object.freeze({
    config: Object.freeze(values) as Config,
    sources: Object.freeze(sources) as LoadedConfig['sources'],
  });
}

/**
 * Removes the user and the password from a URL, because the operator may have put them into a setting that is not
 * secret.
 */
function removeCredentials(raw: string): string {
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

function findFirstError(setting: Setting, value: unknown): string | undefined {
  const { schema } = setting;
  const { format, schemes } = schema as TStringOptions & { schemes?: readonly string[] };
  if (format && !Format.Test(format, String(value))) return `must be a valid ${format}`;
  const check = Compile(schema);
  if (check.Check(value)) {
    // Only lists of URLs have no format.
    const addresses = schemes === undefined ? [] : format === undefined ? splitList(String(value)) : [String(value)];
    return addresses.every(isUsableUrl)
      ? undefined
      : 'must have one host and a valid port, and special characters as percent codes';
  }
  if (schemes) return `must start with ${schemes.map((scheme) => `${scheme}://`).join(' or ')}`;
  if (Type.IsUnion(schema)) {
    const choices = schema.anyOf.map((choice) => ('const' in choice ? String(choice.const) : '')).join(', ');
    return `must be one of ${choices}`;
  }
  return check.Errors(value)[0]?.message ?? 'is not valid';
}

/** The format `uri` also accepts addresses without a host, and clients decode the user, the password and the path. */
function isUsableUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { username, password, pathname } = new URL(text);
  try {
    decodeURIComponent(`${username} ${password} ${pathname}`);
    return true;
  } catch {
    return false;
  }
}

/**
 * Returns the environment of this process with other values of some settings, for a child process that runs a role. An
 * undefined value unsets the setting.
 */
export function buildChildEnvironment(
  values: Partial<Record<SettingName, string | number | boolean | undefined>>,
): Record<string, string | undefined> {
  const overrides = Object.entries(values).map(([name, value]) => [
    settings[name as SettingName].variable,
    value === undefined ? '' : String(value),
  ]);
  return { ...process.env, ...Object.fromEntries(overrides) };
}

/** Time after their expiry at which rows are deleted by the `TTL` of the ClickHouse tables. */
const maxExportMsWithRetention = 7 * 86_400_000;

/** Returns errors that involve several settings, and errors that a schema cannot detect. */
function findContradictions(values: Readonly<Record<string, unknown>>): string[] {
  const found: string[] = [];
  if (values.kafkaBrokers !== undefined && values.schemaRegistryUrl === undefined) {
    found.push('RUNLAKE_KAFKA_BROKERS requires RUNLAKE_SCHEMA_REGISTRY_URL');
  }
  found.push(...findClusterErrors(values));
  if ((values.kafkaSaslMechanism === undefined) !== (values.kafkaUser === undefined)) {
    found.push('RUNLAKE_KAFKA_SASL_MECHANISM and RUNLAKE_KAFKA_USER must be set together');
  }
  if ((values.kafkaUser === undefined) !== (values.kafkaPassword === undefined)) {
    found.push('RUNLAKE_KAFKA_USER and RUNLAKE_KAFKA_PASSWORD must be set together');
  }
  if ((values.oidcIssuer === undefined) !== (values.oidcClientId === undefined)) {
    found.push('RUNLAKE_OIDC_ISSUER and RUNLAKE_OIDC_CLIENT_ID must be set together');
  }
  const proxies = values.trustedProxies === undefined ? [] : splitList(String(values.trustedProxies));
  const malformed = proxies.find((network) => !isNetwork(network));
  if (malformed !== undefined) {
    found.push(`RUNLAKE_TRUSTED_PROXIES: '${malformed}' is not an IP address or a network such as 10.0.0.0/8`);
  }
  const unsupportedSslMode = findUnknownSslMode(String(values.databaseUrl));
  if (unsupportedSslMode !== undefined) {
    found.push(`RUNLAKE_DATABASE_URL: sslmode is '${unsupportedSslMode}' but must be one of ${sslModes.join(', ')}`);
  }
  if (Number(values.maxRunBytes) > Number(values.maxBodyBytes)) {
    found.push('RUNLAKE_MAX_RUN_BYTES must not be larger than RUNLAKE_MAX_BODY_BYTES');
  }
  if (Number(values.maxRunBytes) > Number(values.maxPendingBytes)) {
    found.push('RUNLAKE_MAX_RUN_BYTES must not be larger than a quarter of RUNLAKE_MEMORY_BYTES');
  }
  if (Number(values.maxBodyBytes) > Number(values.maxCollectingBytes)) {
    found.push('RUNLAKE_MAX_BODY_BYTES must not be larger than half of RUNLAKE_MEMORY_BYTES');
  }
  const { retentionShortlivedDays: shortlivedDays, retentionLonglivedDays: longlivedDays } = values;
  if ((shortlivedDays ?? longlivedDays) !== undefined && Number(values.exportTimeoutMs) > maxExportMsWithRetention) {
    found.push('RUNLAKE_EXPORT_TIMEOUT_MS must be at most 7 days if traces expire, because their rows stay for 7 days');
  }
  if (longlivedDays !== undefined && Number(shortlivedDays ?? 0) > Number(longlivedDays)) {
    found.push('RUNLAKE_RETENTION_SHORTLIVED_DAYS must not be larger than RUNLAKE_RETENTION_LONGLIVED_DAYS');
  }
  return found;
}

function isNetwork(text: string): boolean {
  const [, address = '', bits] = /^([^/]*)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const version = isIP(address);
  return version !== 0 && Number(bits ?? 0) <= (version === 4 ? 32 : 128);
}

/**
 * Returns the errors in the ClickHouse addresses. The database must be the same on all servers, because a Distributed
 * table refers to one database. Without a cluster, there must be only one server, because several servers would each
 * store a part of the rows.
 */
function findClusterErrors({ clickhouseUrl, clickhouseCluster }: Readonly<Record<string, unknown>>): string[] {
  if (typeof clickhouseUrl !== 'string') {
    return clickhouseCluster === undefined ? [] : ['RUNLAKE_CLICKHOUSE_CLUSTER requires RUNLAKE_CLICKHOUSE_URL'];
  }
  const urls = splitList(clickhouseUrl);
  // Then another error names the address.
  if (!urls.every((url) => URL.canParse(url))) return [];
  if (urls.length > 1 && clickhouseCluster === undefined) {
    return ['RUNLAKE_CLICKHOUSE_URL lists several servers, which requires RUNLAKE_CLICKHOUSE_CLUSTER'];
  }
  const databases = new Set(urls.map((url) => new URL(url).pathname));
  return databases.size > 1 ? ['RUNLAKE_CLICKHOUSE_URL: the database must be the same on all servers'] : [];
}

function computeMemoryShares(memoryBytes: number): Record<string, number> {
  return Object.fromEntries(
    Object.entries(memoryShares).map(([name, share]) => [name, Math.floor(memoryBytes * share)] as const),
  );
}

/** Replaces the values of constants with the values in RUNLAKE_TEST_SETTINGS. Returns the errors in this variable. */
function overrideForTests(
  values: Record<string, unknown>,
  environment: Readonly<Record<string, string | undefined>>,
): string[] {
  const raw = environment.RUNLAKE_TEST_SETTINGS?.trim();
  if (!raw) return [];
  if (environment.NODE_ENV !== 'test') return ['RUNLAKE_TEST_SETTINGS is for tests of Runlake: NODE_ENV is not test'];
  const overrides = parseObject(raw);
  if (overrides === undefined) return ['RUNLAKE_TEST_SETTINGS is not a JSON object'];
  const known = [...Object.keys(internals), ...Object.keys(memoryShares)];
  const errors: string[] = [];
  for (const [name, value] of Object.entries(overrides)) {
    if (!known.includes(name)) {
      errors.push(`RUNLAKE_TEST_SETTINGS: ${name} is not a constant; did you mean ${findNearestName(name, known)}?`);
    } else if (typeof value !== typeof values[name]) {
      errors.push(`RUNLAKE_TEST_SETTINGS: ${name} must be a ${typeof values[name]}`);
    } else values[name] = value;
  }
  return errors;
}

function parseObject(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}

function listUnknownVariables(environment: Readonly<Record<string, string | undefined>>): string[] {
  const known = Object.values<Setting>(settings).map(({ variable }) => variable);
  return Object.entries(environment)
    .filter(([variable, value]) => variable.startsWith('RUNLAKE_') && value?.trim() && !isServiceLink(variable, value))
    .filter(([variable]) => !foreignVariablePattern.test(variable) && !known.includes(variable))
    .map(([variable]) => `${variable} is not a setting; did you mean ${findNearestName(variable, known)}?`);
}
