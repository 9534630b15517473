/**
 * Delivers webhooks that are due, by the clock of Postgres.
 *
 * Invariant: a webhook that was noted is sent until it is accepted, refused for good or given up, whatever dies meanwhile; it may be
 * sent more than once.
 *
 *   1. One statement takes those that are due the longest and that no other process has (SKIP LOCKED), counts the attempt, and
 *      moves the time at which they are due behind the time that sending takes.
 *   2. Each is sent.
 *   3. One that was accepted goes; one that failed is due again after a pause, or is given up. Only the attempt counted in step 1
 *      may say so.
 *
 * A crash after 1 leaves it to whoever looks after that time; what was given up goes a day later.
 */
import type { Database } from '../../../infra/postgres/database.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { type ReadClock, readDatabaseClock } from '../due-clock.ts';
import { type SendPorts, sendWebhook } from './send-webhook.ts';
import { signWebhook } from './sign-webhook.ts';
import type { WebhookRules } from './webhook-rules.ts';

export interface DeliveryPorts extends SendPorts {
  readonly database: Database;
  readonly deploymentId: string;
  readonly rules: WebhookRules;
  /** What signatures are made with. */
  readonly secret: string;
  readonly logger: Logger;
  /** Default: the clock of Postgres. */
  readonly now?: ReadClock;
}

export interface TakenWebhook {
  readonly run_id: string;
  readonly url: string;
  /** JSON. */
  readonly body: string;
  /** This one included. */
  readonly attempts: number;
  /** The time that is sent and signed. */
  readonly takenAtMs: number;
}

/** After each failed attempt; the last of ten is an hour after the first. */
const pausesSeconds = [5, 15, 45, 120, 240, 480, 720, 900, 1_080];
const mostAttempts = pausesSeconds.length + 1;
const keptForMs = 24 * 3_600_000;

const timestamp = (ms: number) => new Date(ms).toISOString();

/** Takes webhooks that are due, at most so many. */
export async function takeWebhooks(
  { database, deploymentId, now = readDatabaseClock, timeoutMs }: DeliveryPorts,
  count: number,
): Promise<readonly TakenWebhook[]> {
  const takenAtMs = await now(database);
  const taken = await database.query<Omit<TakenWebhook, 'takenAtMs'>>(
    `UPDATE agents.webhooks SET attempts = attempts + 1, due_at = $4
     WHERE deployment_id = $1 AND run_id IN (
       SELECT run_id FROM agents.webhooks WHERE deployment_id = $1 AND given_up_at IS NULL AND due_at <= $2
       ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED)
     RETURNING run_id, url, body::text, attempts`,
    [deploymentId, timestamp(takenAtMs), count, timestamp(takenAtMs + timeoutMs * 3)],
  );
  return taken.map((webhook) => ({ ...webhook, takenAtMs }));
}

/** Sends one that was taken, and notes what came of it. */
export async function deliverWebhook(ports: DeliveryPorts, taken: TakenWebhook): Promise<void> {
  const { database, deploymentId, logger, now = readDatabaseClock } = ports;
  const result = await attempt(ports, taken);
  const own = [deploymentId, taken.run_id, taken.attempts];
  const condition = 'deployment_id = $1 AND run_id = $2 AND attempts = $3';
  if (result.ok) {
    await database.execute(`DELETE FROM agents.webhooks WHERE ${condition}`, own);
    return;
  }
  const pauseSeconds = result.final ? undefined : pausesSeconds[taken.attempts - 1];
  const { run_id: runId, attempts } = taken;
  logger.warn({ runId, attempts, reason: result.reason, pauseSeconds }, 'a webhook was not delivered');
  const column = pauseSeconds === undefined ? 'given_up_at' : 'due_at';
  await database.execute(`UPDATE agents.webhooks SET ${column} = $4, last_error = $5 WHERE ${condition}`, [
    ...own,
    timestamp((await now(database)) + (pauseSeconds ?? 0) * 1_000),
    result.reason,
  ]);
}

async function attempt(ports: DeliveryPorts, { url, body, attempts, takenAtMs }: TakenWebhook) {
  const { rules, secret } = ports;
  // Processes died with it.
  if (attempts > mostAttempts) return { ok: false, final: true, reason: 'it was never answered' } as const;
  try {
    // They may have changed since.
    rules.check(url);
  } catch (error) {
    return { ok: false, final: true, reason: (error as Error).message } as const;
  }
  const sent = `${body.trimEnd().slice(0, -1)},"webhook_sent_at":${JSON.stringify(timestamp(takenAtMs))}}`;
  const headers = {
    ...rules.headers,
    'content-type': 'application/json',
    'x-runlake-signature': signWebhook(secret, sent, takenAtMs),
  };
  return sendWebhook(ports, url, headers, sent);
}

/** How long until the next one is due, in milliseconds; undefined where none is. */
export async function msToNextWebhook({
  database,
  deploymentId,
  now = readDatabaseClock,
}: DeliveryPorts): Promise<number | undefined> {
  const [row] = await database.query<{ due: string | null }>(
    'SELECT min(due_at) AS due FROM agents.webhooks WHERE deployment_id = $1 AND given_up_at IS NULL',
    [deploymentId],
  );
  return row?.due ? Math.max(0, Date.parse(row.due) - (await now(database))) : undefined;
}

/** Removes those that were given up a day ago. */
export async function forgetWebhooks({
  database,
  deploymentId,
  now = readDatabaseClock,
}: DeliveryPorts): Promise<void> {
  await database.execute('DELETE FROM agents.webhooks WHERE deployment_id = $1 AND given_up_at < $2', [
    deploymentId,
    timestamp((await now(database)) - keptForMs),
  ]);
}
