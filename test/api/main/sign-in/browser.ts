import type { FastifyInstance, InjectOptions, LightMyRequestResponse } from 'fastify';

/** Keeps the session cookie as a browser does, and sends the CSRF token as the application does. */
export interface Browser {
  /** Value of the session cookie. */
  session: string | undefined;
  csrfToken: string | undefined;
  send(
    method: NonNullable<InjectOptions['method']>,
    url: string,
    payload?: object,
    headers?: Record<string, string>,
  ): Promise<LightMyRequestResponse>;
}

export function openBrowser(server: FastifyInstance): Browser {
  const browser: Browser = {
    session: undefined,
    csrfToken: undefined,
    async send(method, url, payload, headers = {}) {
      const answer = await server.inject({
        method,
        url,
        headers: {
          ...headers,
          ...(browser.session !== undefined && { cookie: `theme=dark; runlake_session=${browser.session}` }),
          ...(browser.csrfToken !== undefined && { 'x-csrf-token': browser.csrfToken }),
        },
        ...(payload && { payload }),
      });
      const [, value] = /runlake_session=([^;]*)/.exec(String(answer.headers['set-cookie'] ?? '')) ?? [];
      if (value !== undefined) browser.session = value || undefined;
      return answer;
    },
  };
  return browser;
}
