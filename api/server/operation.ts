import type { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import type { Static, TObject, TSchema } from 'typebox';
import type { ErrorCode } from '../../infra/errors/catalogue.ts';
import type { Caller, WorkspaceCaller } from '../../pipelines/tenants/caller.ts';
import type { Permission } from '../../pipelines/tenants/permissions.ts';
import type { Services } from './services.ts';

/**
 * Describes an operation of an HTTP API. The file of a resource declares its operations with {@link defineOperation};
 * the list of the area contains them (`api/main/operations.ts`, `api/agent-server/operations.ts`); `registerOperation`
 * turns each into a route.
 *
 * A request passes these steps, each of which can fail with a RunlakeError: draining → API key → workspace → permission
 * → body → schema → handler → response schema.
 */
export interface Operation {
  /**
   * Unique, camelCase; identifies the operation in the API description, in metrics and in the table of the tenancy
   * test.
   */
  readonly operationId: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /**
   * The canonical path without its prefix, such as `/sessions/:session_id`. The server accepts it under `/api/v1`,
   * `/api` and `/`, with or without a trailing slash; a path that starts with `/v2/` is canonical under `/api`. With `mount: 'root'` it accepts only the path itself.
   */
  readonly path: string;
  /** Other paths of the same operation; the API description omits them. */
  readonly aliases?: readonly string[];
  readonly mount?: 'root';
  readonly summary: string;
  readonly description?: string;
  readonly tag: string;
  readonly access: Access;
  /**
   * Format of error responses. `detail` (default): `{"detail": …}`. `error`: `{"error": …}`, for ingest operations.
   * `problem`: problem details (RFC 9457), for operations of version 2. `otlp`: google.rpc.Status, encoded like the
   * request. `json-rpc`: like `detail`, but invalid JSON results in JSON-RPC error -32700 with status 200.
   */
  readonly errorStyle?: ErrorStyle;
  readonly schema: OperationSchema;
  /**
   * Parameters that clients of this API send and this server does not implement. A request that uses one gets 400
   * PARAMETER_NOT_SUPPORTED. `null`, empty text and empty lists are treated as unused; for a parameter that is also in
   * `flags`, so are `false` and the texts `false`, `0`, `no` and `off`.
   */
  readonly unsupported?: {
    readonly query?: readonly string[];
    readonly body?: readonly string[];
    readonly flags?: readonly string[];
  };
  /** The handler reads `request.raw` itself; no parser, size limit or schema applies to the body. */
  readonly rawBody?: RawBody;
  /** Errors that the handler throws, for the API description. The errors of the earlier steps are added to them. */
  readonly errors?: readonly ErrorCode[];
  /** Create no span. With a span, Runlake's export of its own traces to itself would create further traces. */
  readonly untraced?: true;
  /** The operation stays available while the server drains, and the drain does not wait for it. */
  readonly whileDraining?: true;
  /** Allow requests from pages of any origin. Only for operations that need no key. */
  readonly openToPages?: true;
  /**
   * Handles WebSocket upgrades on the path, which must be the path of a GET operation. Params and access are checked
   * before the call. If the API has `customAccess`, this function must authorise each message on the socket itself.
   */
  socket?(socket: never, input: never): void;
  handler(input: never): Promise<unknown>;
}

/**
 * Either a permission with its tenant scope, or explicitly public. With the scope `workspace`, the operation applies to
 * the workspace in `X-Tenant-Id` or else to the workspace of the key.
 */
export type Access =
  | { readonly permission: Permission; readonly tenantScope: 'workspace' | 'organization' }
  | { readonly public: true; readonly tenantScope: 'none' };

export type ErrorStyle = 'detail' | 'error' | 'problem' | 'otlp' | 'json-rpc';

/** Describes a raw body in the API description. */
export interface RawBody {
  readonly contentTypes: readonly string[];
  readonly description: string;
}

export interface OperationSchema {
  readonly params?: TObject;
  /**
   * Schema of the query. Values are converted to the types of the schema; empty values are treated as absent; repeated
   * keys become a list. Names that no schema has are ignored, see `ignored-fields.ts`.
   */
  readonly query?: TObject;
  /** Schema of the parsed JSON body. Values are not converted. */
  readonly body?: TSchema;
  /** Responses by status. The lowest status below 300 is sent unless the handler returns an {@link RawResponse}. */
  readonly response: Readonly<Record<number, TSchema>>;
  /** Media type of the response if it is not JSON. */
  readonly produces?: string;
  /** Further media types of the response with their schemas, for the API description. */
  readonly alsoProduces?: Readonly<Record<string, TSchema>>;
}

/** A response whose status, headers or raw body the handler sets. Buffers and streams are sent unchanged. */
export class RawResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: unknown;

  constructor(options: {
    status?: number;
    headers?: Readonly<Record<string, string>>;
    body?: Buffer | Readable | object;
  }) {
    this.status = options.status ?? 200;
    this.headers = options.headers ?? {};
    this.body = options.body;
  }
}

type CallerOf<A extends Access> = A['tenantScope'] extends 'workspace'
  ? WorkspaceCaller
  : A['tenantScope'] extends 'organization'
    ? Caller
    : undefined;

type StaticOf<S, K extends string> = S extends { readonly [P in K]: infer T extends TSchema } ? Static<T> : undefined;

type ResponseOf<S extends OperationSchema> = {
  [K in keyof S['response']]: S['response'][K] extends TSchema ? Static<S['response'][K]> : never;
}[keyof S['response']];

/** Input of a handler, validated and typed by the operation's schema. `V` is the type of the API's services. */
export interface HandlerInput<A extends Access, S extends OperationSchema, V = Services> {
  readonly caller: CallerOf<A>;
  readonly params: StaticOf<S, 'params'>;
  readonly query: StaticOf<S, 'query'>;
  readonly body: StaticOf<S, 'body'>;
  readonly services: V;
  /**
   * Gives access to headers, the raw stream (`request.raw`), `request.signal`, the log (`request.log`) and the request
   * id.
   */
  readonly request: FastifyRequest;
}

/** An operation whose handler uses services of type `V`. */
export type OperationOf<A extends Access, S extends OperationSchema, V> = Omit<
  Operation,
  'handler' | 'socket' | 'access' | 'schema'
> & {
  readonly access: A;
  readonly schema: S;
  socket?(socket: never, input: HandlerInput<A, S, V>): void;
  handler(input: HandlerInput<A, S, V>): Promise<ResponseOf<S> | RawResponse>;
};

/**
 * Declares an operation of the main API. The types of the handler's input and result are derived from `access` and
 * `schema`.
 */
export function defineOperation<const A extends Access, const S extends OperationSchema>(
  operation: OperationOf<A, S, Services>,
): Operation {
  return operation;
}
