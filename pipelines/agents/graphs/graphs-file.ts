import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { parseEnv } from 'node:util';
import { type Static, type TSchema, Type } from 'typebox';
import { Value } from 'typebox/value';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { Dictionary } from '../../../infra/json/dictionary.ts';
import { findInvalidSetting, type HttpSettings, httpSchema } from './http-settings.ts';

const stringMapSchema = Dictionary(Type.String());
const minutesSchema = Type.Number({ minimum: 0, maximum: 525_600_000 });
/** Interval in minutes, from one second to the maximum delay of a Node timer. */
const sweepMinutesSchema = Type.Number({ minimum: 1 / 60, maximum: 35_000 });
const referenceSchema = Type.String({ minLength: 1 });

const fileSchema = Type.Object({
  graphs: Dictionary(
    Type.Union([
      referenceSchema,
      Type.Object({ path: referenceSchema, description: Type.Optional(Type.Union([Type.String(), Type.Null()])) }),
    ]),
    { minProperties: 1 },
  ),
  env: Type.Optional(
    Type.Union([
      Type.String(),
      Dictionary(Type.Union([Type.String(), Type.Number(), Type.Boolean()])),
      Type.Array(Type.Never()),
    ]),
  ),
  auth: Type.Optional(
    Type.Object({ path: Type.Optional(referenceSchema), disable_studio_auth: Type.Optional(Type.Boolean()) }),
  ),
  http: Type.Optional(httpSchema),
  store: Type.Optional(
    Type.Object({
      index: Type.Optional(
        Type.Object({
          embed: referenceSchema,
          dims: Type.Integer({ minimum: 1 }),
          fields: Type.Optional(Type.Array(Type.String())),
        }),
      ),
      ttl: Type.Optional(
        Type.Object({
          default_ttl: Type.Optional(minutesSchema),
          refresh_on_read: Type.Optional(Type.Boolean()),
          sweep_interval_minutes: Type.Optional(sweepMinutesSchema),
        }),
      ),
    }),
  ),
  ui: Type.Optional(Dictionary(referenceSchema)),
  ui_config: Type.Optional(Type.Object({ shared: Type.Optional(Type.Array(Type.String())) })),
  checkpointer: Type.Optional(
    Type.Object({
      ttl: Type.Optional(
        Type.Object({
          strategy: Type.Optional(Type.Union([Type.Literal('delete'), Type.Literal('keep_latest')])),
          default_ttl: Type.Optional(minutesSchema),
          sweep_interval_minutes: Type.Optional(sweepMinutesSchema),
        }),
      ),
    }),
  ),
  webhooks: Type.Optional(
    Type.Object({
      headers: Type.Optional(stringMapSchema),
      env_prefix: Type.Optional(Type.String()),
      url: Type.Optional(
        Type.Object({
          allowed_domains: Type.Optional(Type.Array(Type.String())),
          allowed_ports: Type.Optional(Type.Array(Type.Integer())),
          require_https: Type.Optional(Type.Boolean()),
          max_url_length: Type.Optional(Type.Integer()),
          disable_loopback: Type.Optional(Type.Boolean()),
        }),
      ),
    }),
  ),
});

/** Fields that change what the reference server does with graphs, their state or their runs. */
const unsupportedFields = ['encryption', 'priority', 'node_loader'];
/** Members of `auth` that may be set without its path. Source: schema of the langgraph command line. */
const authSettings = ['disable_studio_auth', 'openapi', 'cache'];
/** Sections in which a member that is null is not set. Source: schema of the langgraph command line. */
const nullableSections = ['auth', 'http', 'store', 'checkpointer', 'webhooks', 'ui', 'ui_config'];

type FileContent = Static<typeof fileSchema>;

export interface ExportReference {
  /** Absolute path of the module. */
  readonly path: string;
  /** Name of the export; `default` if the reference contains no name. */
  readonly name: string;
}

export interface GraphSource extends ExportReference {
  readonly graphId: string;
  readonly description: string | null;
}

/** A validated langgraph.json. Fields in `http`, `store`, `checkpointer` and `webhooks` have the names of the file. */
export interface GraphsFile {
  readonly path: string;
  /** Folder of the file: base of its relative paths and working directory of graph code. */
  readonly folder: string;
  readonly graphs: readonly GraphSource[];
  readonly env: Readonly<Record<string, string>>;
  /** Default configs of assistants, by graph id. */
  readonly defaultConfigs: ReadonlyMap<string, DefaultConfig>;
  readonly auth?: ExportReference & { readonly disableStudioAuth: boolean };
  readonly app?: ExportReference;
  readonly http: HttpSettings;
  readonly store: NonNullable<FileContent['store']>;
  readonly checkpointer: NonNullable<FileContent['checkpointer']>;
  readonly webhooks: NonNullable<FileContent['webhooks']>;
  /** Paths of the modules of UIs, relative to the folder, by name. */
  readonly ui: Readonly<Record<string, string>>;
  readonly uiConfig: NonNullable<FileContent['ui_config']>;
  /** Fields of the file that this agent server does not support and ignores. */
  readonly ignoredFields: readonly string[];
}

/**
 * Reads and validates a langgraph.json. Does not check that the named modules exist, because a missing module makes
 * only its own graph unusable, when that graph is loaded. Ignores fields of other tools (`node_version`,
 * `dependencies`, `dockerfile_lines`, …). Source: configuration file of the LangGraph CLI.
 *
 * @param overrides environment variables that override `env` of the file. If they are given, a missing environment file
 *   counts as empty.
 * @throws GRAPHS_FILE_INVALID with the file, the field and the reason.
 */
export async function readGraphsFile(file: string, overrides?: Readonly<Record<string, string>>): Promise<GraphsFile> {
  const path = resolve(file);
  const folder = dirname(path);
  const invalid = (location: string, reason: string) =>
    runlakeError('GRAPHS_FILE_INVALID', { file: path, location, reason });
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    const reason = error.code === 'EISDIR' ? 'it is a folder: name the langgraph.json in it' : undefined;
    throw invalid('the file', reason ?? `it cannot be read (${error.code ?? error.message})`);
  });
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw invalid('the file', `it is not JSON: ${(error as Error).message}`);
  }
  content = removeNullMembers(content, 1, nullableSections);
  if (!isValid(fileSchema, content)) {
    // Each alternative of a union reports an error. Prefer the deepest error and, at the same depth, a missing field.
    const computeSpecificity = ({ instancePath, keyword }: { instancePath: string; keyword: string }) =>
      2 * instancePath.split('/').length + (keyword === 'required' ? 1 : 0);
    const [first] = Value.Errors(fileSchema, content).sort((a, b) => computeSpecificity(b) - computeSpecificity(a));
    throw invalid(
      first?.instancePath.slice(1).replaceAll('/', '.') || 'the file',
      first?.message ?? 'it does not match the schema',
    );
  }
  const { graphs, env, auth, http = {}, store = {}, checkpointer = {}, webhooks = {} } = content;
  const { ui = {}, ui_config: uiConfig = {} } = content;
  // A misspelt path must not disable authentication.
  const authNames = Object.keys(auth ?? { path: '' });
  if (!authNames.includes('path') && !authNames.every((name) => authSettings.includes(name)))
    throw invalid('auth', 'must have required properties path');
  const invalidSetting = findInvalidSetting(http);
  if (invalidSetting) throw invalid(invalidSetting.location, invalidSetting.reason);
  const sources = Object.entries(graphs).map(([graphId, entry]) => {
    const { path: location, description } = typeof entry === 'string' ? { path: entry, description: null } : entry;
    return { graphId, description: description ?? null, ...parseReference(folder, location) };
  });
  const environment = { ...(await readEnvironment(folder, env, invalid, overrides !== undefined)), ...overrides };
  return {
    path,
    folder,
    graphs: sources,
    env: environment,
    defaultConfigs: parseDefaultConfigs({ path, env: environment, graphs: sources }),
    ...(auth?.path !== undefined && {
      auth: { ...parseReference(folder, auth.path), disableStudioAuth: auth.disable_studio_auth ?? false },
    }),
    ...(http.app !== undefined && { app: parseReference(folder, http.app) }),
    http,
    store,
    checkpointer,
    webhooks,
    ui,
    uiConfig,
    ignoredFields: unsupportedFields.filter((name) => Object.hasOwn(content as object, name)),
  };
}

/** Parses a reference `./file.ts:name`. A colon after a drive letter is part of the path. */
export function parseReference(folder: string, text: string): ExportReference {
  const colon = text.lastIndexOf(':');
  const hasExportName = colon > 1 && !/[/\\]/.test(text.slice(colon));
  return {
    path: resolve(folder, hasExportName ? text.slice(0, colon) : text),
    name: (hasExportName && text.slice(colon + 1)) || 'default',
  };
}

async function readEnvironment(
  folder: string,
  env: FileContent['env'],
  invalid: (location: string, reason: string) => Error,
  mayBeMissing: boolean,
): Promise<Record<string, string>> {
  if (env === undefined || Array.isArray(env)) return {};
  if (typeof env !== 'string') {
    return Object.fromEntries(Object.entries(env).map(([name, value]) => [name, String(value)]));
  }
  const text = await readFile(resolve(folder, env), 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (mayBeMissing && error.code === 'ENOENT') return '';
    throw invalid('env', `the file '${env}' cannot be read (${error.code ?? error.message})`);
  });
  return parseEnv(text) as Record<string, string>;
}

/**
 * Removes members that are null from an object and from the objects in it.
 *
 * @param names the members to which this applies; all if it is missing.
 */
function removeNullMembers(value: unknown, depth: number, names?: readonly string[]): unknown {
  // Settings have at most four levels; the depth of the file is not limited.
  if (depth > 4 || typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const applies = (name: string) => names === undefined || names.includes(name);
  return Object.fromEntries(
    Object.entries(value)
      .filter(([name, member]) => member !== null || !applies(name))
      .map(([name, member]) => [name, applies(name) ? removeNullMembers(member, depth + 1) : member]),
  );
}

function isValid<const S extends TSchema>(schema: S, value: unknown): value is Static<S> {
  return Value.Check(schema, value);
}

/** Default config and context of a graph's assistant. */
const defaultConfigSchema = Type.Object(
  {
    tags: Type.Optional(Type.Array(Type.String())),
    metadata: Type.Optional(Dictionary(Type.Unknown())),
    recursion_limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 2_147_483_647 })),
    configurable: Type.Optional(Dictionary(Type.Unknown())),
    context: Type.Optional(Type.Unknown()),
  },
  { additionalProperties: false },
);
const defaultConfigsSchema = Dictionary(defaultConfigSchema);

type ParsedDefaultConfig = Static<typeof defaultConfigSchema>;

export interface DefaultConfig {
  readonly config: Omit<ParsedDefaultConfig, 'context'>;
  readonly context?: unknown;
}

const defaultsVariable = 'LANGGRAPH_CONFIG';

/**
 * Parses the default configs and contexts of graphs from the variable LANGGRAPH_CONFIG in `env` of a langgraph.json:
 * JSON of the form `{graph id: {configurable, …, context}}`.
 *
 * @throws GRAPHS_FILE_INVALID if the text is not valid, or names an unknown graph.
 */
export function parseDefaultConfigs({
  path,
  env,
  graphs,
}: {
  readonly path: string;
  readonly env: Readonly<Record<string, string>>;
  readonly graphs: readonly { readonly graphId: string }[];
}): ReadonlyMap<string, DefaultConfig> {
  const invalid = (reason: string) =>
    runlakeError('GRAPHS_FILE_INVALID', { file: path, location: `env.${defaultsVariable}`, reason });
  const text = env[defaultsVariable];
  if (text === undefined || text.trim() === '') return new Map();
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw invalid(`it is not JSON: ${(error as Error).message}`);
  }
  if (!Value.Check(defaultConfigsSchema, content)) {
    const [first] = Value.Errors(defaultConfigsSchema, content);
    const field = first?.instancePath.slice(1).replaceAll('/', '.');
    throw invalid(`${field ? `${field}: ` : ''}${first?.message ?? 'it does not match the schema'}`);
  }
  const unknown = Object.keys(content).find((id) => !graphs.some(({ graphId }) => graphId === id));
  if (unknown !== undefined) throw invalid(`there is no graph '${unknown}'`);
  return new Map(
    Object.entries(content).map(([graphId, { context, ...config }]) => [
      graphId,
      { config, ...(context !== undefined && { context }) },
    ]),
  );
}
