import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Actor } from '../../infra/postgres/actor.ts';
import type { Permission } from './permissions.ts';

/** A session that a request uses. */
export interface SignInSession {
  readonly id: string;
  /** Value of the header `X-CSRF-Token` of requests that change something. */
  readonly csrfToken: string;
  readonly keyId: string;
  /** Hash of the API key, under which the authenticator caches the key. */
  readonly keyHash: Buffer;
  /** Age of the value of the cookie, in seconds. */
  readonly tokenAgeSeconds: number;
  /** Latest end of the session, however it is used. */
  readonly expiresAt: Date;
}

/** The authenticated caller of a request: its API key, combined with the request headers. */
export interface Caller {
  readonly organizationId: string;
  /** The workspace of the request; undefined if neither the key nor a header determines it. */
  readonly workspaceId: string | undefined;
  readonly keyId: string;
  readonly userId: string;
  readonly userEmail: string;
  readonly permissions: ReadonlySet<Permission>;
  /** Whether the key has access to every workspace of the organisation, including later ones. */
  readonly organizationWide: boolean;
  /** Every workspace that the key has access to, including deleted ones, whose usage stays readable. */
  readonly readableWorkspaceIds: ReadonlySet<string>;
  /** Whether the key is read-only. Keys created with a read-only key are read-only too. */
  readonly readOnly: boolean;
  readonly storedPermissions: readonly string[];
  readonly expiresAt: Date | undefined;
  /** The session of the web application, if the request has no key. */
  readonly session?: SignInSession | undefined;
}

/** Returns the caller as the audit log names it. `ip` is the address that the request came from. */
export function toActor(
  {
    session,
    keyId,
    userEmail,
    organizationId,
  }: Pick<Caller, 'keyId' | 'userEmail' | 'organizationId'> & { readonly session?: unknown },
  ip: string,
): Actor {
  const kind = session === undefined ? 'api_key' : 'session';
  return { kind, id: keyId, name: userEmail, organization_id: organizationId, ip };
}

/** A caller whose workspace is determined. */
export type WorkspaceCaller = Caller & { readonly workspaceId: string };

/**
 * Checks that the caller has a permission.
 *
 * @throws FORBIDDEN with the name of the permission if the caller lacks it.
 */
export function requirePermission(caller: Caller, permission: Permission): void {
  if (!caller.permissions.has(permission)) throw runlakeError('FORBIDDEN', { permission });
}
