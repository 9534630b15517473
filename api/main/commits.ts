import { Type } from 'typebox';
import { findPath } from '../../pipelines/ingest/json/find.ts';
import {
  type CommitRecord,
  maxHashLength,
  minHashLength,
  readCommitContent,
  listCommits as readList,
  stripModel,
} from '../../pipelines/prompts/commit.ts';
import { findReadableRepo } from '../../pipelines/prompts/repo.ts';
import { commitPrompt } from '../../pipelines/prompts/write-commit.ts';
import { JsonObject, jsonMediaType, nullable, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { pageParameters } from '../server/list-parameters.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { defineLargeJson, largeJsonErrors } from '../server/request-body.ts';
import { RepoParams, toRepoName } from './repos.ts';

const maxBodyBytes = 2 * 1024 ** 2;

export const TagName = () => Type.String({ minLength: 1, maxLength: 256, pattern: '^(?!latest$)[^/:\\x00-\\x1f]+$' });

export const ParentCommit = optional(
  Type.String({ minLength: minHashLength, maxLength: maxHashLength, pattern: '^[0-9a-fA-F]+$' }),
);

const NewCommit = Type.Object({
  manifest: JsonObject(),
  parent_commit: ParentCommit,
  description: optional(Text({ maxLength: 10_000 })),
});
const body = defineLargeJson(NewCommit, maxBodyBytes);

const Commit = Type.Object({
  id: Uuid(),
  repo_id: Uuid(),
  commit_hash: Type.String({ description: 'SHA-256 of the hash of the parent and the content.' }),
  parent_id: nullable(Uuid()),
  parent_commit_hash: nullable(Type.String()),
  description: nullable(Type.String()),
  full_name: nullable(Type.String(), { description: 'Name of the author.' }),
  example_run_ids: Type.Array(Uuid(), { description: 'Always empty.' }),
  num_downloads: Type.Integer(),
  num_views: Type.Integer(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});

const formatCommit = (commit: CommitRecord) => ({ ...commit, example_run_ids: [] });

const createCommit = defineOperation({
  operationId: 'createCommit',
  method: 'POST',
  path: '/commits/:owner/:repo',
  summary: 'Commit a new version of a prompt',
  description:
    'Refused with 409 if the manifest is that of the latest commit, or if `parent_commit` is not the latest commit; a repeated request gets the ' +
    'commit that exists if it names its parent, or is the first of the prompt. The manifest is stored byte for byte.',
  access: { permission: 'prompts:update', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: [...largeJsonErrors, 'NOT_FOUND', 'COMMIT_CONFLICT', 'REPO_FULL'],
  rawBody: {
    contentTypes: ['application/json'],
    description:
      '`manifest` (JSON object), and any of `parent_commit` (hash, or at least its first 8 characters; default: the latest), `description`. ' +
      'At most 2 MiB.',
  },
  schema: { params: RepoParams, response: { 201: Type.Object({ commit: Commit }) } },
  handler: async ({ caller, params, request, services }) =>
    body.read({ request, caller }, services, async ({ parent_commit: parentCommit, description }, bytes) => {
      const { start, end } = findPath(bytes, 0, bytes.length, ['manifest'])!;
      const manifest = bytes.toString('utf8', start, end);
      const commit = { manifest, parentCommit, description };
      return { commit: formatCommit(await commitPrompt(services.database, caller, toRepoName(params), commit)) };
    }),
});

const listCommits = defineOperation({
  operationId: 'listCommits',
  method: 'GET',
  path: '/commits/:owner/:repo',
  summary: 'List the commits of a prompt, agent or skill, newest first',
  access: { permission: 'prompts:read', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: ['ANSWER_TOO_LARGE', 'NOT_FOUND'],
  schema: {
    params: RepoParams,
    query: Type.Object({
      tag: Type.Optional(Type.String({ maxLength: 256, description: 'Only the commit with this tag.' })),
      include_stats: Type.Optional(Type.Boolean({ description: 'Accepted; the counts are always included.' })),
      limit: Type.Integer({ minimum: 1, maximum: 100, default: 20 }),
      offset: pageParameters.offset,
    }),
    response: { 200: Type.Object({ commits: Type.Array(Commit), total: Type.Integer() }) },
  },
  handler: async ({ caller, params, query, services }) => {
    const { id } = await findReadableRepo(services, caller, toRepoName(params));
    const { tag, limit, offset } = query;
    const { rows, total } = await readList(services.database, id, { tag, limit, offset });
    return { commits: rows.map(formatCommit), total };
  },
});

const CommitContent = Type.Object({
  commit_hash: Type.String(),
  manifest: JsonObject({ description: 'The JSON that was sent.' }),
  description: nullable(Type.String()),
  examples: Type.Array(JsonObject(), { description: 'Always empty.' }),
  model_config: Type.Null(),
  model_provider: Type.Null(),
  is_draft: Type.Boolean({ description: 'Always false.' }),
});

const getCommit = defineOperation({
  operationId: 'getCommit',
  method: 'GET',
  path: '/commits/:owner/:repo/:commit',
  summary: 'Read a version of a prompt',
  description:
    'By `latest`, a tag, a hash, or at least the first 8 characters of a hash. A prompt that was committed with a model is returned ' +
    'without the model, unless `include_model` is true.',
  access: { permission: 'prompts:read', tenantScope: 'workspace' },
  errorStyle: 'error',
  unsupported: { query: ['get_examples'], flags: ['get_examples'] },
  errors: ['NOT_FOUND'],
  schema: {
    params: Type.Object({ ...RepoParams.properties, commit: Type.String({ minLength: 1, maxLength: 256 }) }),
    query: Type.Object({
      include_model: Type.Boolean({ default: false }),
      include: Type.Optional(
        Type.String({ maxLength: 1_000, description: 'List with commas; `model` is `include_model`.' }),
      ),
      is_view: Type.Boolean({ default: false, description: 'Count a view instead of a download.' }),
    }),
    response: { 200: CommitContent },
    produces: jsonMediaType,
  },
  handler: async ({ caller, params, query, services }) => {
    const { id } = await findReadableRepo(services, caller, toRepoName(params));
    const commit = await readCommitContent(services.database, id, params.commit);
    services.promptReads.count(commit.id, query.is_view ? 'view' : 'download');
    const includesModel = query.include_model || (query.include ?? '').split(',').includes('model');
    const manifest = includesModel ? commit.manifest : stripModel(commit.manifest);
    const { hash: commit_hash, description } = commit;
    const otherFields = { description, examples: [], model_config: null, model_provider: null, is_draft: false };
    const text = `{"commit_hash":"${commit_hash}","manifest":${manifest},${JSON.stringify(otherFields).slice(1)}`;
    return new RawResponse({ body: Buffer.from(text) });
  },
});

export const commitOperations = [listCommits, createCommit, getCommit];
