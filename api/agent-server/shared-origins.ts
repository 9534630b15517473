import { type CorsSettings, originPattern } from '../../pipelines/agents/graphs/http-settings.ts';
import type { SharedOrigins } from '../server/cross-origin.ts';

const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];
/** What clients of the agent server read, so that it is exposed whatever else is. */
const exposedHeaders = [
  ...['content-location', 'location', 'x-pagination-total', 'x-pagination-next', 'x-request-id'],
  'x-ignored-fields',
];
/** No browser sends a longer one, and a pattern of a project may take long over it. */
const longestOrigin = 300;

/** Source: RFC 5735, loopback; a browser writes the host of an origin in its shortest form. */
const loopback = /^https?:\/\/(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?$/;
const loopbackOrigins = { includes: (origin: string) => loopback.test(origin) };

/** Whether the operator or the langgraph.json says which origins may call the agent server. */
export function setsOrigins(ofOperator: string | undefined, cors: CorsSettings | undefined | null): boolean {
  return ofOperator !== undefined || originsOf(cors ?? {}) !== undefined;
}

/**
 * Which pages may call the agent server: those of `ofOperator`, else those of `http.cors` in the langgraph.json, else pages of this
 * machine, such as a development server.
 */
export function sharedOrigins(ofOperator: string | undefined, cors: CorsSettings | undefined | null): SharedOrigins {
  const origins = ofOperator === undefined ? (originsOf(cors ?? {}) ?? loopbackOrigins) : originsIn(ofOperator);
  const { allow_methods: allowed = ['*'], allow_headers: headers = ['*'], expose_headers: exposed = [] } = cors ?? {};
  return {
    origins,
    methods: allowed.includes('*') ? methods : allowed.map((method) => method.toUpperCase()),
    headers: headers.includes('*') ? '*' : headers,
    exposedHeaders: [...new Set([...exposedHeaders, ...exposed.map((name) => name.toLowerCase())])],
    // Browsers send no cookies to a server that all origins may call.
    credentials: (cors?.allow_credentials ?? false) && origins !== '*',
    maxAgeSeconds: cors?.max_age ?? 600,
    settings: 'RUNLAKE_AGENTS_CORS_ORIGINS, or to http.cors.allow_origins of the langgraph.json',
  };
}

function originsIn(text: string): SharedOrigins['origins'] {
  return text === '*' ? '*' : text.split(',').map((origin) => origin.trim());
}

function originsOf({
  allow_origins: list = [],
  allow_origin_regex: regex,
}: CorsSettings): SharedOrigins['origins'] | undefined {
  if (list.includes('*')) return '*';
  if (!regex) return list.length === 0 ? undefined : list;
  const pattern = originPattern(regex);
  return {
    includes: (origin: string) => list.includes(origin) || (origin.length <= longestOrigin && pattern.test(origin)),
  };
}
