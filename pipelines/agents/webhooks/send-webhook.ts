import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { GuardedAgents } from '../../../infra/network/guarded-agents.ts';

export interface SendDeps {
  /** Agents for addresses that users choose; they refuse private addresses unless these are allowed. */
  readonly agents: GuardedAgents;
  /** URL of this server on the local machine, such as `http://127.0.0.1:2024`. */
  readonly ownUrl: string;
  readonly timeoutMs: number;
}

/** Result of one attempt. `final`: a retry cannot succeed. */
export type SendResult =
  | { readonly ok: true }
  | { readonly ok: false; readonly final: boolean; readonly reason: string };

/**
 * Sends a webhook once. Does not follow redirects, and reads only the status of the response. Never throws.
 *
 * @param webhook A URL that passed the rules, or a path of this server.
 */
export async function sendWebhook(
  { agents, ownUrl, timeoutMs }: SendDeps,
  webhook: string,
  headers: Readonly<Record<string, string>>,
  body: string,
): Promise<SendResult> {
  const isOwn = webhook.startsWith('/');
  try {
    const url = new URL(isOwn ? new URL(ownUrl).origin + webhook : webhook);
    const isTls = url.protocol === 'https:';
    const agent = isOwn ? undefined : isTls ? agents.https : agents.http;
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
        // The body is not needed. Destroying the response can cause an error on the request, which is ignored.
        request.on('error', () => undefined);
        response.destroy();
      });
      request.end(body);
    });
    if (status >= 200 && status < 300) return { ok: true };
    const final = status < 500 && status !== 408 && status !== 425 && status !== 429;
    return { ok: false, final, reason: `it answered ${status}` };
  } catch (raw) {
    // A refused address or an invalid request fails again on each retry.
    const final = isRunlakeError(raw) || raw instanceof TypeError;
    return { ok: false, final, reason: isRunlakeError(raw) ? raw.message : describeFailure(raw, timeoutMs) };
  }
}

function describeFailure(raw: unknown, timeoutMs: number): string {
  const { name, code } = raw as NodeJS.ErrnoException;
  return name === 'AbortError' || name === 'TimeoutError'
    ? `it did not answer within ${timeoutMs} ms`
    : `the connection failed (${code ?? name})`;
}
