import { createRequire } from 'node:module';
import type * as Re2 from 're2js';
import { type Static, Type } from 'typebox';

const optionalOrNull = <const S extends Parameters<typeof Type.Union>[0][number]>(schema: S) =>
  Type.Optional(Type.Union([schema, Type.Null()]));

/** Name of an HTTP method or header, or `*`. Source: RFC 9110, "token". */
const token = Type.String({ pattern: "^[\\w!#$%&'*+.^`|~-]+$" });
const optionalTokens = Type.Optional(Type.Array(token));
const patterns = optionalOrNull(Type.Array(token, { maxItems: 1_000 }));
/** `include` and `exclude` are legacy names of `includes` and `excludes`. */
const headerChoice = optionalOrNull(
  Type.Object({ includes: patterns, excludes: patterns, include: patterns, exclude: patterns }),
);
const optionalBoolean = Type.Optional(Type.Boolean());

/** `http` of a langgraph.json. Source: schema of the langgraph command line, HttpConfig. */
export const httpSchema = Type.Object({
  app: Type.Optional(Type.String({ minLength: 1 })),
  cors: optionalOrNull(
    Type.Object({
      allow_origins: Type.Optional(Type.Array(Type.String({ minLength: 1 }))),
      allow_origin_regex: optionalOrNull(Type.String({ minLength: 1, maxLength: 10_000 })),
      allow_methods: optionalTokens,
      allow_headers: optionalTokens,
      allow_credentials: optionalBoolean,
      expose_headers: optionalTokens,
      max_age: Type.Optional(Type.Integer({ minimum: 0 })),
    }),
  ),
  configurable_headers: headerChoice,
  logging_headers: headerChoice,
  enable_custom_route_auth: optionalBoolean,
  middleware_order: optionalOrNull(Type.Union([Type.Literal('auth_first'), Type.Literal('middleware_first')])),
  mount_prefix: optionalOrNull(Type.String()),
  disable_assistants: optionalBoolean,
  disable_threads: optionalBoolean,
  disable_runs: optionalBoolean,
  disable_store: optionalBoolean,
  disable_meta: optionalBoolean,
  disable_a2a: optionalBoolean,
  disable_mcp: optionalBoolean,
  disable_ui: optionalBoolean,
  disable_webhooks: optionalBoolean,
});

export type HttpSettings = Static<typeof httpSchema>;
export type CorsSettings = NonNullable<HttpSettings['cors']>;
export type ConfigurableHeaders = NonNullable<HttpSettings['configurable_headers']>;

interface InvalidSetting {
  readonly location: string;
  readonly reason: string;
}

/**
 * Returns the first setting that is invalid or unsupported. The server rejects these settings; it never ignores them.
 */
export function findInvalidSetting(http: HttpSettings): InvalidSetting | undefined {
  return [...listInvalidSettings(http)].map(({ location, reason }) => ({ location: `http.${location}`, reason }))[0];
}

function* listInvalidSettings(http: HttpSettings): Generator<InvalidSetting> {
  const unknown = Object.keys(http).find((name) => !Object.hasOwn(httpSchema.properties, name));
  if (unknown !== undefined) yield { location: unknown, reason: 'unknown setting' };
  yield* listInvalidCorsSettings(http.cors ?? {});
  if (toHeaderPatterns(http.configurable_headers).includes.some((name) => apiKeyHeaders.has(name))) {
    const reason =
      'API keys must not be passed to graphs, because the config of a run is stored and returned by the API';
    yield { location: 'configurable_headers', reason };
  }
  if (toHeaderPatterns(http.logging_headers).includes.length > 0) {
    yield {
      location: 'logging_headers',
      reason: 'request headers are never logged; remove the setting, or use only excludes',
    };
  }
  if (http.middleware_order === 'middleware_first') {
    const reason = 'middleware of http.app executes only for its own routes, after authentication';
    yield { location: 'middleware_order', reason };
  }
  if (http.mount_prefix) {
    yield { location: 'mount_prefix', reason: 'it is not supported yet; remove the prefix in the reverse proxy' };
  }
}

/** Lists invalid CORS settings. Source: Fetch standard, "CORS protocol and credentials". */
function* listInvalidCorsSettings(cors: CorsSettings): Generator<InvalidSetting> {
  const { allow_credentials: credentials, allow_origins: origins = [], expose_headers: exposed = [] } = cors;
  if (credentials && origins.includes('*')) {
    yield { location: 'cors.allow_credentials', reason: 'browsers reject it with the origin `*`; list the origins' };
  }
  if (credentials && exposed.includes('*')) {
    yield { location: 'cors.expose_headers', reason: 'browsers ignore `*` with allow_credentials; list the headers' };
  }
  const other = origins.find((origin) => origin !== '*' && !/^[a-z][a-z\d+.-]*:\/\/[^\s/,*]+$/i.test(origin));
  if (other !== undefined) {
    yield { location: 'cors.allow_origins', reason: `'${other}' is not an origin, such as https://app.example.com` };
  }
  const flaw = typeof cors.allow_origin_regex === 'string' ? findPatternFlaw(cors.allow_origin_regex) : undefined;
  if (flaw !== undefined) yield { location: 'cors.allow_origin_regex', reason: flaw };
}

/** Loads the engine of patterns, which most projects do not have. */
const loadRe2 = () => createRequire(import.meta.url)('re2js') as typeof Re2;

/**
 * Maximum size of a pattern in RE2 instructions. An origin is compared in time proportional to it. A list of hundreds of
 * domains has one for each character.
 */
const maxPatternSize = 10_000;

function findPatternFlaw(text: string): string | undefined {
  const { RE2JS, RE2JSException } = loadRe2();
  try {
    return RE2JS.compile(text).programSize() > maxPatternSize
      ? 'it is too large: use smaller repetitions, or list the origins in allow_origins'
      : undefined;
  } catch (error) {
    if (!(error instanceof RE2JSException)) throw error;
    return `it is not a regular expression of RE2, which has no backreferences and no look-around: ${error.message}`;
  }
}

/**
 * Returns a function that tests whether a pattern matches a whole origin, in linear time: the project may be untrusted, and
 * anyone can send an origin. {@link findInvalidSetting} must have checked the pattern.
 */
export function compileOriginPattern(text: string): (origin: string) => boolean {
  const pattern = loadRe2().RE2JS.compile(text);
  return (origin) => pattern.matches(origin);
}

/** Returns lower-case header patterns, in which `*` matches any text. */
export function toHeaderPatterns(choice: ConfigurableHeaders | null | undefined) {
  const toLowerCaseList = (...lists: (readonly string[] | null | undefined)[]) =>
    lists.flatMap((list) => list ?? []).map((name) => name.toLowerCase());
  return {
    includes: toLowerCaseList(choice?.includes, choice?.include),
    excludes: toLowerCaseList(choice?.excludes, choice?.exclude),
  };
}

const apiKeyHeaders: ReadonlySet<string> = new Set(['x-api-key', 'x-service-key']);
