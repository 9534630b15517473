import { queryOptions, useQueryClient, useSuspenseQuery } from '@tanstack/react-query';
import { ApiError, send, setCsrfToken } from './client.ts';

/** The session of the browser, as `GET /api/v1/session` returns it. */
export interface Session {
  readonly workspace: { readonly id: string; readonly display_name: string };
  readonly organization: { readonly id: string; readonly display_name: string };
  readonly user: { readonly id: string; readonly email?: string | null; readonly full_name?: string | null } | null;
  readonly permissions: readonly string[];
  readonly csrf_token: string;
  readonly expires_at: string;
  readonly application: { readonly version: string; readonly oidc: boolean };
}

const sessionUrl = `/api/v1/session`;
const sessionKey = ['session'];

/** The session; null if there is none. */
export const sessionQuery = queryOptions({
  queryKey: sessionKey,
  queryFn: async ({ signal }): Promise<Session | null> => {
    try {
      return await keep(await send('get', sessionUrl, undefined, signal));
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return null;
      throw error;
    }
  },
  staleTime: Number.POSITIVE_INFINITY,
});

/** Returns functions that begin and end the session. */
export function useSessionChanges() {
  const client = useQueryClient();
  const begin = async (url: string, body: object) => {
    const session = await keep(await send('post', url, body));
    client.clear();
    client.setQueryData(sessionKey, session);
  };
  return {
    signIn: (apiKey: string) => begin(sessionUrl, { api_key: apiKey }),
    signInOnce: (token: string) => begin(`${sessionUrl}/once`, { token }),
    signOut: async () => {
      await send('delete', sessionUrl);
      setCsrfToken(undefined);
      client.clear();
      client.setQueryData(sessionKey, null);
    },
  };
}

/** Returns the session of a screen that is rendered only with one. */
export function useSession(): Session {
  const { data } = useSuspenseQuery(sessionQuery);
  return data as Session;
}

/** Returns whether the session has a permission. */
export function usePermission(permission: string): boolean {
  return useSession().permissions.includes(permission);
}

async function keep(response: Response): Promise<Session> {
  const session = (await response.json()) as Session;
  setCsrfToken(session.csrf_token);
  return session;
}
