import { Type } from 'typebox';
import {
  createTagKey,
  createTagValue,
  deleteTagKey,
  deleteTagValue,
  listTagKeys,
  listTagValues,
  readTagKey,
  readTagValue,
  updateTagKey,
  updateTagValue,
} from '../../pipelines/tags/tags.ts';
import { nullable, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';

/** Tag keys and tag values. */

const Name = () => Text({ minLength: 1, maxLength: 255 });
const Description = () => optional(Text({ maxLength: 10_000 }));
const named = { id: Uuid(), description: nullable(Type.String()), created_at: Timestamp(), updated_at: Timestamp() };
export const TagKeyFields = { key: Type.String(), ...named };
export const TagValueFields = { value: Type.String(), tag_key_id: Uuid(), ...named };
const TagKey = Type.Object(TagKeyFields);
const TagValue = Type.Object(TagValueFields);
const Message = Type.Object({ message: Type.String() });
const KeyParams = Type.Object({ tag_key_id: Uuid() });
const ValueParams = Type.Object({ tag_key_id: Uuid(), tag_value_id: Uuid() });

const path = '/workspaces/current/tag-keys';
export const readAccess = { permission: 'workspaces:read', tenantScope: 'workspace' } as const;
export const changeAccess = { permission: 'tags:manage', tenantScope: 'workspace' } as const;

const toTagValueIds = (params: { readonly tag_key_id: string; readonly tag_value_id: string }) => ({
  keyId: params.tag_key_id,
  valueId: params.tag_value_id,
});

export const tagOperations = [
  defineOperation({
    access: readAccess,
    operationId: 'listTagKeys',
    method: 'GET',
    path,
    summary: 'List the tag keys of the workspace',
    errors: ['ANSWER_TOO_LARGE'],
    schema: { response: { 200: Type.Array(TagKey) } },
    handler: async ({ caller, services }) => listTagKeys(services.database, caller.workspaceId),
  }),
  defineOperation({
    access: changeAccess,
    operationId: 'createTagKey',
    method: 'POST',
    path,
    summary: 'Create a tag key',
    errors: ['CONFLICT', 'LIMIT_REACHED'],
    schema: { body: Type.Object({ key: Name(), description: Description() }), response: { 200: TagKey } },
    handler: async ({ caller, body, services }) => createTagKey(services.database, caller.workspaceId, body),
  }),
  defineOperation({
    access: readAccess,
    operationId: 'getTagKey',
    method: 'GET',
    path: `${path}/:tag_key_id`,
    summary: 'Get a tag key',
    errors: ['NOT_FOUND'],
    schema: { params: KeyParams, response: { 200: TagKey } },
    handler: async ({ caller, params, services }) =>
      readTagKey(services.database, caller.workspaceId, params.tag_key_id),
  }),
  defineOperation({
    access: changeAccess,
    operationId: 'updateTagKey',
    method: 'PATCH',
    path: `${path}/:tag_key_id`,
    summary: 'Change a tag key',
    description: 'Absent fields stay unchanged; null removes the description.',
    errors: ['NOT_FOUND', 'CONFLICT'],
    schema: {
      params: KeyParams,
      body: Type.Object({ key: optional(Name()), description: Description() }),
      response: { 200: TagKey },
    },
    handler: async ({ caller, params, body: { key: name, description }, services }) =>
      updateTagKey(services.database, caller.workspaceId, params.tag_key_id, { name, description }),
  }),
  defineOperation({
    access: changeAccess,
    operationId: 'deleteTagKey',
    method: 'DELETE',
    path: `${path}/:tag_key_id`,
    summary: 'Delete a tag key with its values',
    errors: ['NOT_FOUND'],
    schema: { params: KeyParams, response: { 200: Message } },
    handler: async ({ caller, params, services }) => {
      await deleteTagKey(services.database, caller.workspaceId, params.tag_key_id);
      return { message: 'Tag key deleted' };
    },
  }),
  defineOperation({
    access: readAccess,
    operationId: 'listTagValues',
    method: 'GET',
    path: `${path}/:tag_key_id/tag-values`,
    summary: 'List the values of a tag key',
    errors: ['ANSWER_TOO_LARGE', 'NOT_FOUND'],
    schema: { params: KeyParams, response: { 200: Type.Array(TagValue) } },
    handler: async ({ caller, params, services }) => {
      await readTagKey(services.database, caller.workspaceId, params.tag_key_id);
      return listTagValues(services.database, caller.workspaceId, { keyId: params.tag_key_id });
    },
  }),
  defineOperation({
    access: changeAccess,
    operationId: 'createTagValue',
    method: 'POST',
    path: `${path}/:tag_key_id/tag-values`,
    summary: 'Create a value of a tag key',
    errors: ['NOT_FOUND', 'CONFLICT', 'LIMIT_REACHED'],
    schema: {
      params: KeyParams,
      body: Type.Object({ value: Name(), description: Description() }),
      response: { 200: TagValue },
    },
    handler: async ({ caller, params, body, services }) =>
      createTagValue(services.database, caller.workspaceId, params.tag_key_id, body),
  }),
  defineOperation({
    access: readAccess,
    operationId: 'getTagValue',
    method: 'GET',
    path: `${path}/:tag_key_id/tag-values/:tag_value_id`,
    summary: 'Get a value of a tag key',
    errors: ['NOT_FOUND'],
    schema: { params: ValueParams, response: { 200: TagValue } },
    handler: async ({ caller, params, services }) =>
      readTagValue(services.database, caller.workspaceId, toTagValueIds(params)),
  }),
  defineOperation({
    access: changeAccess,
    operationId: 'updateTagValue',
    method: 'PATCH',
    path: `${path}/:tag_key_id/tag-values/:tag_value_id`,
    summary: 'Change a value of a tag key',
    description: 'Absent fields stay unchanged; null removes the description.',
    errors: ['NOT_FOUND', 'CONFLICT'],
    schema: {
      params: ValueParams,
      body: Type.Object({ value: optional(Name()), description: Description() }),
      response: { 200: TagValue },
    },
    handler: async ({ caller, params, body: { value: name, description }, services }) =>
      updateTagValue(services.database, caller.workspaceId, toTagValueIds(params), { name, description }),
  }),
  defineOperation({
    access: changeAccess,
    operationId: 'deleteTagValue',
    method: 'DELETE',
    path: `${path}/:tag_key_id/tag-values/:tag_value_id`,
    summary: 'Delete a value of a tag key, and take it from resources',
    errors: ['NOT_FOUND'],
    schema: { params: ValueParams, response: { 200: Message } },
    handler: async ({ caller, params, services }) => {
      await deleteTagValue(services.database, caller.workspaceId, toTagValueIds(params));
      return { message: 'Tag value deleted' };
    },
  }),
];
