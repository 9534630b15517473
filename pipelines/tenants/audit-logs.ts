/** The audit log of an organisation. Entries are never changed or deleted; a trigger refuses both. */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { getActor } from '../../infra/postgres/actor.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';
import type { Caller } from './caller.ts';

export interface AuditLogRecord {
  readonly id: string;
  readonly at: string;
  readonly actor: { readonly kind: string; readonly id: string | null; readonly name: string | null };
  /** Kind of the target and what was done, such as `api_key.revoke`. */
  readonly action: string;
  readonly target: { readonly kind: string; readonly id: string | null; readonly name: string | null } | null;
  /** Null if the change concerns the organisation. */
  readonly workspace_id: string | null;
  readonly ip: string | null;
  readonly details: Readonly<Record<string, unknown>>;
}

export interface AuditLogFilter {
  /** ISO 8601. */
  readonly since?: string | undefined;
  /** Exclusive. */
  readonly until?: string | undefined;
  /** Kind, id or name of the actor. */
  readonly actor?: string | undefined;
  /** An action, or the kind of the target, which means all its actions. */
  readonly action?: string | undefined;
}

/** Maximum size of the details of a page of several entries. An entry of a deletion has all that its request named. */
const maxDetailsBytes = 1024 * 1024;

export interface AuditLogPage {
  readonly items: readonly AuditLogRecord[];
  /** Names the next page. Null on the last one. */
  readonly cursor: string | null;
}

/**
 * Lists entries, newest first: those of the caller's organisation or, if the caller's key has access only to some
 * workspaces, those of these workspaces. A page with large details ends before `limit`.
 *
 * @throws BAD_REQUEST if the cursor is not one of this list.
 */
export async function listAuditLogs(
  database: Database,
  caller: Pick<Caller, 'organizationId' | 'organizationWide' | 'readableWorkspaceIds'>,
  { since, until, actor, action }: AuditLogFilter,
  { limit, cursor }: { readonly limit: number; readonly cursor?: string | undefined },
): Promise<AuditLogPage> {
  if (cursor !== undefined && !/^[1-9]\d{0,17}$/.test(cursor))
    throw runlakeError('BAD_REQUEST', { reason: 'The cursor is not one that this list returned.' });
  const rows = await database.query<AuditLogRecord & { readonly found: number }>(
    `SELECT id::text, at, json_build_object('kind', actor_kind, 'id', actor_id, 'name', actor_name) AS actor, action,
       CASE WHEN target_kind IS NOT NULL
         THEN json_build_object('kind', target_kind, 'id', target_id, 'name', target_name) END AS target,
       workspace_id, ip, details, found
     FROM (
       SELECT *, count(*) OVER () AS found, row_number() OVER newest AS position,
         sum(octet_length(details::text)) OVER newest AS bytes
       FROM (
         SELECT * FROM audit_logs
         WHERE organization_id = $1 AND ($2 OR workspace_id = ANY ($3::uuid[]))
           AND ($4::timestamptz IS NULL OR at >= $4) AND ($5::timestamptz IS NULL OR at < $5)
           AND ($6::text IS NULL OR $6 IN (actor_kind, actor_id, actor_name))
           AND ($7::text IS NULL OR action = $7 OR starts_with(action, $7 || '.'))
           AND ($8::bigint IS NULL OR id < $8)
         ORDER BY id DESC LIMIT $9
       ) AS matching WINDOW newest AS (ORDER BY id DESC ROWS UNBOUNDED PRECEDING)
     ) AS page
     WHERE position = 1 OR bytes <= $10
     ORDER BY page.id DESC`,
    [
      ...[caller.organizationId, caller.organizationWide, [...caller.readableWorkspaceIds]],
      ...[since ?? null, until ?? null, actor ?? null, action ?? null, cursor ?? null, limit + 1],
      maxDetailsBytes,
    ],
  );
  const items = rows.slice(0, limit).map(({ found: _found, ...entry }) => entry);
  return { items, cursor: (rows[0]?.found ?? 0) > items.length ? (items.at(-1)?.id ?? null) : null };
}

type NewAuditLog = ({ readonly workspaceId: string } | { readonly organizationId: string }) & {
  readonly action: string;
  readonly target: { readonly kind: string; readonly id: string; readonly name?: string };
  readonly details?: object;
};

/**
 * Adds an entry for a change that is not made in a table of Postgres with a trigger. Call this function before the
 * change, so that no change is without an entry.
 */
export async function recordAuditLog(sql: Sql, entry: NewAuditLog): Promise<void> {
  const { action, target, details = {} } = entry;
  const [workspaceId, organizationId] =
    'workspaceId' in entry ? [entry.workspaceId, null] : [null, entry.organizationId];
  const { kind, id, name, ip } = getActor() ?? { kind: 'system', id: null, name: null, ip: null };
  await sql.execute(
    `INSERT INTO audit_logs (organization_id, workspace_id, actor_kind, actor_id, actor_name, ip, action, target_kind,
       target_id, target_name, details)
     VALUES (coalesce($10::uuid, (SELECT organization_id FROM workspaces WHERE id = $1)), $1::uuid, $2, $3, $4, $5, $6, $7, $8, $11,
       $9)`,
    [
      ...[workspaceId, kind, id, name, ip, action, target.kind, target.id, details, organizationId],
      target.name ?? null,
    ],
  );
}
