import type { InjectOptions } from 'fastify';
import type { ApiUnderTest } from './start-api.ts';

/**
 * Sends requests with a key to a server under test, without a socket. `getApi` is called at each request, because tests
 * start the server later.
 */
export function asking(getApi: () => ApiUnderTest) {
  return async (
    key: string,
    method: NonNullable<InjectOptions['method']>,
    url: string,
    payload?: object,
    headers: Record<string, string> = {},
  ) => {
    const answer = await getApi().server.inject({
      method,
      url,
      headers: { 'x-api-key': key, ...headers },
      ...(payload === undefined ? {} : { payload }),
    });
    return { status: answer.statusCode, body: answer.body === '' ? undefined : answer.json() };
  };
}
