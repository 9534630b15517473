/**
 * Links that accept feedback without an API key. Each link has a row in the database, so that links can be listed. The
 * token of a link is its id, because stock clients accept only a UUID. Links of agent server runs have no row; see
 * `feedback-token.ts`.
 */
import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { enforceLimit } from '../tenants/enforce-limit.ts';
import type { FeedbackConfig } from './feedback-config.ts';
import type { FeedbackGrant, OpenedFeedbackToken } from './feedback-token.ts';
import type { SentConfigs } from './sent-config.ts';

/** Maximum number of unexpired links in an organisation. */
const maxLinks = 1_000_000;
/** Maximum number of expired links of the workspace that each request deletes. */
const maxExpiredLinksPerRequest = 1_000;

export interface NewLink {
  readonly id?: string | undefined;
  readonly runId: string;
  readonly key: string;
  /** Expiry time in seconds since 1970. */
  readonly expiresAtSeconds: number;
  /** Config to store for the feedback key, unless the key already has a config. */
  readonly config?: FeedbackConfig | undefined;
}

export interface FeedbackLink {
  readonly id: string;
  readonly key: string;
  readonly expiresAtSeconds: number;
}

interface LinkDeps {
  readonly database: Database;
  readonly sentConfigs: Pick<SentConfigs, 'keep'>;
}

const columns = 'id, feedback_key AS key, extract(epoch FROM expires_at)::float8 AS "expiresAtSeconds"';

/**
 * Creates either all of the links or none. The run need not be stored yet.
 *
 * @throws CONFLICT if an id already exists; LIMIT_REACHED; errors of the database.
 */
export async function createLinks(
  { database, sentConfigs }: LinkDeps,
  { workspaceId, userId }: { readonly workspaceId: string; readonly userId: string },
  links: readonly NewLink[],
): Promise<FeedbackLink[]> {
  for (const { key, config } of links) if (config) await sentConfigs.keep(workspaceId, key, config);
  const ids = links.map(({ id }) => id ?? randomUUID());
  const rows = await database.transaction(async (tx) => {
    await tx.execute(
      `DELETE FROM feedback_tokens WHERE id IN (
         SELECT id FROM feedback_tokens WHERE workspace_id = $1 AND expires_at < now() LIMIT ${maxExpiredLinksPerRequest} FOR UPDATE SKIP LOCKED)`,
      [workspaceId],
    );
    const made = await tx.query<FeedbackLink>(
      `INSERT INTO feedback_tokens (id, workspace_id, user_id, run_id, feedback_key, expires_at)
       SELECT id, $1, $2, run_id, feedback_key, to_timestamp(expires)
       FROM unnest($3::uuid[], $4::uuid[], $5::text[], $6::float8[]) AS t (id, run_id, feedback_key, expires)
       ON CONFLICT DO NOTHING RETURNING ${columns}`,
      [
        workspaceId,
        userId,
        ids,
        links.map(({ runId }) => runId),
        links.map(({ key }) => key),
        links.map(({ expiresAtSeconds }) => expiresAtSeconds),
      ],
    );
    if (made.length < links.length) throw runlakeError('CONFLICT', { reason: 'A link with one of these ids exists.' });
    await enforceLimit(
      tx,
      { workspaceId },
      {
        max: maxLinks,
        countSql: `SELECT count(*) AS count FROM feedback_tokens JOIN workspaces ON workspaces.id = workspace_id
        WHERE organization_id = $1 AND expires_at >= now()`,
        what: 'feedback links in an organisation',
        hint: 'Wait until some of them expire',
      },
    );
    return made;
  });
  const byId = new Map(rows.map((row) => [row.id, row]));
  return ids.map((id) => byId.get(id) as FeedbackLink);
}

/** Lists the unexpired links for feedback on a run, oldest first. */
export async function listLinks(
  { database }: Pick<LinkDeps, 'database'>,
  workspaceId: string,
  runId: string,
  { limit, offset }: { readonly limit: number; readonly offset: number },
): Promise<FeedbackLink[]> {
  return database.query<FeedbackLink>(
    `SELECT ${columns} FROM feedback_tokens
     WHERE workspace_id = $1 AND run_id = $2 AND expires_at >= now() ORDER BY created_at, id LIMIT $3 OFFSET $4`,
    [workspaceId, runId, limit, offset],
  );
}

/** Finds what a link permits. The workspace is that of the link: its holder has no API key. */
export async function openLink({ database }: Pick<LinkDeps, 'database'>, id: string): Promise<OpenedFeedbackToken> {
  const [link] = await database.query<FeedbackGrant & { readonly isExpired: boolean }>(
    `SELECT workspace_id AS "workspaceId", user_id AS "userId", run_id AS "runId", feedback_key AS key,
       expires_at <= now() AS "isExpired"
     FROM feedback_tokens WHERE id = $1`,
    [id],
  );
  if (!link) return { kind: 'invalid' };
  const { isExpired, ...grant } = link;
  return isExpired ? { kind: 'expired' } : { kind: 'valid', grant };
}
