/**
 * Links that accept feedback without an API key. Each link has a row in the database, so that links can be listed. The
 * token of a link is its id, because stock clients accept only a UUID.
 */
import { createHmac, randomUUID } from 'node:crypto';
import { v4 as uuidv4, v5 as uuidv5 } from 'uuid';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { parseNullableJson } from '../../infra/json/json-value.ts';
import type { PageRequest } from '../../infra/postgres/list-page.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';
import { isUuid } from '../ingest/run-event/uuid.ts';
import { enforceLimit } from '../tenants/enforce-limit.ts';
import { type FeedbackConfig, requireConsistentConfig } from './feedback-config.ts';
import type { SentConfigs } from './sent-config.ts';

/** Maximum number of unexpired links in an organisation. */
const maxLinks = 1_000_000;
/**
 * SDKs repeat a request if they lose the response, and send a lifetime instead of an expiry time: the second request may
 * ask for a later time by this much, but not for an earlier one.
 */
const maxRepeatSeconds = 600;
/** Maximum number of expired links of the workspace that each insert deletes. */
const maxExpiredLinksPerInsert = 1_000;

/** The feedback entry that a link is for: one key on one run. */
interface LinkTarget {
  readonly workspaceId: string;
  /** User for whom the feedback is stored. */
  readonly userId: string;
  readonly runId: string;
  readonly key: string;
}

/** What a link permits: to submit the feedback entry that it is for. */
export interface FeedbackGrant extends LinkTarget {
  /** Config that the feedback must match; null if the creator of the link sent none. */
  readonly config: FeedbackConfig | null;
}

export interface NewLink {
  readonly id?: string | undefined;
  readonly runId: string;
  readonly key: string;
  /** Expiry time in seconds since 1970. */
  readonly expiresAtSeconds: number;
  /** Config that submitted feedback must match. It is also stored for the feedback key, unless the key has a config. */
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

type LinkOwner = Pick<LinkTarget, 'workspaceId' | 'userId'>;

const columns = 'id, feedback_key AS key, extract(epoch FROM expires_at)::float8 AS "expiresAtSeconds"';

/**
 * Creates either all of the links or none. The run need not be stored yet. A repeated request gets the links that exist.
 *
 * @throws BAD_REQUEST if a config contradicts itself; CONFLICT if an id already exists; LIMIT_REACHED; errors of the
 *   database.
 */
export async function createLinks(
  { database, sentConfigs }: LinkDeps,
  owner: LinkOwner,
  links: readonly NewLink[],
): Promise<FeedbackLink[]> {
  const { workspaceId } = owner;
  for (const { config } of links) if (config) requireConsistentConfig(config);
  for (const { key, config } of links) if (config) await sentConfigs.keep(workspaceId, key, config);
  const identified = links.map((link) => ({ ...link, id: link.id ?? randomUUID() }));
  const rows = await database.transaction(async (tx) => {
    const made = await insertLinks(tx, owner, identified);
    const repeated = made.length === 0 ? await findRepeatedLinks(tx, owner, identified) : [];
    if (repeated.length === links.length) return repeated;
    if (made.length < links.length) throw runlakeError('CONFLICT', { reason: 'A link with one of these ids exists.' });
    await enforceLimit(tx, 'organizationOfWorkspace', workspaceId, {
      max: maxLinks,
      countSql: `SELECT count(*) AS count FROM feedback_tokens JOIN workspaces ON workspaces.id = workspace_id
        WHERE organization_id = $1 AND expires_at >= now()`,
      what: 'feedback links in an organisation',
      hint: 'Wait until some of them expire',
    });
    return made;
  });
  const byId = new Map(rows.map((row) => [row.id, row]));
  return identified.map(({ id }) => byId.get(id) as FeedbackLink);
}

/**
 * Stores the links of an agent server run. They do not count for the limit of links, because the end of a run must not
 * fail. The links of a deleted workspace are not stored.
 *
 * @param secretKey Makes the ids unguessable. The same secret, run and key always yield the same id.
 * @returns the id of each key's link, in the order of `keys`.
 */
export async function keepRunLinks(
  { database, secretKey }: { readonly database: Database; readonly secretKey: string },
  { runId, ...owner }: Omit<LinkTarget, 'key'>,
  keys: readonly string[],
  expiresAtSeconds: number,
): Promise<string[]> {
  const links = keys.map((key) => ({
    id: deriveLinkId(secretKey, { ...owner, runId, key }),
    runId,
    key,
    expiresAtSeconds,
  }));
  await database.transaction((tx) => insertLinks(tx, owner, links));
  return links.map(({ id }) => id);
}

function deriveLinkId(secretKey: string, { workspaceId, runId, key }: Omit<LinkTarget, 'userId'>): string {
  const text = JSON.stringify(['feedback link', workspaceId, runId, key]);
  return uuidv4({ random: createHmac('sha256', secretKey).update(text).digest() });
}

type IdentifiedLink = FeedbackLink & Pick<NewLink, 'runId' | 'config'>;

const toLinkColumns = (links: readonly IdentifiedLink[]) => [
  links.map(({ id }) => id),
  links.map(({ runId }) => runId),
  links.map(({ key }) => key),
  links.map(({ expiresAtSeconds }) => expiresAtSeconds),
  links.map(({ config }) => (config === undefined ? null : JSON.stringify(config))),
];

/** Returns the links that exist with the given fields. */
function findRepeatedLinks(
  tx: Sql,
  { workspaceId, userId }: LinkOwner,
  links: readonly IdentifiedLink[],
): Promise<FeedbackLink[]> {
  return tx.query<FeedbackLink>(
    `SELECT ${columns} FROM feedback_tokens
     JOIN unnest($3::uuid[], $4::uuid[], $5::text[], $6::float8[], $7::text[])
       AS sent (id, run_id, feedback_key, expires, config) USING (id, run_id, feedback_key)
     WHERE workspace_id = $1 AND user_id = $2 AND feedback_config IS NOT DISTINCT FROM config
       AND expires - extract(epoch FROM expires_at)::float8 BETWEEN -0.001 AND ${maxRepeatSeconds}`,
    [workspaceId, userId, ...toLinkColumns(links)],
  );
}

/** Inserts links and returns those whose id did not exist. Also deletes expired links of the workspace. */
async function insertLinks(
  tx: Sql,
  { workspaceId, userId }: LinkOwner,
  links: readonly IdentifiedLink[],
): Promise<FeedbackLink[]> {
  await tx.execute(
    `DELETE FROM feedback_tokens WHERE id IN (
       SELECT id FROM feedback_tokens WHERE workspace_id = $1 AND expires_at < now() LIMIT ${maxExpiredLinksPerInsert} FOR UPDATE SKIP LOCKED)`,
    [workspaceId],
  );
  return tx.query<FeedbackLink>(
    `INSERT INTO feedback_tokens (id, workspace_id, user_id, run_id, feedback_key, expires_at, feedback_config)
     SELECT t.id, w.id, $2, run_id, feedback_key, to_timestamp(expires), config
     FROM unnest($3::uuid[], $4::uuid[], $5::text[], $6::float8[], $7::text[])
       AS t (id, run_id, feedback_key, expires, config)
     JOIN workspaces w ON w.id = $1 AND w.deleted_at IS NULL
     ON CONFLICT DO NOTHING RETURNING ${columns}`,
    [workspaceId, userId, ...toLinkColumns(links)],
  );
}

/** Lists the unexpired links for feedback on a run, oldest first. */
export async function listLinks(
  { database }: Pick<LinkDeps, 'database'>,
  workspaceId: string,
  runId: string,
  { limit, offset }: PageRequest,
): Promise<FeedbackLink[]> {
  return database.query<FeedbackLink>(
    `SELECT ${columns} FROM feedback_tokens
     WHERE workspace_id = $1 AND run_id = $2 AND expires_at >= now() ORDER BY created_at, id LIMIT $3 OFFSET $4`,
    [workspaceId, runId, limit, offset],
  );
}

/**
 * Returns what a link permits. The workspace is that of the link: its holder has no API key.
 *
 * @throws NOT_FOUND, also if the workspace is deleted; LINK_EXPIRED.
 */
export async function openLink({ database }: Pick<LinkDeps, 'database'>, token: string): Promise<FeedbackGrant> {
  const [link] = isUuid(token)
    ? await database.query<LinkTarget & { readonly config: string | null; readonly isExpired: boolean }>(
        `SELECT workspace_id AS "workspaceId", user_id AS "userId", run_id AS "runId", feedback_key AS key,
           feedback_config AS config, expires_at <= now() AS "isExpired"
         FROM feedback_tokens JOIN workspaces w ON w.id = workspace_id AND w.deleted_at IS NULL
         WHERE feedback_tokens.id = $1`,
        [token],
      )
    : [];
  if (link === undefined) throw runlakeError('NOT_FOUND', { what: 'Link' });
  const { isExpired, config, ...grant } = link;
  if (isExpired) throw runlakeError('LINK_EXPIRED');
  return { ...grant, config: parseNullableJson(config) };
}

/**
 * Derives the id of the feedback entry that a grant permits. The id is the same for every submission, so that each
 * submission replaces the previous one.
 */
export function deriveFeedbackId({ workspaceId, runId, key }: LinkTarget): string {
  // Pass the name as bytes, because the package throws for text with a lone surrogate.
  return uuidv5(Buffer.from(`${workspaceId}:${runId}:${key}`), grantNamespace);
}

const grantNamespace = 'c64b6a1e-6c0c-4f0d-9a0e-3f0c3c1b7a52';
