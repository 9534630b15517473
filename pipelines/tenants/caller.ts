import { fault } from '../../infra/errors/runlake-error.ts';
import type { Permission } from './permissions.ts';

/** Who asks: what an API key, together with the headers beside it, stands for. */
export interface Caller {
  readonly organizationId: string;
  /** The workspace that the request is about; undefined where the key does not say and no header names one. */
  readonly workspaceId: string | undefined;
  readonly keyId: string;
  readonly userId: string;
  readonly userEmail: string;
  readonly permissions: ReadonlySet<Permission>;
  /** Whether the key reaches every workspace of the organisation, also those made later. */
  readonly organizationWide: boolean;
  /** Every workspace that the key reaches, deleted ones included: their usage stays readable. */
  readonly readableWorkspaceIds: ReadonlySet<string>;
  /** Made from a key that only reads, or that was narrowed to some permissions. */
  readonly readOnly: boolean;
  readonly storedPermissions: readonly string[];
  readonly expiresAt: Date | undefined;
}

/** A caller whose workspace is known. */
export type WorkspaceCaller = Caller & { readonly workspaceId: string };

/** @throws FORBIDDEN that names the permission where the caller lacks it. */
export function requirePermission(caller: Caller, permission: Permission): void {
  if (!caller.permissions.has(permission)) throw fault('FORBIDDEN', { permission });
}
