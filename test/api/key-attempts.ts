import { randomUUID } from 'node:crypto';
import { type Attempt, own } from './attempt.ts';

interface KeyVictim {
  readonly workspaceId: string;
  readonly keyId: string;
}

/** Attempts to read and to change members, API keys and sessions of another organisation, by operation. */
export const keyAttempts: Readonly<Record<string, (victim: KeyVictim) => Attempt>> = {
  getSystem: () => ({ url: '/system', answers: [403] }),
  replayDeadLetters: () => ({ url: '/system/dead-letters/replay', payload: { ids: ['run-events/1'] }, answers: [403] }),
  listAuditLogs: () => ({ url: '/audit-logs', answers: own }),
  getSignIn: () => ({ url: '/session', answers: [401] }),
  signOut: () => ({ url: '/session', answers: [401] }),
  createMember: () => ({
    url: '/orgs/current/members',
    payload: { email: `${randomUUID()}@example.com` },
    answers: [200, 403],
  }),
  listApiKeys: () => ({ url: '/api-key', answers: own }),
  createApiKey: ({ workspaceId }) => ({ url: '/api-key', payload: { workspaces: [workspaceId] } }),
  revokeApiKey: ({ keyId }) => ({ url: `/api-key/${keyId}` }),
  listServiceKeys: () => ({ url: '/orgs/current/service-keys', answers: own }),
  createServiceKey: ({ workspaceId }) => ({
    url: '/orgs/current/service-keys',
    payload: { default_workspace_id: workspaceId },
  }),
  revokeServiceKey: ({ keyId }) => ({ url: `/orgs/current/service-keys/${keyId}` }),
};
