/**
 * Links that accept feedback without an API key; see `feedback-token.ts`. Each link has a row in the database, so that
 * links can be listed.
 */
import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { TokenSigner } from '../../infra/signing/token-signer.ts';
import { enforceLimit } from '../tenants/enforce-limit.ts';
import type { FeedbackConfig } from './feedback-config.ts';
import { createFeedbackToken } from './feedback-token.ts';
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
  readonly token: string;
  readonly key: string;
  readonly expiresAtSeconds: number;
}

interface LinkDeps {
  readonly database: Database;
  readonly feedbackSigner: TokenSigner;
  readonly sentConfigs: Pick<SentConfigs, 'keep'>;
}

interface LinkRow {
  readonly id: string;
  readonly user_id: string;
  readonly run_id: string;
  readonly feedback_key: string;
  readonly expires: number;
}

const columns = 'id, user_id, run_id, feedback_key, extract(epoch FROM expires_at)::float8 AS expires';

/**
 * Creates either all of the links or none. The run need not be stored yet.
 *
 * @throws CONFLICT if an id already exists; LIMIT_REACHED; errors of the database.
 */
export async function createLinks(
  { database, feedbackSigner, sentConfigs }: LinkDeps,
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
    const made = await tx.query<LinkRow>(
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
  return ids.map((id) => toLink(feedbackSigner, workspaceId, byId.get(id) as LinkRow));
}

/** Lists the unexpired links for feedback on a run, oldest first. */
export async function listLinks(
  { database, feedbackSigner }: Omit<LinkDeps, 'sentConfigs'>,
  workspaceId: string,
  runId: string,
  { limit, offset }: { readonly limit: number; readonly offset: number },
): Promise<FeedbackLink[]> {
  const rows = await database.query<LinkRow>(
    `SELECT ${columns} FROM feedback_tokens
     WHERE workspace_id = $1 AND run_id = $2 AND expires_at >= now() ORDER BY created_at, id LIMIT $3 OFFSET $4`,
    [workspaceId, runId, limit, offset],
  );
  return rows.map((row) => toLink(feedbackSigner, workspaceId, row));
}

function toLink(signer: TokenSigner, workspaceId: string, row: LinkRow): FeedbackLink {
  const { id, user_id: userId, run_id: runId, feedback_key: key, expires: expiresAtSeconds } = row;
  return {
    id,
    key,
    expiresAtSeconds,
    token: createFeedbackToken(signer, { workspaceId, userId, runId, key }, expiresAtSeconds),
  };
}
