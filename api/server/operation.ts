import type { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import type { Static, TObject, TSchema } from 'typebox';
import type { ErrorCode } from '../../infra/errors/catalogue.ts';
import type { Caller, WorkspaceCaller } from '../../pipelines/tenants/caller.ts';
import type { Permission } from '../../pipelines/tenants/permissions.ts';
import { toCanonicalPath } from './canonical-url.ts';
import type { Services } from './services.ts';

/**
 * Describes an operation of an HTTP API. The file of each resource declares operations with {@link defineOperation}.
 * The operations of an API are listed by their tags in `api/main/operations.ts` or `api/agent-server/operations.ts`.
 * `registerOperation` registers a route for each operation.
 *
 * A request passes these steps, each of which can fail with a RunlakeError: draining → API key → workspace → permission
 * → body → schema → handler → response schema.
 */
export interface Operation {
  /**
   * Unique name in camelCase. It identifies the operation in the API description, in metrics and in the table of the
   * tenancy test.
   */
  readonly operationId: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /**
   * The canonical path without its prefix, such as `/sessions/:session_id`. The server accepts the path under
   * `/api/v1`, `/api` and `/`, with or without a trailing slash. The canonical form of a path that starts with `/v2/`
   * is under `/api`. With `mount: 'root'`, the server accepts only the path itself.
   */
  readonly path: string;
  /** Other paths of the same operation. The API description omits them. */
  readonly aliases?: readonly string[];
  readonly mount?: 'root';
  readonly summary: string;
  readonly description?: string;
  readonly tag: string;
  readonly access: Access;
  /**
   * Format of error responses. `detail` (default): `{"detail": …}`. `error`: `{"error": …}`, for ingest operations.
   * `problem`: problem details (RFC 9457), for operations of version 2. `otlp`: google.rpc.Status in the encoding of
   * the request. `json-rpc`: like `detail`, except that invalid JSON results in JSON-RPC error -32700 with status 200.
   * `mcp`: like `error`, except that invalid JSON results in this error with status 400.
   */
  readonly errorStyle?: ErrorStyle;
  readonly schema: OperationSchema;
  /**
   * Parameters that clients of this API send but this server does not implement. A request that uses such a parameter
   * gets 400 PARAMETER_NOT_SUPPORTED. A parameter with the value `null`, an empty text or an empty list counts as
   * unused. If the parameter is also listed in `flags`, `false` and the texts `false`, `0`, `no` and `off` also count
   * as unused.
   */
  readonly unsupported?: {
    readonly query?: readonly string[];
    readonly body?: readonly string[];
    readonly flags?: readonly string[];
  };
  /** Set if the handler reads `request.raw` itself. No parser, size limit or schema applies to the body. */
  readonly rawBody?: RawBody;
  /** Maximum size of the JSON body, instead of that of the API. */
  readonly maxBodyBytes?: number;
  /**
   * Paths to the JSON objects of the body that the handler stores. Their numbers stay exact; see `marked-json.ts`. A path
   * leads into each item of a list.
   */
  readonly exactFields?: readonly string[];
  /** Errors that the handler throws, for the API description, which also contains the errors of the earlier steps. */
  readonly errors?: readonly ErrorCode[];
  /**
   * Set if no span is created. With a span, Runlake's export of its own traces to itself would create further traces.
   */
  readonly untraced?: true;
  /** Set if the operation stays available while the server drains. Draining does not wait for such an operation. */
  readonly servesWhileDraining?: true;
  /** Set if requests from pages of any origin are allowed. Only for operations that need no key. */
  readonly openToPages?: true;
  /**
   * Handles WebSocket upgrades on the path, which must be the path of a GET operation. Params and access are checked
   * before this function is called. If the API has `customAccess`, this function must itself authorise each message on
   * the socket.
   */
  socket?(socket: never, input: never): void;
  handler(input: never): Promise<unknown>;
}

/**
 * A permission with its tenant scope, any valid key, or explicitly public. With the scope `workspace`, the operation
 * applies to the workspace in `X-Tenant-Id` or else to the workspace of the key. An operation for any key authorises the
 * parts of its request itself.
 */
export type Access =
  | { readonly permission: Permission; readonly tenantScope: 'workspace' | 'organization' }
  | { readonly anyKey: true; readonly tenantScope: 'organization' }
  | { readonly public: true; readonly tenantScope: 'none' };

export type ErrorStyle = 'detail' | 'error' | 'problem' | 'otlp' | 'json-rpc' | 'mcp';

/** Describes a raw body in the API description. */
export interface RawBody {
  readonly contentTypes: readonly string[];
  readonly description: string;
}

export interface OperationSchema {
  readonly params?: TObject;
  /**
   * Schema of the query. Values are converted to the types of the schema, empty values are treated as absent, and the
   * values of a repeated key become a list. Names that are not in the schema are ignored; see `ignored-fields.ts`.
   */
  readonly query?: TObject;
  /** Schema of the parsed JSON body. Values are not converted. */
  readonly body?: TSchema;
  /** Responses by status. The lowest status below 300 is sent unless the handler returns a {@link RawResponse}. */
  readonly response: Readonly<Record<number, TSchema>>;
  /** Media type of the response if it is not JSON. */
  readonly produces?: string;
  /** Further media types of the response with their schemas, for the API description. */
  readonly alsoProduces?: Readonly<Record<string, TSchema>>;
}

/** A response whose status, headers or raw body are set by the handler. Buffers and streams are sent unchanged. */
export class RawResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly body: unknown;

  constructor(options: {
    status?: number;
    headers?: Readonly<Record<string, string | string[]>>;
    body?: Buffer | Readable | object;
  }) {
    this.status = options.status ?? 200;
    this.headers = options.headers ?? {};
    this.body = options.body;
  }
}

type ScopedCaller<A extends Access> = A['tenantScope'] extends 'workspace'
  ? WorkspaceCaller
  : A['tenantScope'] extends 'organization'
    ? Caller
    : undefined;

type StaticProperty<S, K extends string> = S extends { readonly [P in K]: infer T extends TSchema }
  ? Static<T>
  : undefined;

type HandlerResult<S extends OperationSchema> = {
  [K in keyof S['response']]: S['response'][K] extends TSchema ? Static<S['response'][K]> : never;
}[keyof S['response']];

/** The parts of a request for a workspace that handlers pass to shared functions. */
export interface WorkspaceRequest {
  readonly caller: WorkspaceCaller;
  readonly services: Services;
  readonly request: FastifyRequest;
}

/** Input of a handler, validated and typed by the schema of the operation. `V` is the type of the API's services. */
export interface HandlerInput<A extends Access, S extends OperationSchema, V = Services> {
  readonly caller: ScopedCaller<A>;
  readonly params: StaticProperty<S, 'params'>;
  readonly query: StaticProperty<S, 'query'>;
  readonly body: StaticProperty<S, 'body'>;
  readonly services: V;
  /**
   * The request: gives access to headers, the raw stream (`request.raw`), `request.signal`, the log (`request.log`) and
   * the request id.
   */
  readonly request: FastifyRequest;
}

/** An operation whose handler uses services of type `V`. */
export type TypedOperation<A extends Access, S extends OperationSchema, V> = Omit<
  Operation,
  'handler' | 'socket' | 'access' | 'schema' | 'tag'
> & {
  readonly access: A;
  readonly schema: S;
  socket?(socket: never, input: HandlerInput<A, S, V>): void;
  handler(input: HandlerInput<A, S, V>): Promise<HandlerResult<S> | RawResponse>;
};

/**
 * Declares an operation of the main API. The types of the handler's input and of its result are derived from `access`
 * and `schema`.
 */
export function defineOperation<const A extends Access, const S extends OperationSchema>(
  operation: TypedOperation<A, S, Services>,
): UntaggedOperation {
  return operation;
}

export type UntaggedOperation = Omit<Operation, 'tag'>;

/** Lists operations by the tag under which the API description shows them. */
export function listByTag<O extends UntaggedOperation>(
  operations: Readonly<Record<string, readonly O[]>>,
): (O & Pick<Operation, 'tag'>)[] {
  return Object.entries(operations).flatMap(([tag, ofTag]) => ofTag.map((operation) => ({ ...operation, tag })));
}

/** Masks parameter names, because routes that differ only in the names of parameters are the same route. */
export function maskParameters(routePath: string): string {
  return routePath.replace(/:[^/]+/g, ':id');
}

export function buildRoutePath(operation: Operation, path: string): string {
  return operation.mount === 'root' ? path : toCanonicalPath(path);
}
