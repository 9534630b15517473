import { randomUUID } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { type Attempt, own } from './attempt.ts';

/** Attempts to read and to change the projects of another workspace, by operation. */
export const sessionAttempts: Readonly<Record<string, (victim: { readonly projectId: string }) => Attempt>> = {
  listSessions: ({ projectId }) => ({
    url: `/sessions?id=${projectId}&include_stats=true&sort_by=runs_count&filter=search("okapi")`,
    answers: own,
  }),
  listV2Sessions: ({ projectId }) => ({
    url: `/api/v2/sessions?id=${projectId}&include_stats=true&sort_by=LATENCY_P50&filter=search("okapi")`,
    answers: own,
  }),
  createSession: ({ projectId }) => ({
    url: '/sessions?upsert=true',
    payload: { id: projectId, name: `mine ${randomUUID()}` },
    answers: [409],
  }),
  createV2Session: ({ projectId }) => ({
    url: '/v2/sessions?upsert=true',
    payload: { id: projectId, name: `mine ${randomUUID()}`, type: 'PROJECT' },
    answers: [409],
  }),
  getV2Session: ({ projectId }) => ({ url: `/v2/sessions/${projectId}?include_stats=true` }),
  updateV2Session: ({ projectId }) => ({ url: `/v2/sessions/${projectId}`, payload: { name: 'stolen' } }),
  resolveSession: ({ projectId }) => ({ url: `/sessions/resolutions?kind=EXPERIMENT&id=${projectId}` }),
  getSession: ({ projectId }) => ({ url: `/sessions/${projectId}?include_stats=true` }),
  getSessionMetadata: ({ projectId }) => ({ url: `/sessions/${projectId}/metadata` }),
  updateSession: ({ projectId }) => ({ url: `/sessions/${projectId}`, payload: { name: 'stolen' } }),
  deleteSession: ({ projectId }) => ({ url: `/sessions/${projectId}` }),
  deleteSessions: ({ projectId }) => ({ url: `/sessions?session_ids=${projectId}` }),
};

/** Headers of requests with a session of the dashboard. */
export interface SessionHeaders {
  readonly cookie: string;
  readonly 'x-csrf-token': string;
}

/** Signs in with a key. */
export async function startSession(server: FastifyInstance, key: string): Promise<SessionHeaders> {
  const signedIn = await server.inject({ method: 'POST', url: '/session', payload: { api_key: key } });
  return { cookie: String(signedIn.headers['set-cookie']), 'x-csrf-token': signedIn.json().csrf_token };
}
