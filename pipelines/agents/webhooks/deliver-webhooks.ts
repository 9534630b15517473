/**
 * Delivers webhooks that are due according to the clock of Postgres.
 *
 * Invariant: a recorded webhook is delivered at least once, unless it is refused permanently, all attempts fail, or it is
 * still not delivered after {@link maxAgeMs}. A crash does not lose it.
 *
 *   1. One statement claims the webhooks that have been due longest and that no other process has locked (SKIP
 *      LOCKED). It increments `attempts` and sets `due_at` to a time after the longest possible attempt. It omits
 *      receivers that fail and have {@link maxPerFailingReceiver} deliveries in flight, so that webhooks to others do
 *      not wait for their timeouts.
 *   2. Each webhook is sent.
 *   3. The row of a delivered webhook is deleted. After a failure, the row gets its next due time or is marked as
 *      given up. Both statements change the row only if `attempts` still has the value of step 1, so a slow attempt
 *      cannot overwrite the result of a later attempt.
 *
 * After a crash between steps 1 and 3, any process claims the webhook again when it is due. Rows that are marked as
 * given up are deleted a day later.
 */
import { createHmac, hkdfSync } from 'node:crypto';
import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { LRUCache } from 'lru-cache';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { type GuardedAgents, openGuardedAgents } from '../../../infra/network/guarded-agents.ts';
import type { ReadClock } from '../../../infra/postgres/clock.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { type Repeater, startRepeating } from '../../../infra/timeouts/repeat.ts';
import type { WebhookRules } from './webhook-rules.ts';

interface SendDeps {
  /** HTTP agents for addresses that users choose. They refuse private addresses unless these are allowed. */
  readonly agents: GuardedAgents;
  /** URL of this server on the local machine, such as `http://127.0.0.1:2024`. */
  readonly ownUrl: string;
  readonly timeoutMs: number;
}

/** Result of one delivery attempt. If `isFinal` is true, a retry cannot succeed. */
type SendResult = { readonly ok: true } | { readonly ok: false; readonly isFinal: boolean; readonly reason: string };

/**
 * Sends a webhook once. Does not follow redirects, and reads only the status of the response. Never throws.
 *
 * @param webhook A URL that passed the rules, or a path of this server.
 */
async function sendWebhook(
  { agents, ownUrl, timeoutMs }: SendDeps,
  webhook: string,
  headers: Readonly<Record<string, string>>,
  body: string,
): Promise<SendResult> {
  const isServerPath = webhook.startsWith('/');
  try {
    const url = new URL(isServerPath ? new URL(ownUrl).origin + webhook : webhook);
    const isTls = url.protocol === 'https:';
    const agent = isServerPath ? undefined : isTls ? agents.https : agents.http;
    const status = await new Promise<number>((resolve, reject) => {
      const request = (isTls ? requestHttps : requestHttp)(url, {
        method: 'POST',
        headers: { ...headers, 'content-length': Buffer.byteLength(body) },
        signal: AbortSignal.timeout(timeoutMs),
        ...(agent && { agent }),
      });
      request.once('error', reject);
      request.once('response', (response) => {
        resolve(response.statusCode ?? 0);
        // The body is not needed. Destroying the response can cause an error on the request; ignore this error.
        request.on('error', () => undefined);
        response.destroy();
      });
      request.end(body);
    });
    if (status >= 200 && status < 300) return { ok: true };
    const isFinal = status < 500 && status !== 408 && status !== 425 && status !== 429;
    return { ok: false, isFinal, reason: `it answered ${status}` };
  } catch (raw) {
    // A request that is invalid or has a refused address would fail again on each retry.
    const isFinal = isRunlakeError(raw) || raw instanceof TypeError;
    return { ok: false, isFinal, reason: isRunlakeError(raw) ? raw.message : describeFailure(raw, timeoutMs) };
  }
}

function describeFailure(raw: unknown, timeoutMs: number): string {
  const { name, code } = raw as NodeJS.ErrnoException;
  return name === 'AbortError' || name === 'TimeoutError'
    ? `it did not answer within ${timeoutMs} ms`
    : `the connection failed (${code ?? name})`;
}

/**
 * Derives the default secret for signing the webhooks of a deployment, for operators who set none: 32 bytes of
 * HKDF-SHA256 (RFC 5869) of the secret key, without salt, with the info `runlake webhooks <deployment id> v1`, in hex.
 */
export function deriveWebhookSecret(secretKey: string, deploymentId: string): string {
  const info = `runlake webhooks ${deploymentId} v1`;
  return Buffer.from(hkdfSync('sha256', secretKey, '', info, 32)).toString('hex');
}

/**
 * Computes the header `X-Runlake-Signature`: `t=<Unix seconds>,v1=<hex>`. The hex value is the HMAC-SHA256 of the
 * seconds, a dot and the body as sent; the key is the secret in UTF-8. Receivers should compare signatures in constant
 * time and refuse those that are minutes old.
 */
export function signWebhook(secret: string, body: string, atMs: number): string {
  const seconds = Math.floor(atMs / 1_000);
  return `t=${seconds},v1=${createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex')}`;
}

export interface DeliveryDeps extends SendDeps {
  readonly database: Database;
  readonly deploymentId: string;
  readonly rules: WebhookRules;
  /** Secret key for the signatures. */
  readonly secret: string;
  readonly logger: Logger;
  readonly now: ReadClock;
}

interface ClaimedWebhook {
  readonly run_id: string;
  readonly url: string;
  /** Scheme and host of `url`; empty for this server. */
  readonly receiver: string;
  /** JSON text. */
  readonly body: string;
  /** Number of attempts, including this one. */
  readonly attempts: number;
  /** Time of the claim. The body and the signature contain it. */
  readonly claimedAtMs: number;
}

/**
 * Pauses between attempts after a failure. The tenth and last attempt takes place an hour after the first attempt, or
 * later if the webhook waits for others to the same receiver.
 */
const retryPausesSeconds = [5, 15, 45, 120, 240, 480, 720, 900, 1_080];
const maxAttempts = retryPausesSeconds.length + 1;
/** Webhooks to a receiver that does not answer can arrive faster than their attempts end. */
const maxAgeMs = 24 * 3_600_000;
const webhookRetentionMs = 24 * 3_600_000;

const toTimestamp = (ms: number) => new Date(ms).toISOString();

/**
 * Scheme and host of a normalised URL, without user name and password; empty for this server. A claim computes this for
 * all webhooks of the receivers that it omits; regular expressions would take three times as long.
 */
const receiverSql = `CASE WHEN url LIKE '/%' THEN ''
  ELSE split_part(url, '/', 1) || '//' || split_part(split_part(url, '/', 3), '@', -1) END`;

/** Claims at most `count` webhooks that are due, except those for `omittedReceivers`. */
export async function claimWebhooks(
  { database, deploymentId, now, timeoutMs }: DeliveryDeps,
  count: number,
  omittedReceivers: readonly string[] = [],
): Promise<readonly ClaimedWebhook[]> {
  const claimedAtMs = await now(database);
  const claimed = await database.query<Omit<ClaimedWebhook, 'claimedAtMs'>>(
    `UPDATE agents.webhooks SET attempts = attempts + 1, due_at = $4
     WHERE deployment_id = $1 AND run_id IN (
       SELECT run_id FROM agents.webhooks WHERE deployment_id = $1 AND given_up_at IS NULL AND due_at <= $2
         AND ${receiverSql} <> ALL ($5::text[])
       ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED)
     RETURNING run_id, url, ${receiverSql} AS receiver, body::text, attempts`,
    [deploymentId, toTimestamp(claimedAtMs), count, toTimestamp(claimedAtMs + timeoutMs * 3), omittedReceivers],
  );
  return claimed.map((webhook) => ({ ...webhook, claimedAtMs }));
}

/** Sends a claimed webhook and records the result. @returns whether the receiver failed in a way that may be temporary. */
export async function deliverWebhook(deps: DeliveryDeps, claimed: ClaimedWebhook): Promise<boolean> {
  const { database, deploymentId, logger, now } = deps;
  const result = await attemptDelivery(deps, claimed);
  const own = [deploymentId, claimed.run_id, claimed.attempts];
  const condition = 'deployment_id = $1 AND run_id = $2 AND attempts = $3';
  if (result.ok) {
    await database.execute(`DELETE FROM agents.webhooks WHERE ${condition}`, own);
    return false;
  }
  const pauseSeconds = result.isFinal ? undefined : retryPausesSeconds[claimed.attempts - 1];
  const { run_id: runId, attempts } = claimed;
  logger.warn({ runId, attempts, reason: result.reason, pauseSeconds }, 'webhook not delivered');
  const column = pauseSeconds === undefined ? 'given_up_at' : 'due_at';
  await database.execute(`UPDATE agents.webhooks SET ${column} = $4, last_error = $5 WHERE ${condition}`, [
    ...own,
    toTimestamp((await now(database)) + (pauseSeconds ?? 0) * 1_000),
    result.reason,
  ]);
  return !result.isFinal;
}

async function attemptDelivery(deps: DeliveryDeps, { url, body, attempts, claimedAtMs }: ClaimedWebhook) {
  const { rules, secret } = deps;
  // The process crashed during the last attempt, so that attempt is counted in `attempts` but has no result.
  if (attempts > maxAttempts) return { ok: false, isFinal: true, reason: 'the last attempt did not complete' } as const;
  try {
    // The rules may have changed since the run was created.
    rules.check(url);
  } catch (error) {
    return { ok: false, isFinal: true, reason: (error as Error).message } as const;
  }
  const sent = `${body.trimEnd().slice(0, -1)},"webhook_sent_at":${JSON.stringify(toTimestamp(claimedAtMs))}}`;
  const headers = {
    ...rules.headers,
    'content-type': 'application/json',
    'x-runlake-signature': signWebhook(secret, sent, claimedAtMs),
  };
  return sendWebhook(deps, url, headers, sent);
}

/**
 * Returns the time until the next webhook is due, in milliseconds: 0 if a webhook is due now, undefined if there is no
 * webhook to deliver. Ignores those for `omittedReceivers`.
 */
export async function getMsToNextWebhook(
  { database, deploymentId, now }: DeliveryDeps,
  omittedReceivers: readonly string[] = [],
): Promise<number | undefined> {
  const [row] = await database.query<{ due: string | null }>(
    `SELECT min(due_at) AS due FROM agents.webhooks
     WHERE deployment_id = $1 AND given_up_at IS NULL AND ${receiverSql} <> ALL ($2::text[])`,
    [deploymentId, omittedReceivers],
  );
  return row?.due ? Math.max(0, Date.parse(row.due) - (await now(database))) : undefined;
}

/** Gives up webhooks that are older than {@link maxAgeMs}, and deletes those that were given up more than a day ago. */
export async function deleteOldWebhooks({ database, deploymentId, logger, now }: DeliveryDeps): Promise<void> {
  const nowMs = await now(database);
  const count = await database.execute(
    `UPDATE agents.webhooks SET given_up_at = $2, last_error = 'it was not delivered within a day'
     WHERE deployment_id = $1 AND given_up_at IS NULL AND created_at < $3`,
    [deploymentId, toTimestamp(nowMs), toTimestamp(nowMs - maxAgeMs)],
  );
  if (count > 0) logger.warn({ count }, 'webhooks given up that were not delivered within a day');
  await database.execute('DELETE FROM agents.webhooks WHERE deployment_id = $1 AND given_up_at < $2', [
    deploymentId,
    toTimestamp(nowMs - webhookRetentionMs),
  ]);
}

interface WebhookOptions extends Omit<DeliveryDeps, 'agents' | 'timeoutMs'> {
  /** Value of the setting RUNLAKE_ALLOW_PRIVATE_ENDPOINTS. */
  readonly allowPrivate: boolean;
  /** CA certificates in PEM that are trusted in addition to those of Node. */
  readonly authorities?: readonly string[] | undefined;
}

const maxConcurrentDeliveries = 16;
/** Maximum number of concurrent deliveries to a receiver that failed at its last delivery. */
const maxPerFailingReceiver = 2;
const maxKnownFailures = 1_000;
const timeoutMs = 10_000;

/**
 * Starts to deliver webhooks when they are due. The caller must call `wake` on NOTIFY agent_webhooks.
 * Several processes can deliver webhooks at the same time. After a call to `stop`, no more webhooks are claimed; the
 * call resolves when the deliveries in flight have finished.
 */
export function startWebhooks({ allowPrivate, authorities, ...options }: WebhookOptions): Repeater {
  const agents = openGuardedAgents({
    allowPrivate,
    refuse: (host, { about }) => runlakeError('WEBHOOK_INVALID', { url: host, reason: `it resolves to ${about}` }),
    maxConnections: maxConcurrentDeliveries,
    authorities,
  });
  const deps: DeliveryDeps = { ...options, agents, timeoutMs };
  const { logger } = options;
  /** Receivers by delivery. */
  const inFlight = new Map<Promise<void>, string>();
  const failing = new LRUCache<string, true>({ max: maxKnownFailures });
  /** Whether more webhooks may be due than the last claim returned. */
  let hasMore = false;
  const claims = startRepeating(
    async (signal) => {
      await claimAndSend(signal);
      await deleteOldWebhooks(deps);
      // If webhooks are already due, all slots are in use, and the end of the next delivery calls `wake`.
      return (await getMsToNextWebhook(deps, listOmittedReceivers())) || undefined;
    },
    {
      maxPauseMs: 10_000,
      onFailure: (err) => logger.warn({ err }, 'due webhooks could not be read: retrying'),
    },
  );

  function listOmittedReceivers(): string[] {
    const used = [...inFlight.values()];
    return [...new Set(used)].filter(
      (receiver) => failing.has(receiver) && used.filter((each) => each === receiver).length >= maxPerFailingReceiver,
    );
  }

  async function claimAndSend(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      hasMore = true;
      const freeSlots = maxConcurrentDeliveries - inFlight.size;
      if (freeSlots === 0) return;
      const omittedReceivers = listOmittedReceivers();
      // One by one while a receiver fails, because all that are due may be for it.
      const count = failing.size === 0 ? freeSlots : 1;
      const webhooks = await claimWebhooks(deps, count, omittedReceivers);
      for (const claimed of webhooks) startDelivery(claimed);
      hasMore = omittedReceivers.length > 0;
      if (webhooks.length < count) return;
    }
  }

  function startDelivery(claimed: ClaimedWebhook): void {
    const { run_id: runId, receiver } = claimed;
    const delivery = deliverWebhook(deps, claimed)
      .then(
        (hasFailed) => void (hasFailed ? failing.set(receiver, true) : failing.delete(receiver)),
        (err) => logger.warn({ err, runId }, 'result of a webhook could not be recorded'),
      )
      .finally(() => {
        inFlight.delete(delivery);
        if (hasMore) claims.wake();
      });
    inFlight.set(delivery, receiver);
  }

  return {
    wake: claims.wake,
    async stop() {
      await claims.stop();
      await Promise.all(inFlight.keys());
      agents.close();
    },
  };
}
