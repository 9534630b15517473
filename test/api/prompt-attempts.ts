import { type Attempt, own } from './attempt.ts';

/** The victim's prompt is public; the installation does not share public prompts. */
export interface PromptVictim {
  /** Path of the prompt with the handle of the victim's workspace: `owner/handle`. */
  readonly prompt: string;
  readonly agent: string;
  readonly commitId: string;
  readonly workspaceId: string;
}

const buildAgentFiles = (content: string) => ({ 'AGENTS.md': { type: 'file', content } });
const hub = (path: string) => `/v1/platform/hub/repos/${path}/directories`;

/** Attempts to use the prompts of another workspace, by operation. */
export const promptAttempts: Readonly<Record<string, (victim: PromptVictim) => Attempt>> = {
  listRepos: ({ workspaceId }) => ({
    url: `/repos?is_public=true&tenant_id=${workspaceId}&with_latest_manifest=true`,
    answers: own,
  }),
  // The handle is free in the workspace of the stranger, who has no handle for a public prompt.
  createRepo: () => ({ url: '/repos', payload: { repo_handle: 'mine', is_public: true }, answers: [400] }),
  getRepo: ({ prompt }) => ({ url: `/repos/${prompt}` }),
  updateRepo: ({ prompt }) => ({ url: `/repos/${prompt}`, payload: { description: 'stolen' } }),
  deleteRepo: ({ prompt }) => ({ url: `/repos/${prompt}` }),
  likeRepo: ({ prompt }) => ({ url: `/likes/${prompt}`, payload: { like: true } }),
  listCommits: ({ prompt }) => ({ url: `/commits/${prompt}` }),
  createCommit: ({ prompt }) => ({ url: `/commits/${prompt}`, payload: { manifest: { stolen: 1 } } }),
  getCommit: ({ prompt }) => ({ url: `/commits/${prompt}/latest` }),
  listCommitTags: ({ prompt }) => ({ url: `/repos/${prompt}/tags` }),
  createCommitTag: ({ prompt, commitId }) => ({
    url: `/repos/${prompt}/tags`,
    payload: { tag_name: 'stolen', commit_id: commitId },
  }),
  getCommitTag: ({ prompt }) => ({ url: `/repos/${prompt}/tags/okapi` }),
  updateCommitTag: ({ prompt, commitId }) => ({ url: `/repos/${prompt}/tags/okapi`, payload: { commit_id: commitId } }),
  deleteCommitTag: ({ prompt }) => ({ url: `/repos/${prompt}/tags/okapi` }),
  getDirectory: ({ agent }) => ({ url: hub(agent) }),
  createDirectoryCommit: ({ agent }) => ({
    url: `${hub(agent)}/commits`,
    payload: { files: buildAgentFiles('stolen') },
  }),
  deleteDirectory: ({ agent }) => ({ url: hub(agent) }),
};

type Ask = (method: string, request: { url: string; payload?: object }) => Promise<{ json(): unknown }>;

/** Adds a public prompt with a tag, and a public agent. The workspace gets the handle `okapi`. */
export async function addPrompts(ask: Ask): Promise<Omit<PromptVictim, 'workspaceId'>> {
  await ask('POST', { url: '/settings/handle', payload: { tenant_handle: 'okapi' } });
  const repo = { description: 'okapi', is_public: true };
  await ask('POST', { url: '/repos', payload: { ...repo, repo_handle: 'okapi-prompt' } });
  await ask('POST', { url: '/repos', payload: { ...repo, repo_handle: 'okapi-agent', repo_type: 'agent' } });
  const made = await ask('POST', { url: '/commits/-/okapi-prompt', payload: { manifest: { secret: 'okapi' } } });
  const commitId = (made.json() as { commit: { id: string } }).commit.id;
  const tag = { tag_name: 'okapi', commit_id: commitId };
  await ask('POST', { url: '/repos/-/okapi-prompt/tags', payload: tag });
  await ask('POST', { url: `${hub('-/okapi-agent')}/commits`, payload: { files: buildAgentFiles('okapi') } });
  return { prompt: 'okapi/okapi-prompt', agent: 'okapi/okapi-agent', commitId };
}
