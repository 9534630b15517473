import { request } from 'undici';
import type { Operation } from '../../api/server/operation.ts';
import { type HostileRequest, hostileRequests, type KnownValues } from './hostile-requests.ts';

const concurrency = 8;

/**
 * Sends all hostile requests of the operations over sockets.
 * @returns the number of 2xx responses, and the requests that got a 5xx or no response, as `<what>:
 *   <status> <code>`.
 */
export async function listFailures(
  url: string,
  operations: readonly Operation[],
  { headers, known }: { readonly headers: Readonly<Record<string, string>>; readonly known: KnownValues },
): Promise<{ readonly taken: number; readonly failures: readonly string[] }> {
  const failures = new Set<string>();
  let taken = 0;
  function* all(): Generator<HostileRequest> {
    for (const operation of operations) yield* hostileRequests(operation, known);
  }
  const requests = all();
  const sendAll = async () => {
    for (const each of requests) {
      const outcome = await send(url, each, headers);
      if (outcome === 'taken') taken += 1;
      else if (outcome !== undefined) failures.add(`${each.method} ${each.what}: ${outcome}`);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, sendAll));
  return { taken, failures: [...failures].sort() };
}

/**
 * Returns `taken` for a 2xx, undefined for other statuses below 500 and for requests that the client itself rejects.
 * Streaming responses are aborted after their headers.
 */
async function send(
  url: string,
  { method, target, headers, body }: HostileRequest,
  more: Readonly<Record<string, string>>,
): Promise<string | undefined> {
  const ended = new AbortController();
  try {
    const answer = await request(`${url}${target}`, {
      method: method as 'POST',
      headers: { ...more, ...headers },
      ...(body !== undefined && { body }),
      signal: ended.signal,
      headersTimeout: 20_000,
    });
    const { statusCode } = answer;
    if (statusCode < 500) {
      ended.abort();
      answer.body.on('error', () => undefined);
      return statusCode < 300 ? 'taken' : undefined;
    }
    const text = await answer.body.text();
    return `${statusCode} ${/"code":"(\w+)"/.exec(text)?.[1] ?? text.slice(0, 80)}`;
  } catch (error) {
    const { name, code } = error as { name: string; code?: string };
    if (code === 'UND_ERR_INVALID_ARG' || name === 'InvalidArgumentError' || name === 'TypeError') return undefined;
    return `no answer (${code ?? name})`;
  }
}
