import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyRequest } from 'fastify';
import { fault } from '../../infra/errors/runlake-error.ts';
import type { Authenticator } from '../../pipelines/tenants/authenticate.ts';
import { type Caller, requirePermission } from '../../pipelines/tenants/caller.ts';
import type { Access } from './operation.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Who asks; undefined on public operations. */
    caller: Caller | undefined;
  }
}

/**
 * Finds out who sends `request` and whether that key may use an operation with `access`.
 *
 * @throws API_KEY_MISSING, API_KEY_INVALID, WORKSPACE_REQUIRED, WORKSPACE_FORBIDDEN,
 * ORGANIZATION_FORBIDDEN, FORBIDDEN.
 */
export async function identifyCaller(
  request: FastifyRequest,
  access: Access,
  authenticator: Authenticator,
): Promise<Caller | undefined> {
  if ('public' in access) return undefined;
  const { headers } = request;
  const key = keyOf(headers);
  if (key === undefined) throw fault('API_KEY_MISSING');
  const caller = await authenticator.authenticate({
    key,
    workspace: textOf(headers['x-tenant-id']),
    organization: textOf(headers['x-organization-id']),
  });
  if (access.tenantScope === 'workspace' && caller.workspaceId === undefined) throw fault('WORKSPACE_REQUIRED');
  requirePermission(caller, access.permission);
  return caller;
}

/** `x-api-key`, or else `Authorization: Bearer`. */
function keyOf(headers: IncomingHttpHeaders): string | undefined {
  return textOf(headers['x-api-key']) ?? /^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1];
}

/** Clients send empty headers where nothing is configured: that is no value. */
function textOf(header: string | string[] | undefined): string | undefined {
  const text = (Array.isArray(header) ? header.join(',') : header)?.trim();
  return text === '' ? undefined : text;
}
