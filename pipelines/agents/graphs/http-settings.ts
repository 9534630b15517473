import { type Static, Type } from 'typebox';

const maybe = <const S extends Parameters<typeof Type.Union>[0][number]>(schema: S) =>
  Type.Optional(Type.Union([schema, Type.Null()]));

/** The name of a method or of a header, or `*`. Source: RFC 9110, "token". */
const token = Type.String({ pattern: "^[\\w!#$%&'*+.^`|~-]+$" });
const tokens = Type.Optional(Type.Array(token));
const patterns = maybe(Type.Array(token));
/** The singular names are older ones. */
const headerChoice = maybe(
  Type.Object({ includes: patterns, excludes: patterns, include: patterns, exclude: patterns }),
);
const flag = Type.Optional(Type.Boolean());

/** `http` of a langgraph.json. Source: schema of the langgraph command line, HttpConfig. */
export const httpSchema = Type.Object({
  app: Type.Optional(Type.String({ minLength: 1 })),
  cors: maybe(
    Type.Object({
      allow_origins: Type.Optional(Type.Array(Type.String({ minLength: 1 }))),
      allow_origin_regex: maybe(Type.String({ minLength: 1 })),
      allow_methods: tokens,
      allow_headers: tokens,
      allow_credentials: flag,
      expose_headers: tokens,
      max_age: Type.Optional(Type.Integer({ minimum: 0 })),
    }),
  ),
  configurable_headers: headerChoice,
  logging_headers: headerChoice,
  enable_custom_route_auth: flag,
  middleware_order: maybe(Type.Union([Type.Literal('auth_first'), Type.Literal('middleware_first')])),
  mount_prefix: maybe(Type.String()),
  disable_assistants: flag,
  disable_threads: flag,
  disable_runs: flag,
  disable_store: flag,
  disable_meta: flag,
  disable_a2a: flag,
  disable_mcp: flag,
  disable_ui: flag,
  disable_webhooks: flag,
});

export type HttpSettings = Static<typeof httpSchema>;
export type CorsSettings = NonNullable<HttpSettings['cors']>;
export type HeaderChoice = NonNullable<HttpSettings['configurable_headers']>;

interface HttpFault {
  readonly place: string;
  readonly reason: string;
}

/** The first setting that cannot be followed: it is refused, never ignored. */
export function faultInHttp(http: HttpSettings): HttpFault | undefined {
  return [...faultsIn(http)].map(({ place, reason }) => ({ place: `http.${place}`, reason }))[0];
}

function* faultsIn(http: HttpSettings): Generator<HttpFault> {
  const unknown = Object.keys(http).find((name) => !Object.hasOwn(httpSchema.properties, name));
  if (unknown !== undefined) yield { place: unknown, reason: 'there is no such setting' };
  yield* faultsInCors(http.cors ?? {});
  if (headerPatterns(http.configurable_headers).includes.some((name) => keyHeaders.has(name))) {
    const reason = 'keys of the API are not handed to graphs: what a run is made with is stored and shown';
    yield { place: 'configurable_headers', reason };
  }
  if (headerPatterns(http.logging_headers).includes.length > 0) {
    yield { place: 'logging_headers', reason: 'headers of requests are never logged; leave it out, or only exclude' };
  }
  if (http.middleware_order === 'middleware_first') {
    const reason = 'middleware of http.app runs for its own routes alone, after authentication';
    yield { place: 'middleware_order', reason };
  }
  if (http.mount_prefix) {
    yield { place: 'mount_prefix', reason: 'it is not supported yet; let the proxy in front take the prefix away' };
  }
}

/** Source: Fetch standard, "CORS protocol and credentials". */
function* faultsInCors(cors: CorsSettings): Generator<HttpFault> {
  const { allow_credentials: credentials, allow_origins: origins = [], expose_headers: exposed = [] } = cors;
  if (credentials && origins.includes('*')) {
    yield { place: 'cors.allow_credentials', reason: 'browsers want origins by name for it, not `*`' };
  }
  if (credentials && exposed.includes('*')) {
    yield { place: 'cors.expose_headers', reason: 'with allow_credentials browsers want names, not `*`' };
  }
  const other = origins.find((origin) => origin !== '*' && !/^[a-z][a-z\d+.-]*:\/\/[^\s/,*]+$/i.test(origin));
  if (other !== undefined) {
    yield { place: 'cors.allow_origins', reason: `'${other}' is not an origin, such as https://app.example.com` };
  }
  try {
    originPattern(cors.allow_origin_regex ?? '');
  } catch (error) {
    yield { place: 'cors.allow_origin_regex', reason: (error as Error).message };
  }
}

/** For the whole of an origin: one that only begins with what is meant is another. @throws SyntaxError */
export function originPattern(text: string): RegExp {
  return new RegExp(`^(?:${text})$`);
}

/** Lower-case names, in which `*` stands for any text. */
export function headerPatterns(choice: HeaderChoice | null | undefined) {
  const lowered = (...lists: (readonly string[] | null | undefined)[]) =>
    lists.flatMap((list) => list ?? []).map((name) => name.toLowerCase());
  return {
    includes: lowered(choice?.includes, choice?.include),
    excludes: lowered(choice?.excludes, choice?.exclude),
  };
}

/** Headers that hold keys of the API. */
const keyHeaders: ReadonlySet<string> = new Set(['x-api-key', 'x-service-key']);
