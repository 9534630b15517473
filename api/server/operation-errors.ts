import type { ErrorCode } from '../../infra/errors/catalogue.ts';
import type { Operation } from './operation.ts';

/** Errors that can occur before the operation is known or while the request is still being received. */
export const errorsOfAnyRequest: readonly ErrorCode[] = [
  'BAD_REQUEST',
  'ROUTE_NOT_FOUND',
  'ROUTE_NOT_BUILT',
  'METHOD_NOT_ALLOWED',
  'URL_TOO_LONG',
  'HEADERS_TOO_LARGE',
  'REQUEST_TIMEOUT',
  'INTERNAL',
];

/** Errors of all operations that query ClickHouse, for the property `errors` of an operation. */
export const clickhouseErrors = [
  'CLICKHOUSE_UNAVAILABLE',
  'CLICKHOUSE_QUERY_FAILED',
  'ACCESS_DENIED_BY_STORE',
  'OVERLOADED',
] as const;

const databaseErrors = [
  'DATABASE_UNAVAILABLE',
  'DATABASE_QUERY_FAILED',
  'ACCESS_DENIED_BY_STORE',
  'TEXT_NOT_STORABLE',
] as const;
/** Errors of requests with a session cookie, which the main API accepts. */
const sessionErrors: readonly ErrorCode[] = ['SESSION_INVALID', 'CSRF_TOKEN_REQUIRED'];

const jsonErrors = ['INVALID_JSON', 'INVALID_UTF8', 'TOO_DEEP', 'TOO_MANY_PARTS', 'OVERLOADED'] as const;
const bodyErrors = ['BAD_REQUEST', 'BODY_TOO_LARGE', 'UNSUPPORTED_MEDIA_TYPE', 'UNSUPPORTED_ENCODING'] as const;

/**
 * Returns all errors that a request to `operation` of an API can result in: the errors of all steps that the request
 * passes, and the errors of the operation itself. The API tests fail if a response has a code that is not in this list.
 */
export function listErrors(
  operation: Operation,
  { acceptsSessions }: { readonly acceptsSessions?: true },
): readonly ErrorCode[] {
  const { method, access, schema, unsupported, rawBody, servesWhileDraining, errors = [] } = operation;
  const isPublic = 'public' in access;
  // Fastify parses a body even if the operation has no body.
  const parsesBody = method !== 'GET' && rawBody === undefined;
  const steps: readonly (readonly [passes: boolean, codes: readonly ErrorCode[]])[] = [
    [true, ['INTERNAL', 'URL_TOO_LONG', 'REQUEST_TIMEOUT']],
    [servesWhileDraining !== true, ['STARTING', 'DRAINING']],
    [!isPublic, ['API_KEY_MISSING', 'API_KEY_INVALID', 'FORBIDDEN', 'ORGANIZATION_FORBIDDEN', 'WORKSPACE_FORBIDDEN']],
    [
      !isPublic && acceptsSessions === true,
      sessionErrors.filter((code) => method !== 'GET' || code !== 'CSRF_TOKEN_REQUIRED'),
    ],
    [!isPublic, ['RATE_LIMITED']],
    [!isPublic, databaseErrors],
    [access.tenantScope === 'workspace', ['WORKSPACE_REQUIRED']],
    [unsupported !== undefined, ['PARAMETER_NOT_SUPPORTED']],
    [schema.params !== undefined || schema.query !== undefined, ['BAD_REQUEST', 'INVALID_REQUEST']],
    [schema.body !== undefined && rawBody === undefined, ['INVALID_REQUEST']],
    [parsesBody, [...bodyErrors, ...jsonErrors]],
    [rawBody !== undefined, [...bodyErrors, 'INVALID_COMPRESSION', 'BODY_TOO_SLOW', 'OVERLOADED']],
    [true, errors],
  ];
  return [...new Set(steps.flatMap(([passes, codes]) => (passes ? codes : [])))];
}
