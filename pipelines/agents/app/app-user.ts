import type { AgentUser } from '../auth/agent-user.ts';

/** Who asks, as `c.env.auth` of the app; the names are those of the reference server. */
export interface AppUser {
  readonly user: AgentUser;
  readonly scopes: readonly string[];
}

/** Within the socket to the app's process, never beyond: what a client sends under this name is dropped. */
export const userHeader = 'x-runlake-app-user';

export function userText(user: AgentUser): string {
  return Buffer.from(JSON.stringify({ user, scopes: user.permissions } satisfies AppUser)).toString('base64url');
}

export function userOf(text: string): AppUser {
  return JSON.parse(Buffer.from(text, 'base64url').toString('utf8')) as AppUser;
}
