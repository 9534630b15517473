import { randomUUID } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { type Attempt, own } from './attempt.ts';
import type { SessionHeaders } from './session-attempts.ts';

/** A deployment that strangers attack. */
export interface DeploymentVictim {
  readonly deploymentId: string;
  readonly revisionId: string;
}

/** Adds the deployment `word`. */
export async function addDeployment(
  ask: (url: string, payload: object) => Promise<{ json(): { id: string; latest_revision_id: string } }>,
  word: string,
): Promise<DeploymentVictim> {
  const made = await ask('/v2/deployments', {
    name: word,
    source: 'github',
    source_config: { repo_url: `https://example.com/${word}.git` },
    source_revision_config: { repo_ref: word },
    secrets: [{ name: word.toUpperCase(), value: word }],
  });
  return { deploymentId: made.json().id, revisionId: made.json().latest_revision_id };
}

const revisionOf = ({ deploymentId, revisionId }: DeploymentVictim) =>
  `/v2/deployments/${deploymentId}/revisions/${revisionId}`;
const projectOf = ({ deploymentId, revisionId }: DeploymentVictim) =>
  `/projects/${deploymentId}/revisions/${revisionId}`;

export const deploymentAttempts: Readonly<Record<string, (victim: DeploymentVictim) => Attempt>> = {
  createDeployment: () => ({
    url: '/v2/deployments',
    payload: {
      name: 'stolen',
      source: 'internal_source',
      source_config: {},
      source_revision_config: { source_tarball_path: 'stolen' },
      secrets: [],
    },
    answers: [400],
  }),
  listDeployments: ({ deploymentId }) => ({ url: `/v2/deployments?deployment_ids=${deploymentId}`, answers: own }),
  getDeployment: ({ deploymentId }) => ({ url: `/v2/deployments/${deploymentId}` }),
  updateDeployment: ({ deploymentId }) => ({
    url: `/v2/deployments/${deploymentId}`,
    payload: { secrets: [{ name: 'STOLEN', value: 'stolen' }] },
  }),
  deleteDeployment: ({ deploymentId }) => ({ url: `/v2/deployments/${deploymentId}` }),
  deleteDeployments: ({ deploymentId }) => ({ url: `/v2/deployments?deployment_ids=${deploymentId}`, answers: [207] }),
  listRevisions: ({ deploymentId }) => ({ url: `/v2/deployments/${deploymentId}/revisions` }),
  getRevision: (victim) => ({ url: revisionOf(victim) }),
  createRevision: ({ deploymentId }) => ({ url: `/v2/deployments/${deploymentId}/revisions`, payload: {} }),
  redeployRevision: (victim) => ({ url: `${revisionOf(victim)}/redeploy` }),
  getRevisionLogs: (victim) => ({ url: `${revisionOf(victim)}/logs` }),
  getBuildLogs: (victim) => ({ url: `${projectOf(victim)}/build_logs`, payload: {} }),
  getDeployLogs: (victim) => ({ url: `${projectOf(victim)}/deploy_logs`, payload: {} }),
  getProjectDeployLogs: ({ deploymentId }) => ({ url: `/projects/${deploymentId}/deploy_logs`, payload: {} }),
  createUploadUrl: ({ deploymentId }) => ({ url: `/v2/deployments/${deploymentId}/upload-url` }),
};

/**
 * Sends requests with each session to the address of the victim's deployment, with and without naming its workspace.
 *
 * @param attack `key` is a key of the victim.
 * @returns the status and the code of each answer.
 */
export async function attackAddress(
  server: FastifyInstance,
  attack: {
    readonly victim: DeploymentVictim & { readonly workspaceId: string };
    readonly key: string;
    readonly sessions: readonly SessionHeaders[];
  },
): Promise<string[]> {
  const { victim, key, sessions } = attack;
  const headers = { 'x-api-key': key };
  const read = await server.inject({ url: `/v2/deployments/${victim.deploymentId}`, headers });
  const { pathname } = new URL(read.json().source_config.custom_url);
  const named = sessions.map((session) => ({ ...session, 'x-tenant-id': victim.workspaceId }));
  const answers: string[] = [];
  for (const session of [...sessions, ...named])
    for (const method of ['GET', 'POST', 'DELETE'] as const) {
      const url = `${pathname}/threads/${randomUUID()}`;
      const answer = await server.inject({ method, url, headers: { ...session } });
      answers.push(`${answer.statusCode} ${answer.json().code}`);
    }
  return answers;
}
