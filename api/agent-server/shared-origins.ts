import { type CorsSettings, originPattern } from '../../pipelines/agents/graphs/http-settings.ts';
import type { SharedOrigins } from '../server/cross-origin.ts';

const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];
/** What clients of the agent server read, so that it is exposed whatever else is. */
const exposedHeaders = ['content-location', 'location', 'x-pagination-total', 'x-pagination-next', 'x-request-id'];
/** No browser sends a longer one, and a pattern of a project may take long over it. */
const longestOrigin = 300;

/**
 * Which pages may call the agent server, by `http.cors` of the langgraph.json. Origins that the operator sets count in place of
 * those of the file. Undefined: none.
 */
export function sharedOrigins(
  ofOperator: string | undefined,
  cors: CorsSettings | undefined | null,
): SharedOrigins | undefined {
  const origins = ofOperator === undefined ? originsOf(cors ?? {}) : originsIn(ofOperator);
  if (origins === undefined) return undefined;
  const { allow_methods: allowed = ['*'], allow_headers: headers = ['*'], expose_headers: exposed = [] } = cors ?? {};
  return {
    origins,
    methods: allowed.includes('*') ? methods : allowed.map((method) => method.toUpperCase()),
    headers: headers.includes('*') ? '*' : headers,
    exposedHeaders: [...new Set([...exposedHeaders, ...exposed.map((name) => name.toLowerCase())])],
    // Browsers take no cookies along to where all origins may call.
    credentials: (cors?.allow_credentials ?? false) && origins !== '*',
    maxAgeSeconds: cors?.max_age ?? 600,
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
