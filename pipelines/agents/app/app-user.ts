import type { AgentUser } from '../auth/agent-user.ts';

/** The authenticated user that the app finds in `c.env.auth`. Field names follow the reference server. */
export interface AppUser {
  readonly user: AgentUser;
  readonly scopes: readonly string[];
}

/** Carries the user over the socket to the app's process. The server drops a header of this name that a client sends. */
export const userHeader = 'x-runlake-app-user';

export function userText(user: AgentUser): string {
  return Buffer.from(JSON.stringify({ user, scopes: user.permissions } satisfies AppUser)).toString('base64url');
}

export function userOf(text: string): AppUser {
  return JSON.parse(Buffer.from(text, 'base64url').toString('utf8')) as AppUser;
}
