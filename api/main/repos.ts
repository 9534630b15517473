import { Type } from 'typebox';
import { readManifests } from '../../pipelines/prompts/commit.ts';
import {
  findReadableRepo,
  type RepoRecord,
  listRepos as readList,
  readRepo,
  repoOrders,
  repoTypes,
} from '../../pipelines/prompts/repo.ts';
import {
  likeRepo as changeLike,
  updateRepo as changeRepo,
  createRepo as insertRepo,
  deleteRepo as removeRepo,
} from '../../pipelines/prompts/write-repo.ts';
import { findTaggedIds } from '../../pipelines/tags/taggings.ts';
import { requirePermission } from '../../pipelines/tenants/caller.ts';
import { maxHandleLength } from '../../pipelines/tenants/workspaces.ts';
import { JsonObject, jsonMediaType, nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { newTagsField, pageParameters, tagValueParameter } from '../server/list-parameters.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';

const maxRepoHandleLength = 256;

export const RepoParams = Type.Object({
  owner: Type.String({
    maxLength: maxHandleLength,
    description: 'Handle of the workspace; `-` for that of the request.',
  }),
  repo: Type.String({ maxLength: maxRepoHandleLength, description: 'Handle of the repo.' }),
});

export const toRepoName = ({ owner, repo }: { owner: string; repo: string }) => ({ owner, handle: repo });

const Description = Text({ maxLength: 10_000 });
const Readme = Text({ maxLength: 100_000 });
const Tags = Type.Array(Text({ minLength: 1, maxLength: 256 }), { maxItems: 100 });
const RepoKind = OneOf(repoTypes);

const Repo = Type.Object({
  id: Uuid(),
  tenant_id: Uuid({ description: 'Id of the workspace.' }),
  repo_handle: Type.String(),
  repo_type: RepoKind,
  description: nullable(Type.String()),
  readme: nullable(Type.String()),
  tags: Type.Array(Type.String()),
  is_public: Type.Boolean(),
  is_archived: Type.Boolean(),
  owner: nullable(Type.String(), { description: 'Handle of the workspace.' }),
  full_name: Type.String({ description: '`owner/repo_handle`; the owner is `-` if the workspace has no handle.' }),
  num_likes: Type.Integer(),
  num_downloads: Type.Integer({ description: 'How often commits were read.' }),
  num_views: Type.Integer({ description: 'How often commits were read with `is_view`.' }),
  num_commits: Type.Integer(),
  last_commit_hash: nullable(Type.String()),
  commit_tags: Type.Array(Type.String()),
  liked_by_auth_user: Type.Boolean(),
  latest_commit_manifest: optional(
    Type.Object({ commit_hash: Type.String(), manifest: JsonObject(), examples: Type.Null() }),
    { description: 'Only with `with_latest_manifest`; null also if the page would be too large.' },
  ),
  original_repo_id: Type.Null(),
  upstream_repo_id: Type.Null(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});

const RepoResponse = Type.Object({ repo: Repo });

function formatRepo({ last_commit_id: _, ...repo }: RepoRecord) {
  return { ...repo, original_repo_id: null, upstream_repo_id: null };
}

const createRepo = defineOperation({
  operationId: 'createRepo',
  method: 'POST',
  path: '/repos',
  summary: 'Create a prompt, agent or skill',
  description: 'A public repo needs the permission `prompts:share`, and a handle of the workspace.',
  access: { permission: 'prompts:create', tenantScope: 'workspace' },
  unsupported: { body: ['source', 'restricted_mode'], flags: ['restricted_mode'] },
  errors: ['CONFLICT', 'BAD_REQUEST', 'LIMIT_REACHED', 'NOT_FOUND'],
  schema: {
    body: Type.Object({
      repo_handle: Type.String({ minLength: 1, maxLength: maxRepoHandleLength, pattern: '^[a-z][a-z0-9_-]*$' }),
      is_public: Type.Boolean(),
      repo_type: optional(RepoKind, { default: 'prompt' }),
      description: optional(Description),
      readme: optional(Readme),
      tags: optional(Tags),
      tag_value_ids: newTagsField,
    }),
    response: { 200: RepoResponse },
  },
  handler: async ({ caller, body, services }) => {
    if (body.is_public) requirePermission(caller, 'prompts:share');
    if (body.tag_value_ids?.length) requirePermission(caller, 'tags:manage');
    const repo = await insertRepo(services.database, caller, {
      handle: body.repo_handle,
      repoType: body.repo_type ?? 'prompt',
      isPublic: body.is_public,
      description: body.description,
      readme: body.readme,
      tags: body.tags,
      tagValueIds: body.tag_value_ids,
    });
    return { repo: formatRepo(repo) };
  },
});

const BooleanText = OneOf(['true', 'false']);

const Query = Type.Object({
  query: Type.Optional(
    Text({ maxLength: 1_000, description: 'Part of handle, description or readme, ignoring case.' }),
  ),
  match_prefix: Type.Optional(Type.Boolean({ description: 'Accepted; `query` matches prefixes too.' })),
  repo_type: Type.Optional(RepoKind),
  repo_types: Type.Optional(
    Type.Array(RepoKind, { maxItems: repoTypes.length, description: 'Default, without `repo_type`: prompts.' }),
  ),
  tags: Type.Optional(Type.Array(Text({ maxLength: 256 }), { maxItems: 100, description: 'All of these tags.' })),
  tag_value_id: tagValueParameter,
  is_public: Type.Optional(BooleanText),
  is_archived: Type.Optional(OneOf(['true', 'allow', 'false'], { default: 'false' })),
  has_commits: Type.Optional(Type.Boolean()),
  tenant_handle: Type.Optional(Type.String({ maxLength: maxHandleLength })),
  tenant_id: Type.Optional(Uuid()),
  sort_field: OneOf(repoOrders, { default: 'updated_at' }),
  sort_direction: OneOf(['asc', 'desc'], { default: 'desc' }),
  with_latest_manifest: Type.Boolean({ default: false }),
  limit: Type.Integer({ minimum: 1, maximum: 100, default: 20 }),
  offset: pageParameters.offset,
});

const listRepos = defineOperation({
  operationId: 'listRepos',
  method: 'GET',
  path: '/repos',
  summary: 'List prompts, agents and skills',
  description:
    'Of the workspace. With `RUNLAKE_SHARE_PUBLIC_PROMPTS`, `is_public=true`, `tenant_handle` and `tenant_id` also list public ones of ' +
    'other workspaces.',
  access: { permission: 'prompts:read', tenantScope: 'workspace' },
  unsupported: { query: ['upstream_repo_owner', 'upstream_repo_handle', 'source'] },
  errors: ['ANSWER_TOO_LARGE'],
  schema: {
    query: Query,
    response: { 200: Type.Object({ repos: Type.Array(Repo), total: Type.Integer() }) },
    produces: jsonMediaType,
  },
  handler: async ({ caller, query, services }) => {
    const { is_archived: isArchived = 'false', is_public: isPublic } = query;
    const { rows, total } = await readList(services, caller, {
      ids: await findTaggedIds(services.database, caller.workspaceId, query.tag_value_id, undefined),
      types: query.repo_types ?? [query.repo_type ?? 'prompt'],
      text: query.query,
      tags: query.tags,
      isPublic: isPublic === undefined ? undefined : isPublic === 'true',
      isArchived: isArchived === 'allow' ? undefined : isArchived === 'true',
      hasCommits: query.has_commits,
      owner: query.tenant_handle,
      workspaceId: query.tenant_id,
      sortBy: query.sort_field,
      descending: query.sort_direction === 'desc',
      limit: query.limit,
      offset: query.offset,
    });
    const commitIds = query.with_latest_manifest ? rows.flatMap(({ last_commit_id: id }) => id ?? []) : [];
    const manifests = await readManifests(services.database, commitIds, services.config.maxPageBytes);
    const repos = rows.map((row) => {
      const manifest = manifests.get(row.last_commit_id ?? '');
      const member = manifest === undefined ? '' : `,"latest_commit_manifest":${formatManifest(row, manifest)}`;
      return `${JSON.stringify(formatRepo(row)).slice(0, -1)}${member}}`;
    });
    return new RawResponse({ body: Buffer.from(`{"repos":[${repos.join(',')}],"total":${total}}`) });
  },
});

function formatManifest({ last_commit_hash: hash }: RepoRecord, manifest: string): string {
  return `{"commit_hash":"${hash}","manifest":${manifest},"examples":null}`;
}

const getRepo = defineOperation({
  operationId: 'getRepo',
  method: 'GET',
  path: '/repos/:owner/:repo',
  summary: 'Get a prompt, agent or skill',
  access: { permission: 'prompts:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: RepoParams, response: { 200: RepoResponse } },
  handler: async ({ caller, params, services }) => {
    const { id } = await findReadableRepo(services, caller, toRepoName(params));
    return { repo: formatRepo(await readRepo(services.database, caller, id)) };
  },
});

const updateRepo = defineOperation({
  operationId: 'updateRepo',
  method: 'PATCH',
  path: '/repos/:owner/:repo',
  summary: 'Change or archive a prompt, agent or skill',
  description:
    'Absent fields stay unchanged; null clears a text. To make it public needs the permission `prompts:share`, and a handle of the workspace.',
  access: { permission: 'prompts:update', tenantScope: 'workspace' },
  unsupported: { body: ['restricted_mode'], flags: ['restricted_mode'] },
  errors: ['NOT_FOUND', 'BAD_REQUEST'],
  schema: {
    params: RepoParams,
    body: Type.Object({
      description: optional(Description),
      readme: optional(Readme),
      tags: optional(Tags),
      is_public: optional(Type.Boolean()),
      is_archived: optional(Type.Boolean()),
    }),
    response: { 200: RepoResponse },
  },
  handler: async ({ caller, params, body, services }) => {
    if (body.is_public) requirePermission(caller, 'prompts:share');
    const change = {
      description: body.description,
      readme: body.readme,
      tags: body.tags,
      isPublic: body.is_public,
      isArchived: body.is_archived,
    };
    return { repo: formatRepo(await changeRepo(services.database, caller, toRepoName(params), change)) };
  },
});

const deleteRepo = defineOperation({
  operationId: 'deleteRepo',
  method: 'DELETE',
  path: '/repos/:owner/:repo',
  summary: 'Delete a prompt, agent or skill with its commits',
  access: { permission: 'prompts:delete', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: RepoParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await removeRepo(services.database, caller, toRepoName(params));
    return { message: 'Repo deleted' };
  },
});

const likeRepo = defineOperation({
  operationId: 'likeRepo',
  method: 'POST',
  path: '/likes/:owner/:repo',
  summary: 'Like a prompt, agent or skill, or take the like back',
  description: 'A user has one like, whatever key the user sends it with.',
  access: { permission: 'prompts:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: {
    params: RepoParams,
    body: Type.Object({ like: Type.Boolean() }),
    response: { 200: Type.Object({ likes: Type.Integer({ description: 'Number of likes now.' }) }) },
  },
  handler: async ({ caller, params, body, services }) => ({
    likes: await changeLike(services, caller, toRepoName(params), body.like),
  }),
});

export const repoOperations = [listRepos, createRepo, getRepo, updateRepo, deleteRepo, likeRepo];
