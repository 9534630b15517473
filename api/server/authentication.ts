import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyRequest } from 'fastify';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Authenticator } from '../../pipelines/tenants/authenticate.ts';
import { type Caller, requirePermission } from '../../pipelines/tenants/caller.ts';
import type { Access } from './operation.ts';
import { readSessionCookie, requireCsrfToken } from './session-cookie.ts';
import { findTicketSession } from './session-ticket.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The authenticated caller. Undefined for public operations. */
    caller: Caller | undefined;
  }
}

/**
 * Authenticates the sender of `request` and authorises the sender for an operation with `access`.
 *
 * @param api `workspaceId` is the workspace that the API serves, if it serves only one.
 * @throws API_KEY_MISSING, API_KEY_INVALID, SESSION_INVALID, CSRF_TOKEN_REQUIRED, WORKSPACE_REQUIRED,
 *   WORKSPACE_FORBIDDEN, ORGANIZATION_FORBIDDEN, FORBIDDEN; DEPLOYMENT_FORBIDDEN if the key has no access to that
 *   workspace or X-Tenant-Id names another workspace.
 */
export async function identifyCaller(
  request: FastifyRequest,
  access: Access,
  authenticator: Authenticator,
  api: { readonly workspaceId?: string; readonly acceptsSessions?: true } = {},
): Promise<Caller | undefined> {
  if ('public' in access) return undefined;
  const { headers } = request;
  const servedWorkspace = api.workspaceId;
  const key = readApiKey(headers);
  const session = api.acceptsSessions && key === undefined ? readSessionCookie(headers) : undefined;
  const sessionId = key === undefined ? findTicketSession(request.raw) : undefined;
  if (key === undefined && session === undefined && sessionId === undefined) throw runlakeError('API_KEY_MISSING');
  const named = readHeader(headers['x-tenant-id']);
  const caller = await authenticator
    .authenticate({
      ...{ key, session, sessionId },
      workspace: named ?? servedWorkspace,
      organization: readHeader(headers['x-organization-id']),
    })
    .catch((error: unknown) => {
      const isUnreachable = named === undefined && isRunlakeError(error) && error.code === 'WORKSPACE_FORBIDDEN';
      throw servedWorkspace !== undefined && isUnreachable ? runlakeError('DEPLOYMENT_FORBIDDEN') : error;
    });
  // The proxy has verified the token of a session that sent a ticket.
  if (caller.session && session !== undefined) requireCsrfToken(request, caller.session);
  if (servedWorkspace !== undefined && caller.workspaceId !== servedWorkspace)
    throw runlakeError('DEPLOYMENT_FORBIDDEN');
  if (access.tenantScope === 'workspace' && caller.workspaceId === undefined) throw runlakeError('WORKSPACE_REQUIRED');
  if ('permission' in access) requirePermission(caller, access.permission);
  return caller;
}

/** Returns the key in `x-api-key`, otherwise the key in `Authorization: Bearer`. */
export function readApiKey(headers: IncomingHttpHeaders): string | undefined {
  return readHeader(headers['x-api-key']) ?? readBearer(headers);
}

/** Returns the key in `Authorization: Bearer`. */
export function readBearer({ authorization }: IncomingHttpHeaders): string | undefined {
  return /^Bearer +(\S+)$/i.exec(authorization ?? '')?.[1];
}

/**
 * Reads a header. Treats an empty header as absent, because clients send empty headers for values that are not
 * configured.
 */
export function readHeader(header: string | string[] | undefined): string | undefined {
  const text = (Array.isArray(header) ? header.join(',') : header)?.trim();
  return text === '' ? undefined : text;
}
