import type { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import type { Static, TObject, TSchema } from 'typebox';
import type { ErrorCode } from '../../infra/errors/catalogue.ts';
import type { Caller, WorkspaceCaller } from '../../pipelines/tenants/caller.ts';
import type { Permission } from '../../pipelines/tenants/permissions.ts';
import type { Services } from './services.ts';

/**
 * An operation of an HTTP API, as data. One file declares one operation with {@link defineOperation}; the list of its area
 * names it (`api/main/operations.ts`, `api/agent-server/operations.ts`); `registerOperation` turns it into a route.
 *
 * A request passes these steps, each of which may answer with an error of the catalogue: draining → API key → workspace →
 * permission → body → schema → handler → response schema.
 */
export interface Operation {
  /** Unique, camelCase; names the operation in the API description, in metrics and in the table of the tenancy test. */
  readonly operationId: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /**
   * The canonical path without its prefix, such as `/sessions/:session_id`. It answers under `/api/v1`, `/api` and `/`, with or
   * without a slash at the end. With `mount: 'root'` it answers only as it stands.
   */
  readonly path: string;
  /** Other paths of the same operation; they are left out of the API description. */
  readonly aliases?: readonly string[];
  readonly mount?: 'root';
  readonly summary: string;
  readonly description?: string;
  readonly tag: string;
  readonly access: Access;
  /** `detail` (default): `{"detail": …}`; `error`: `{"error": …}`, for ingest operations; `otlp`: google.rpc.Status, encoded as the request; `json-rpc`: `detail`, but a body that is no JSON is error -32700 of JSON-RPC, with status 200. */
  readonly errorStyle?: ErrorStyle;
  readonly schema: OperationSchema;
  /**
   * Parameters that clients of this API know and this server does not have yet. A request that uses one gets 400
   * PARAMETER_NOT_SUPPORTED. `null`, empty text and empty lists ask for nothing and pass. Of those that are also named in
   * `flags`, so does a no: `false`, also as a word. For any other, such a word is a value like all.
   */
  readonly unsupported?: {
    readonly query?: readonly string[];
    readonly body?: readonly string[];
    readonly flags?: readonly string[];
  };
  /**
   * Parameters of the query that the schema does not name are refused, as they would have no effect. Not where an API has access of its
   * own: that reads the whole URL.
   */
  readonly closedQuery?: true;
  /** Body fields that the schema does not name are taken out and named in `X-Ignored-Fields`, see `ignored-fields.ts`. */
  readonly ignoresUnknownFields?: true;
  /** The handler reads `request.raw` itself: no parser, no limit and no schema touches the body. */
  readonly rawBody?: RawBody;
  /** Errors that its own function throws, for the API description; those of the steps before it are added. */
  readonly errors?: readonly ErrorCode[];
  /** Makes no span, so that an exporter of Runlake's own traces that sends them to Runlake itself makes no further ones. */
  readonly untraced?: true;
  /** Answers also while the server drains, and does not hold the drain up. */
  readonly whileDraining?: true;
  /** Pages of every origin may call it. For what needs no key. */
  readonly openToPages?: true;
  /**
   * Serves those who ask for a WebSocket on the path, which is that of a GET; params and access are checked before. Where an API has
   * access of its own, what comes on the socket is the operation's to ask about.
   */
  socket?(socket: never, input: never): void;
  handler(input: never): Promise<unknown>;
}

/**
 * Either a permission and whose data the operation touches, or explicitly open to everybody.
 * `workspace`: one workspace, which the key or `X-Tenant-Id` names.
 */
export type Access =
  | { readonly permission: Permission; readonly tenantScope: 'workspace' | 'organization' }
  | { readonly public: true; readonly tenantScope: 'none' };

export type ErrorStyle = 'detail' | 'error' | 'otlp' | 'json-rpc';

/** The body of an operation that reads it itself, for the API description. */
export interface RawBody {
  readonly contentTypes: readonly string[];
  readonly description: string;
}

export interface OperationSchema {
  readonly params?: TObject;
  /** Text is converted to what the schema says; empty values count as absent; repeated keys make a list. */
  readonly query?: TObject;
  /** JSON as it came: nothing is converted, keys that the schema does not name stay. */
  readonly body?: TSchema;
  /** By status. The lowest one below 300 is answered unless the handler returns an {@link Answer}. */
  readonly response: Readonly<Record<number, TSchema>>;
  /** Media type of the response where it is not JSON. */
  readonly produces?: string;
  /** Further media types of the response, each with its schema, for the API description. */
  readonly alsoProduces?: Readonly<Record<string, TSchema>>;
}

/** An answer whose status, headers or raw body the handler chooses. Buffers and streams go out as they are. */
export class Answer {
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

/** What a handler gets: checked and typed by the operation's schema. `V`: what it calls, which each API has of its own. */
export interface HandlerInput<A extends Access, S extends OperationSchema, V = Services> {
  readonly caller: CallerOf<A>;
  readonly params: StaticOf<S, 'params'>;
  readonly query: StaticOf<S, 'query'>;
  readonly body: StaticOf<S, 'body'>;
  readonly services: V;
  /** For headers, the raw stream (`request.raw`), `request.signal`, the log (`request.log`) and the request's id. */
  readonly request: FastifyRequest;
}

/** An operation whose handler calls `V`. */
export type OperationOf<A extends Access, S extends OperationSchema, V> = Omit<
  Operation,
  'handler' | 'socket' | 'access' | 'schema'
> & {
  readonly access: A;
  readonly schema: S;
  socket?(socket: never, input: HandlerInput<A, S, V>): void;
  handler(input: HandlerInput<A, S, V>): Promise<ResponseOf<S> | Answer>;
};

/** Declares an operation of the main API; the types of the handler's input and result follow from `access` and `schema`. */
export function defineOperation<const A extends Access, const S extends OperationSchema>(
  operation: OperationOf<A, S, Services>,
): Operation {
  return operation;
}
