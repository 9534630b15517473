import { type Static, Type } from 'typebox';
import { groupBy } from '../../infra/collections/group-by.ts';
import { Dictionary } from '../../infra/json/dictionary.ts';
import {
  createTagging,
  deleteTagging,
  listResourceTags,
  listTaggings,
  listTags,
  type ResourceType,
  resourceTypes,
} from '../../pipelines/tags/taggings.ts';
import { OneOf, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { changeAccess, readAccess, TagKeyFields, TagValueFields } from './tags.ts';

/** Resources that can have tags. */

const ResourceTypeName = () => OneOf(resourceTypes);
const Tagging = Type.Object({
  id: Uuid(),
  tag_value_id: Uuid(),
  resource_type: ResourceTypeName(),
  resource_id: Uuid(),
  created_at: Timestamp(),
});
const TagWithValues = Type.Object({ ...TagKeyFields, values: Type.Array(Type.Object(TagValueFields)) });
const ResourceTag = Type.Object({
  ...TagKeyFields,
  values: Type.Array(Type.Object({ ...TagValueFields, taggings: Type.Array(Tagging) })),
});
const Resource = Type.Object({ tagging_id: Uuid(), resource_id: Uuid(), resource_name: Type.String() });
const ResourceRequest = { resource_type: ResourceTypeName(), resource_id: Uuid() };

/**
 * Returns an object with one member for each resource type. The name of a member is the name of the list, such as
 * `projects`.
 */
function buildResourceLists<Value>(build: () => Value): Record<`${ResourceType}s`, Value> {
  const members = resourceTypes.map((type) => [`${type}s`, build()] as const);
  return Object.fromEntries(members) as Record<`${ResourceType}s`, Value>;
}

const TaggedResources = Type.Object({
  tag_key: Type.String(),
  tag_key_id: Uuid(),
  tag_value: Type.String(),
  tag_value_id: Uuid(),
  resources: Type.Object(buildResourceLists(() => Type.Array(Resource))),
});

export const taggingOperations = [
  defineOperation({
    access: readAccess,
    operationId: 'listTaggings',
    method: 'GET',
    path: '/workspaces/current/taggings',
    summary: 'List the tag values of the workspace with the resources that have them',
    errors: ['ANSWER_TOO_LARGE'],
    schema: {
      query: Type.Object({ tag_value_id: Type.Optional(Uuid({ description: 'Only this value.' })) }),
      response: { 200: Type.Array(TaggedResources) },
    },
    handler: async ({ caller, query, services }) => {
      const valueId = query.tag_value_id?.toLowerCase();
      const [tags, taggings] = await Promise.all([
        listTags(services.database, caller.workspaceId, valueId === undefined ? undefined : [valueId]),
        listTaggings(services.database, caller.workspaceId, { valueId }),
      ]);
      const taggingsByValue = groupBy(taggings, ({ tag_value_id }) => tag_value_id);
      return tags.flatMap(({ id, key, values }) =>
        values.map((value) => {
          const resources = buildResourceLists((): Static<typeof Resource>[] => []);
          for (const tagging of taggingsByValue.get(value.id) ?? []) {
            const { id: tagging_id, resource_id, resource_name, resource_type } = tagging;
            resources[`${resource_type}s`].push({ tagging_id, resource_id, resource_name });
          }
          return { tag_key: key, tag_key_id: id, tag_value: value.value, tag_value_id: value.id, resources };
        }),
      );
    },
  }),
  defineOperation({
    access: changeAccess,
    operationId: 'createTagging',
    method: 'POST',
    path: '/workspaces/current/taggings',
    summary: 'Give a resource a tag value',
    description: 'Returns the existing tagging if the resource has the value.',
    errors: ['NOT_FOUND', 'LIMIT_REACHED'],
    schema: { body: Type.Object({ tag_value_id: Uuid(), ...ResourceRequest }), response: { 200: Tagging } },
    handler: async ({ caller, body, services }) =>
      createTagging(services.database, caller.workspaceId, body.tag_value_id, {
        type: body.resource_type,
        id: body.resource_id.toLowerCase(),
      }),
  }),
  defineOperation({
    access: changeAccess,
    operationId: 'deleteTagging',
    method: 'DELETE',
    path: '/workspaces/current/taggings/:tagging_id',
    summary: 'Take a tag value from a resource',
    errors: ['NOT_FOUND'],
    schema: {
      params: Type.Object({ tagging_id: Uuid() }),
      response: { 200: Type.Object({ message: Type.String() }) },
    },
    handler: async ({ caller, params, services }) => {
      await deleteTagging(services.database, caller.workspaceId, params.tagging_id);
      return { message: 'Tagging deleted' };
    },
  }),
  defineOperation({
    access: readAccess,
    operationId: 'listTags',
    method: 'GET',
    path: '/workspaces/current/tags',
    summary: 'List the tag keys of the workspace with their values',
    unsupported: { query: ['resource_type'] },
    errors: ['ANSWER_TOO_LARGE'],
    schema: { response: { 200: Type.Array(TagWithValues) } },
    handler: async ({ caller, services }) => listTags(services.database, caller.workspaceId),
  }),
  defineOperation({
    access: readAccess,
    operationId: 'listTagsOfResource',
    method: 'GET',
    path: '/workspaces/current/tags/resource',
    summary: 'List the tags of a resource',
    errors: ['ANSWER_TOO_LARGE'],
    schema: { query: Type.Object(ResourceRequest), response: { 200: Type.Array(ResourceTag) } },
    handler: async ({ caller, query, services }) => {
      const resource = { type: query.resource_type, id: query.resource_id.toLowerCase() };
      return (await listResourceTags(services.database, caller.workspaceId, [resource])).get(resource.id) ?? [];
    },
  }),
  defineOperation({
    access: readAccess,
    operationId: 'listTagsOfResources',
    method: 'POST',
    path: '/workspaces/current/tags/resources',
    summary: 'List the tags of several resources, by id of the resource',
    errors: ['ANSWER_TOO_LARGE'],
    schema: {
      body: Type.Array(Type.Object(ResourceRequest), { maxItems: 1_000 }),
      response: { 200: Dictionary(Type.Array(ResourceTag)) },
    },
    handler: async ({ caller, body, services }) => {
      const resources = body.map((each) => ({ type: each.resource_type, id: each.resource_id.toLowerCase() }));
      return Object.fromEntries(await listResourceTags(services.database, caller.workspaceId, resources));
    },
  }),
];
