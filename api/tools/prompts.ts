import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { describeLimit, maxLimit, pick, type StoredRecord } from './find-named.ts';
import type { MainApi } from './main-api.ts';
import { choice, flag, integer, text } from './parameters.ts';
import { defineTool } from './tool.ts';

const promptFields = [
  'repo_handle',
  'description',
  'id',
  'is_public',
  'tags',
  'owner',
  'full_name',
  'num_likes',
  'num_downloads',
  'num_views',
  'created_at',
  'updated_at',
] as const;

export const listPrompts = defineTool({
  name: 'list_prompts',
  title: 'List prompts',
  description:
    'List the prompts of the workspace, last changed first, with name, description, tags and counts, but without their templates. ' +
    'Private prompts by default; is_public=true lists the public ones. Use get_prompt_by_name to read one.',
  parameters: {
    is_public: flag({ description: 'true: public prompts; false: private prompts.' }).default(false, 'false'),
    visibility: choice(['public', 'private'], { description: 'Another form of is_public.' }).optional(),
    limit: integer({ description: 'Maximum number of prompts; more than 100 count as 100.', minimum: 1 }).default(20),
  },
  output: {
    prompts: { type: 'array', items: { type: 'object' } },
    total_count: { type: 'integer', description: 'Number of prompts that match, also beyond limit.' },
  },
  run: async ({ is_public: isPublic, visibility, limit }, { api }) => {
    const { repos, total } = await listRepos(api, {
      is_public: visibility === undefined ? isPublic : visibility === 'public',
      limit: Math.min(limit, maxLimit),
      offset: 0,
    });
    const prompts = repos.map((repo) => pick(repo, promptFields));
    return { prompts, total_count: total ?? prompts.length, ...describeLimit(limit) };
  },
});

/** Prompts of the workspace, most recently changed first, without archived ones. */
export async function listRepos(
  api: MainApi,
  page: Readonly<Record<'limit' | 'offset', number>> & { is_public?: boolean; with_latest_manifest?: boolean },
): Promise<{ readonly repos: StoredRecord[]; readonly total?: number }> {
  const query = { is_archived: 'false', sort_field: 'updated_at', sort_direction: 'desc', ...page };
  return (await api.get('/repos', query)) as { repos: StoredRecord[]; total?: number };
}

/** Members of the result of {@link getPromptByName} that are not of the manifest. */
const ownMembers = ['commit_hash', 'prompt', 'manifest', 'error', 'note'];

export const getPromptByName = defineTool({
  name: 'get_prompt_by_name',
  title: 'Get a prompt',
  description:
    'Get one prompt by its exact name: its template (the manifest that was committed, usually a serialised LangChain prompt) and its ' +
    'details. The name can have an owner (owner/name), and a tag or commit hash after a colon (name:production); default: the latest ' +
    'commit.',
  parameters: {
    prompt_name: text({
      description: 'Name of the prompt.',
      examples: ['greeting', 'acme/greeting:production'],
    }).required(),
  },
  output: {
    commit_hash: { type: 'string' },
    prompt: { type: 'object', description: 'Details: name, description, tags, counts, times.' },
    lc: { description: 'Like type, id and kwargs: a member of the manifest of a LangChain prompt.' },
    manifest: {
      type: 'object',
      description:
        'The manifest, if it has a member of one of the other names; otherwise its members are those of the result.',
    },
  },
  run: async ({ prompt_name: name }, { api }) => {
    const { commit_hash: hash, manifest, repo } = await readPrompt(api, name);
    const members = ownMembers.some((each) => Object.hasOwn(manifest, each)) ? { manifest } : manifest;
    return { ...members, commit_hash: hash, prompt: pick(repo, promptFields) };
  },
});

export interface ReadPrompt {
  readonly commit_hash: string;
  readonly manifest: StoredRecord;
  readonly repo: StoredRecord;
}

/** Matches `name`, `owner/name`, and either followed by a colon and a tag or commit. */
const promptName = /^(?:([^/:]+)\/)?([^/:]+)(?::([^/:]+))?$/;

/** Reads a commit of a prompt with its details. @throws BAD_REQUEST for an invalid name; TOOL_REQUEST_FAILED */
export async function readPrompt(api: MainApi, name: string): Promise<ReadPrompt> {
  const [, owner = '-', handle = '', commit = 'latest'] = promptName.exec(name) ?? [];
  if (handle === '')
    throw runlakeError('BAD_REQUEST', { reason: 'prompt_name must be name, owner/name or name:commit' });
  const path = [owner, handle].map(encodeURIComponent).join('/');
  const [content, { repo }] = (await Promise.all([
    api.get(`/commits/${path}/${encodeURIComponent(commit)}`),
    api.get(`/repos/${path}`),
  ])) as [Omit<ReadPrompt, 'repo'>, Pick<ReadPrompt, 'repo'>];
  return { ...content, repo };
}
