/**
 * Delivers webhooks that are due, by the clock of Postgres.
 *
 * Invariant: a recorded webhook is delivered at least once, unless it is refused for good or all attempts fail; no
 * crash loses it.
 *
 *   1. One statement claims the webhooks that have been due longest and that no other process has locked (SKIP LOCKED).
 *      It increments `attempts` and moves `due_at` beyond the time that sending can take.
 *   2. Send each webhook.
 *   3. Delete a delivered webhook. After a failure set the next due time, or give it up. Both change the row only if
 *      `attempts` still has the value of step 1, so a slow attempt cannot overwrite a later one.
 *
 * After a crash between 1 and 3, any process claims the webhook again when it is due. Rows that were given up are
 * deleted a day later.
 */
import type { Database } from '../../../infra/postgres/database.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { type ReadClock, readDatabaseClock } from '../due-clock.ts';
import { type SendDeps, sendWebhook } from './send-webhook.ts';
import { signWebhook } from './sign-webhook.ts';
import type { WebhookRules } from './webhook-rules.ts';

export interface DeliveryDeps extends SendDeps {
  readonly database: Database;
  readonly deploymentId: string;
  readonly rules: WebhookRules;
  /** Key of the signatures. */
  readonly secret: string;
  readonly logger: Logger;
  /** Default: the clock of Postgres. */
  readonly now?: ReadClock;
}

export interface ClaimedWebhook {
  readonly run_id: string;
  readonly url: string;
  /** JSON text. */
  readonly body: string;
  /** Number of attempts, including this one. */
  readonly attempts: number;
  /** The time of the claim, which the body and the signature contain. */
  readonly claimedAtMs: number;
}

/** Pauses after the failed attempts. The tenth and last attempt is an hour after the first. */
const pausesSeconds = [5, 15, 45, 120, 240, 480, 720, 900, 1_080];
const maxAttempts = pausesSeconds.length + 1;
const retentionMs = 24 * 3_600_000;

const timestamp = (ms: number) => new Date(ms).toISOString();

/** Claims at most `count` webhooks that are due. */
export async function claimWebhooks(
  { database, deploymentId, now = readDatabaseClock, timeoutMs }: DeliveryDeps,
  count: number,
): Promise<readonly ClaimedWebhook[]> {
  const claimedAtMs = await now(database);
  const claimed = await database.query<Omit<ClaimedWebhook, 'claimedAtMs'>>(
    `UPDATE agents.webhooks SET attempts = attempts + 1, due_at = $4
     WHERE deployment_id = $1 AND run_id IN (
       SELECT run_id FROM agents.webhooks WHERE deployment_id = $1 AND given_up_at IS NULL AND due_at <= $2
       ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED)
     RETURNING run_id, url, body::text, attempts`,
    [deploymentId, timestamp(claimedAtMs), count, timestamp(claimedAtMs + timeoutMs * 3)],
  );
  return claimed.map((webhook) => ({ ...webhook, claimedAtMs }));
}

/** Sends a claimed webhook and records the result. */
export async function deliverWebhook(deps: DeliveryDeps, claimed: ClaimedWebhook): Promise<void> {
  const { database, deploymentId, logger, now = readDatabaseClock } = deps;
  const result = await attempt(deps, claimed);
  const own = [deploymentId, claimed.run_id, claimed.attempts];
  const condition = 'deployment_id = $1 AND run_id = $2 AND attempts = $3';
  if (result.ok) {
    await database.execute(`DELETE FROM agents.webhooks WHERE ${condition}`, own);
    return;
  }
  const pauseSeconds = result.final ? undefined : pausesSeconds[claimed.attempts - 1];
  const { run_id: runId, attempts } = claimed;
  logger.warn({ runId, attempts, reason: result.reason, pauseSeconds }, 'webhook not delivered');
  const column = pauseSeconds === undefined ? 'given_up_at' : 'due_at';
  await database.execute(`UPDATE agents.webhooks SET ${column} = $4, last_error = $5 WHERE ${condition}`, [
    ...own,
    timestamp((await now(database)) + (pauseSeconds ?? 0) * 1_000),
    result.reason,
  ]);
}

async function attempt(deps: DeliveryDeps, { url, body, attempts, claimedAtMs }: ClaimedWebhook) {
  const { rules, secret } = deps;
  // The process crashed during the last attempt, which was counted but has no result.
  if (attempts > maxAttempts) return { ok: false, final: true, reason: 'the last attempt did not complete' } as const;
  try {
    // The rules may have changed since the run was created.
    rules.check(url);
  } catch (error) {
    return { ok: false, final: true, reason: (error as Error).message } as const;
  }
  const sent = `${body.trimEnd().slice(0, -1)},"webhook_sent_at":${JSON.stringify(timestamp(claimedAtMs))}}`;
  const headers = {
    ...rules.headers,
    'content-type': 'application/json',
    'x-runlake-signature': signWebhook(secret, sent, claimedAtMs),
  };
  return sendWebhook(deps, url, headers, sent);
}

/** Milliseconds until the next webhook is due, 0 if one is due now; undefined if there is none. */
export async function msToNextWebhook({
  database,
  deploymentId,
  now = readDatabaseClock,
}: DeliveryDeps): Promise<number | undefined> {
  const [row] = await database.query<{ due: string | null }>(
    'SELECT min(due_at) AS due FROM agents.webhooks WHERE deployment_id = $1 AND given_up_at IS NULL',
    [deploymentId],
  );
  return row?.due ? Math.max(0, Date.parse(row.due) - (await now(database))) : undefined;
}

/** Deletes webhooks that were given up more than a day ago. */
export async function deleteOldWebhooks({
  database,
  deploymentId,
  now = readDatabaseClock,
}: DeliveryDeps): Promise<void> {
  await database.execute('DELETE FROM agents.webhooks WHERE deployment_id = $1 AND given_up_at < $2', [
    deploymentId,
    timestamp((await now(database)) - retentionMs),
  ]);
}
