import { v5 as uuidv5 } from 'uuid';
import type { Sql } from '../../../infra/postgres/database.ts';

/**
 * The user that the project's `authenticate` handler returned. The project may add fields. Source:
 * `@langchain/langgraph-sdk/auth`.
 */
export interface AgentUser {
  readonly identity: string;
  readonly display_name: string;
  readonly is_authenticated: boolean;
  readonly permissions: readonly string[];
  readonly [field: string]: unknown;
}

/**
 * Returns the user without the fields that the project added. These are for its graphs and handlers, and may be tokens:
 * neither records that clients read nor webhooks contain them.
 */
export function removeAddedFields({ identity, display_name, is_authenticated, permissions }: AgentUser): AgentUser {
  return { identity, display_name, is_authenticated, permissions };
}

/** A request as the `authenticate` handler receives it, without a body. */
export interface AuthRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
}

/**
 * An authorisation request to an auth handler: an event such as `threads:read`, and a value that the handler may
 * change.
 */
export interface AuthorizationRequest {
  readonly event: `${'threads' | 'assistants' | 'crons' | 'store'}:${string}`;
  readonly value: Readonly<Record<string, unknown>>;
  readonly user: AgentUser;
}

/** HTTP status and text of a rejection, chosen by the project's code. */
export interface AuthRejection {
  readonly status: number;
  readonly message: string;
}

/**
 * The decision of an auth handler. `filter` is the handler's result if it was not a boolean, otherwise null.
 * `access-filter.ts` validates it.
 */
export type AuthVerdict =
  | { readonly allowed: true; readonly filter: unknown; readonly value: Readonly<Record<string, unknown>> }
  | { readonly allowed: false; readonly rejection: AuthRejection };

export type AuthIdentity =
  | { readonly user: AgentUser }
  | { readonly rejection: AuthRejection; readonly reason?: string };

/**
 * Returns the stable id under which the usage of a user of custom authentication is counted, and stores the user's
 * identity for usage reports. Identities that differ only in NUL characters or lone surrogates get the same id, because
 * Postgres cannot store these characters.
 */
export async function registerEndUser(sql: Sql, organizationId: string, identity: string): Promise<string> {
  const name = identity.replace(/[\0\p{Surrogate}]/gu, '\u{fffd}');
  // Pass bytes, because the package rejects the text of a namespace that has no RFC 9562 version.
  const namespace = Buffer.from(organizationId.replaceAll('-', ''), 'hex');
  const id = uuidv5(name, namespace);
  await sql.execute(
    'INSERT INTO end_users (organization_id, id, identity) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING',
    [organizationId, id, name],
    { name: 'agents_note_end_user' },
  );
  return id;
}
