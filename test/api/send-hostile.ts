import { request } from 'undici';
import type { Operation } from '../../api/server/operation.ts';
import { type HostileRequest, hostileRequests, type KnownValues } from './hostile-requests.ts';

const atOnce = 8;

/**
 * Sends all hostile requests of the operations over sockets.
 * @returns how many were answered with a 2xx, and those that were answered with a 5xx or not at all, as `<what>:
 *   <status> <code>`.
 */
export async function failuresOf(
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
  const work = async () => {
    for (const each of requests) {
      const outcome = await send(url, each, headers);
      if (outcome === 'taken') taken += 1;
      else if (outcome !== undefined) failures.add(`${each.method} ${each.what}: ${outcome}`);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  return { taken, failures: [...failures].sort() };
}

/**
 * `taken` for a 2xx, undefined for another answer below 500. What the client itself refuses to send is none. Answers
 * that stream are left after their head.
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
