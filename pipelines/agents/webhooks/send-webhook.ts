import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { GuardedAgents } from '../../../infra/network/guarded-agents.ts';

export interface SendPorts {
  /** For addresses that callers name. */
  readonly agents: GuardedAgents;
  /** Where this server answers from this machine, such as `http://127.0.0.1:2024`. */
  readonly ownUrl: string;
  readonly timeoutMs: number;
}

/** What came of one attempt. `final`: another would end the same way. */
export type SendResult =
  | { readonly ok: true }
  | { readonly ok: false; readonly final: boolean; readonly reason: string };

/**
 * Sends a webhook once. Redirects are not followed, and of the answer only the status is read. Never throws.
 *
 * @param webhook An address that the rules let pass, or a path of this server.
 */
export async function sendWebhook(
  { agents, ownUrl, timeoutMs }: SendPorts,
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
        // The rest of the answer is nobody's, however long it is; what breaks while it is dropped is, too.
        request.on('error', () => undefined);
        response.destroy();
      });
      request.end(body);
    });
    if (status >= 200 && status < 300) return { ok: true };
    const final = status < 500 && status !== 408 && status !== 425 && status !== 429;
    return { ok: false, final, reason: `it answered ${status}` };
  } catch (raw) {
    // Addresses that may not be reached, and what is no request at all.
    const final = isRunlakeError(raw) || raw instanceof TypeError;
    return { ok: false, final, reason: isRunlakeError(raw) ? raw.message : reasonOf(raw, timeoutMs) };
  }
}

function reasonOf(raw: unknown, timeoutMs: number): string {
  const { name, code } = raw as NodeJS.ErrnoException;
  return name === 'AbortError' || name === 'TimeoutError'
    ? `it did not answer within ${timeoutMs} ms`
    : `the connection failed (${code ?? name})`;
}
