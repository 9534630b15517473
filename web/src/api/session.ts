import { type QueryClient, queryOptions, useQuery, useQueryClient, useSuspenseQuery } from '@tanstack/react-query';
import { useEffect, useSyncExternalStore } from 'react';
import {
  type Answer,
  ApiError,
  getWorkspace,
  onWorkspaceChange,
  readFrom,
  send,
  setCsrfToken,
  setWorkspace,
} from './client.ts';

export type Session = Answer<'get', '/api/v1/session'>;

const sessionUrl = '/api/v1/session';
const sessionKey = ['session'];
const workspacesKey = ['workspaces'];

/** The session; null if there is none. */
export const sessionQuery = queryOptions({
  queryKey: sessionKey,
  queryFn: async ({ signal }): Promise<Session | null> => {
    try {
      return await keep(await send('get', sessionUrl, { signal }));
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return null;
      throw error;
    }
  },
  staleTime: Number.POSITIVE_INFINITY,
});

/** Notifies the other tabs of the browser when the session starts or ends. */
const tabs = new BroadcastChannel('runlake-session');

/** Calls `handle` when another tab has signed in or out. */
export function onOtherTabChange(handle: () => void): void {
  tabs.onmessage = handle;
}

/** Removes cached data of another session. */
export function forgetData(client: QueryClient): void {
  client.removeQueries({ predicate: ({ queryKey: [first] }) => first !== sessionKey[0] });
}

/** Removes cached data of another workspace. */
function forgetWorkspaceData(client: QueryClient): void {
  const kept: readonly unknown[] = [...sessionKey, ...workspacesKey];
  client.removeQueries({ predicate: ({ queryKey: [first] }) => !kept.includes(first) });
}

/** Returns functions that start and end the session. */
export function useSessionChanges() {
  const client = useQueryClient();
  const begin = async (url: string, body: object) => {
    const session = await keep(await send('post', url, { body }));
    forgetData(client);
    client.setQueryData(sessionKey, session);
    tabs.postMessage('begun');
  };
  return {
    signIn: (apiKey: string) => begin(sessionUrl, { api_key: apiKey }),
    signInOnce: (token: string) => begin(`${sessionUrl}/once`, { token }),
    signOut: async () => {
      await send('delete', sessionUrl);
      setCsrfToken(undefined);
      localStorage.removeItem(workspaceStorageKey);
      forgetData(client);
      client.setQueryData(sessionKey, null);
      tabs.postMessage('ended');
    },
  };
}

/** Address of the page that asked for a session, while the tab is at the OpenID Connect provider. */
const returnStorageKey = 'runlake.return';

/** Whether an address is a path of this application: `//host` would be another origin. */
export const isOwnPath = (address: string): boolean => /^\/(?![/\\])/.test(address);

/** Keeps the address of a page for {@link returnFromProvider}. Call it when the tab leaves for the provider. */
export function leaveForProvider(to = '/'): void {
  sessionStorage.setItem(returnStorageKey, to);
}

/**
 * Replaces the address to which a sign-in through OpenID Connect has led, `/` or after a failure `/signin`, so that the page
 * that asked for it is shown again, and notifies the other tabs. Call it before the router reads the address.
 */
export function returnFromProvider(): void {
  const to = sessionStorage.getItem(returnStorageKey);
  sessionStorage.removeItem(returnStorageKey);
  if (to === null || !isOwnPath(to)) return;
  const { pathname, search } = window.location;
  if (pathname === '/signin' && to !== '/')
    window.history.replaceState(
      null,
      '',
      `${pathname}?${new URLSearchParams([...new URLSearchParams(search), ['to', to]])}`,
    );
  if (pathname !== '/') return;
  window.history.replaceState(null, '', to);
  tabs.postMessage('begun');
}

/** Returns the session of a screen that is rendered only with one. */
export function useSession(): Session {
  const { data } = useSuspenseQuery(sessionQuery);
  return data as Session;
}

/**
 * In the local storage: the workspace that a new tab shows, which is that of the tab used last; absent after a sign-out. In that
 * of the session: the workspace of the tab, which it keeps.
 */
const workspaceStorageKey = 'runlake.workspace';

/** Returns the id of the workspace that requests name. */
export function useWorkspaceId(): string | undefined {
  return useSyncExternalStore(onWorkspaceChange, getWorkspace);
}

const workspacesQuery = queryOptions({
  queryKey: workspacesKey,
  ...readFrom('get', '/api/v1/workspaces'),
  staleTime: 60_000,
});

function chooseWorkspace(client: QueryClient, id: string): void {
  localStorage.setItem(workspaceStorageKey, id);
  showWorkspace(id);
  forgetWorkspaceData(client);
}

/** Sets the workspace of the tab, also for when it is loaded anew. */
function showWorkspace(id: string | undefined): void {
  if (id !== undefined) sessionStorage.setItem(workspaceStorageKey, id);
  setWorkspace(id);
}

/** Lets a tab that is opened from this one, for example by a link to a run, show the same workspace. */
export function shareWorkspace(): void {
  const id = sessionStorage.getItem(workspaceStorageKey);
  if (id !== null && localStorage.getItem(workspaceStorageKey) !== null) localStorage.setItem(workspaceStorageKey, id);
}

/** Chooses the workspace that a link names, if the key has access to it. */
export async function openWorkspace(client: QueryClient, id: string): Promise<void> {
  const session = await client.ensureQueryData(sessionQuery);
  if (id === getWorkspace() || !session?.permissions.includes('workspaces:read')) return;
  const workspaces = await client.ensureQueryData(workspacesQuery);
  if (workspaces.some((each) => each.id === id)) chooseWorkspace(client, id);
}

/** The workspaces that the key has access to, the one whose data the screens show, and how to change it. */
export function useWorkspaces() {
  const { workspace: own } = useSession();
  const canList = usePermission('workspaces:read');
  const client = useQueryClient();
  const id = useWorkspaceId();
  const listed = useQuery({ ...workspacesQuery, enabled: canList });
  const workspaces: readonly { readonly id: string; readonly display_name: string }[] =
    listed.data ?? (own ? [own] : []);
  const find = (wanted: string | undefined) => workspaces.find((each) => each.id === wanted);
  const current = find(id) ?? find(own?.id) ?? workspaces[0];
  const choose = (chosenId: string) => chooseWorkspace(client, chosenId);
  const isPending = canList && listed.data === undefined;
  return { workspaces, listed, current, choose, isPending };
}

/** Chooses another workspace if the key has no access to the one that requests name, or if it was deleted. */
export function useExistingWorkspace(): void {
  const { current, choose, isPending } = useWorkspaces();
  const id = useWorkspaceId();
  useEffect(() => {
    if (!isPending && current && current.id !== id) choose(current.id);
  });
}

export function usePermission(permission: string): boolean {
  return useSession().permissions.includes(permission);
}

async function keep(response: Response): Promise<Session> {
  const session = (await response.json()) as Session;
  setCsrfToken(session.csrf_token);
  const stored = localStorage.getItem(workspaceStorageKey);
  // Also a session after one that expired shows the page of the tab, perhaps with an object of its workspace.
  showWorkspace(stored === null ? session.workspace?.id : (sessionStorage.getItem(workspaceStorageKey) ?? stored));
  return session;
}
