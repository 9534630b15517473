import { Type } from 'typebox';
import { listTags as readList, readTag, deleteTag as removeTag, setTag } from '../../pipelines/prompts/commit-tags.ts';
import { findReadableRepo } from '../../pipelines/prompts/repo.ts';
import { Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { TagName } from './commits.ts';
import { RepoParams, toRepoName } from './repos.ts';

const TagParams = Type.Object({ ...RepoParams.properties, tag_name: Type.String({ maxLength: 256 }) });

const Tag = Type.Object({
  id: Uuid(),
  repo_id: Uuid(),
  commit_id: Uuid(),
  commit_hash: Type.String(),
  tag_name: Type.String(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});

const listCommitTags = defineOperation({
  operationId: 'listCommitTags',
  method: 'GET',
  path: '/repos/:owner/:repo/tags',
  summary: 'List the tags of the commits of a prompt, agent or skill',
  access: { permission: 'prompts:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: RepoParams, response: { 200: Type.Array(Tag) } },
  handler: async ({ caller, params, services }) => {
    const { id } = await findReadableRepo(services, caller, toRepoName(params));
    return readList(services.database, id);
  },
});

const createCommitTag = defineOperation({
  operationId: 'createCommitTag',
  method: 'POST',
  path: '/repos/:owner/:repo/tags',
  summary: 'Tag a commit',
  description: 'An existing tag of that name moves to the commit.',
  access: { permission: 'prompts:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'REPO_FULL'],
  schema: {
    params: RepoParams,
    body: Type.Object({ tag_name: TagName(), commit_id: Uuid() }),
    response: { 200: Tag },
  },
  handler: async ({ caller, params, body, services }) => {
    const tag = { name: body.tag_name, commitId: body.commit_id, mustExist: false };
    return setTag(services.database, caller, toRepoName(params), tag);
  },
});

const getCommitTag = defineOperation({
  operationId: 'getCommitTag',
  method: 'GET',
  path: '/repos/:owner/:repo/tags/:tag_name',
  summary: 'Get a tag of a commit',
  access: { permission: 'prompts:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: TagParams, response: { 200: Tag } },
  handler: async ({ caller, params, services }) => {
    const { id } = await findReadableRepo(services, caller, toRepoName(params));
    return readTag(services.database, id, params.tag_name);
  },
});

const updateCommitTag = defineOperation({
  operationId: 'updateCommitTag',
  method: 'PATCH',
  path: '/repos/:owner/:repo/tags/:tag_name',
  summary: 'Move a tag to another commit',
  access: { permission: 'prompts:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'REPO_FULL'],
  schema: { params: TagParams, body: Type.Object({ commit_id: Uuid() }), response: { 200: Tag } },
  handler: async ({ caller, params, body, services }) => {
    const tag = { name: params.tag_name, commitId: body.commit_id, mustExist: true };
    return setTag(services.database, caller, toRepoName(params), tag);
  },
});

const deleteCommitTag = defineOperation({
  operationId: 'deleteCommitTag',
  method: 'DELETE',
  path: '/repos/:owner/:repo/tags/:tag_name',
  summary: 'Delete a tag of a commit',
  access: { permission: 'prompts:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: TagParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await removeTag(services.database, caller, toRepoName(params), params.tag_name);
    return { message: 'Tag deleted' };
  },
});

export const commitTagOperations = [listCommitTags, createCommitTag, getCommitTag, updateCommitTag, deleteCommitTag];
