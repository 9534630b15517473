import { Type } from 'typebox';
import { Dictionary } from '../../infra/json/dictionary.ts';
import {
  commitDirectory,
  directoryTypes,
  type EntryChanges,
  maxDirectoryBytes,
  readDirectory,
} from '../../pipelines/prompts/directory.ts';
import { deleteRepo } from '../../pipelines/prompts/write-repo.ts';
import { JsonObject, jsonMediaType, OneOf, optional, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { defineLargeJson, largeJsonErrors } from '../server/request-body.ts';
import { ParentCommit } from './commits.ts';
import { RepoParams, toRepoName } from './repos.ts';

/** Directories of agents and skills. Clients push and pull a directory as a whole. */

const path = '/v1/platform/hub/repos/:owner/:repo/directories';

const Entry = Type.Union([
  Type.Object({ type: Type.Literal('file'), content: Type.String() }),
  Type.Object({
    type: OneOf(directoryTypes),
    repo_handle: Type.String({ minLength: 1, maxLength: 256 }),
    owner: optional(Type.String({ maxLength: 64 })),
    commit_id: optional(Uuid()),
    commit_hash: optional(Type.String({ minLength: 8, maxLength: 64 })),
  }),
]);

const body = defineLargeJson(
  Type.Object({
    files: Dictionary(Type.Union([Entry, Type.Null()])),
    parent_commit: ParentCommit,
  }),
  // The JSON of a request can be longer than the stored JSON, because it may contain escapes.
  2 * maxDirectoryBytes,
);

const TypeParameter = () =>
  Type.Optional(OneOf(directoryTypes, { description: 'A repo of another type is not found.' }));

const getDirectory = defineOperation({
  operationId: 'getDirectory',
  method: 'GET',
  path,
  summary: 'Read the directory of an agent or skill',
  description: 'Links to other agents and skills are returned as links: clients read the linked repos themselves.',
  access: { permission: 'prompts:read', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: ['NOT_FOUND'],
  schema: {
    params: RepoParams,
    query: Type.Object({
      commit: Type.Optional(
        Type.String({ maxLength: 256, description: '`latest` (default), a tag, or at least 8 characters of a hash.' }),
      ),
      repo_type: TypeParameter(),
    }),
    response: { 200: Type.Object({ commit_id: Uuid(), commit_hash: Type.String(), files: JsonObject() }) },
    produces: jsonMediaType,
  },
  handler: async ({ caller, params, query, services }) => {
    const commitSelector = { name: query.commit, type: query.repo_type };
    const { id, hash, manifest } = await readDirectory(services, caller, toRepoName(params), commitSelector);
    return new RawResponse({ body: Buffer.from(`{"commit_id":"${id}","commit_hash":"${hash}","files":${manifest}}`) });
  },
});

const createDirectoryCommit = defineOperation({
  operationId: 'createDirectoryCommit',
  method: 'POST',
  path: `${path}/commits`,
  summary: 'Commit changes to the directory of an agent or skill',
  description:
    'Files that the request does not name stay. Refused with 409 if `parent_commit` is not the latest commit. If nothing changes, the ' +
    'response is the latest commit.',
  access: { permission: 'prompts:update', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: [...largeJsonErrors, 'NOT_FOUND', 'COMMIT_CONFLICT', 'REPO_FULL'],
  rawBody: {
    contentTypes: ['application/json'],
    description:
      '`files`: path to `{"type": "file", "content": text}`, to a link `{"type": "agent" or "skill", "repo_handle", "owner", "commit_hash"}`, ' +
      'or to null, which deletes it. `parent_commit`: hash, or at least its first 8 characters.',
  },
  schema: {
    params: RepoParams,
    response: {
      200: Type.Object({
        commit: Type.Object({ id: Uuid(), commit_hash: Type.String(), created_at: Timestamp() }),
      }),
    },
  },
  handler: async ({ caller, params, request, services }) =>
    body.read({ request, caller }, services, async ({ files, parent_commit: parentCommit }) => {
      const changes = { changes: files as EntryChanges, parentCommit };
      const commit = await commitDirectory(services, caller, toRepoName(params), changes);
      const { id, commit_hash, created_at } = commit;
      return { commit: { id, commit_hash, created_at } };
    }),
});

const deleteDirectory = defineOperation({
  operationId: 'deleteDirectory',
  method: 'DELETE',
  path,
  summary: 'Delete an agent or skill with its commits',
  access: { permission: 'prompts:delete', tenantScope: 'workspace' },
  errorStyle: 'error',
  errors: ['NOT_FOUND'],
  schema: { params: RepoParams, query: Type.Object({ repo_type: TypeParameter() }), response: { 204: Type.Null() } },
  handler: async ({ caller, params, query, services }) => {
    const types = query.repo_type === undefined ? directoryTypes : [query.repo_type];
    await deleteRepo(services.database, caller, toRepoName(params), types);
    return null;
  },
});

export const directoryOperations = [getDirectory, createDirectoryCommit, deleteDirectory];
