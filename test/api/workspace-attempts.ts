import { randomUUID } from 'node:crypto';
import { type Attempt, own } from './attempt.ts';

export interface WorkspaceVictim {
  readonly tagKeyId: string;
  readonly tagValueId: string;
  readonly taggingId: string;
  readonly projectId: string;
  readonly usageLimitId: string;
}

const keys = '/workspaces/current/tag-keys';
const valueUrl = ({ tagKeyId, tagValueId }: WorkspaceVictim) => `${keys}/${tagKeyId}/tag-values/${tagValueId}`;
/**
 * Secrets and tag keys are identified by name, so attempts with the victim's names affect the stranger's own workspace.
 */
const secretUrl = '/workspaces/current/secrets/VICTIM';

/** Attempts to use secrets, tags and shares of another workspace, by operation. */
export const workspaceAttempts: Readonly<Record<string, (victim: WorkspaceVictim) => Attempt>> = {
  listSecrets: () => ({ url: '/workspaces/current/secrets', answers: own }),
  setSecrets: () => ({ url: '/workspaces/current/secrets', payload: [{ key: 'VICTIM', value: null }], answers: own }),
  setSecret: () => ({ url: secretUrl, payload: {}, answers: [404] }),
  deleteSecret: () => ({ url: secretUrl, answers: [204] }),
  listUsageLimits: () => ({ url: '/usage-limits', answers: own }),
  listOrganizationUsageLimits: () => ({ url: '/usage-limits/org', answers: own }),
  setUsageLimit: ({ usageLimitId: id }) => ({
    url: '/usage-limits',
    payload: { id, limit_type: 'monthly_traces', limit_value: 0 },
  }),
  deleteUsageLimit: ({ usageLimitId }) => ({ url: `/usage-limits/${usageLimitId}` }),
  getUsageLimitState: () => ({ url: '/workspaces/current/usage_limits', answers: own }),
  listTagKeys: () => ({ url: keys, answers: own }),
  createTagKey: () => ({ url: keys, payload: { key: `mine ${randomUUID()}` }, answers: own }),
  getTagKey: ({ tagKeyId }) => ({ url: `${keys}/${tagKeyId}` }),
  updateTagKey: ({ tagKeyId }) => ({ url: `${keys}/${tagKeyId}`, payload: { key: 'stolen' } }),
  deleteTagKey: ({ tagKeyId }) => ({ url: `${keys}/${tagKeyId}` }),
  listTagValues: ({ tagKeyId }) => ({ url: `${keys}/${tagKeyId}/tag-values` }),
  createTagValue: ({ tagKeyId }) => ({ url: `${keys}/${tagKeyId}/tag-values`, payload: { value: 'stolen' } }),
  getTagValue: (victim) => ({ url: valueUrl(victim) }),
  updateTagValue: (victim) => ({ url: valueUrl(victim), payload: { value: 'stolen' } }),
  deleteTagValue: (victim) => ({ url: valueUrl(victim) }),
  listTaggings: ({ tagValueId }) => ({ url: `/workspaces/current/taggings?tag_value_id=${tagValueId}`, answers: own }),
  createTagging: ({ tagValueId, projectId }) => ({
    url: '/workspaces/current/taggings',
    payload: { tag_value_id: tagValueId, resource_type: 'project', resource_id: projectId },
  }),
  deleteTagging: ({ taggingId }) => ({ url: `/workspaces/current/taggings/${taggingId}` }),
  listTags: () => ({ url: '/workspaces/current/tags', answers: own }),
  listTagsOfResource: ({ projectId }) => ({
    url: `/workspaces/current/tags/resource?resource_type=project&resource_id=${projectId}`,
    answers: own,
  }),
  listTagsOfResources: ({ projectId }) => ({
    url: '/workspaces/current/tags/resources',
    payload: [{ resource_type: 'project', resource_id: projectId }],
    answers: own,
  }),
  listSharedEntities: () => ({ url: '/workspaces/current/shared', answers: own }),
  endSharing: () => ({ url: '/workspaces/current/shared', payload: { unshare_all: true }, answers: own }),
};

/** Sets a secret of the victim, and gives its project a tag. */
export async function addTags(
  post: (url: string, payload: object) => Promise<{ json(): { id: string } }>,
  projectId: string,
): Promise<Omit<WorkspaceVictim, 'projectId' | 'usageLimitId'>> {
  const send = async (url: string, payload: object) => (await post(url, payload)).json().id;
  await post('/workspaces/current/secrets', [{ key: 'VICTIM', value: 'okapi' }]);
  const tagKeyId = await send(keys, { key: 'okapi' });
  const tagValueId = await send(`${keys}/${tagKeyId}/tag-values`, { value: 'okapi' });
  const tagging = { tag_value_id: tagValueId, resource_type: 'project', resource_id: projectId };
  return { tagKeyId, tagValueId, taggingId: await send('/workspaces/current/taggings', tagging) };
}
