import { Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { changeSplit, listSplits } from '../../pipelines/datasets/splits.ts';
import { diffVersions, listVersions, readVersion, tagVersion } from '../../pipelines/datasets/versions.ts';
import { optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { buildPageResponse, pageParameters } from '../server/list-parameters.ts';
import { defineOperation } from '../server/operation.ts';
import { DatasetParams } from './datasets.ts';

const DatasetVersion = Type.Object({
  as_of: Timestamp({ description: 'Time of the write that made the version.' }),
  tags: Type.Array(Type.String(), { description: 'The newest version also has the tag `latest`.' }),
});
const TimeOrTag = (description: string) => Type.String({ minLength: 1, maxLength: 512, description });
const Tag = Text({ minLength: 1, maxLength: 512 });

const listDatasetVersions = defineOperation({
  operationId: 'listDatasetVersions',
  method: 'GET',
  path: '/datasets/:dataset_id/versions',
  summary: 'List the versions of a dataset, newest first',
  description:
    'Each write to the examples of a dataset makes a version. `X-Pagination-Total` is the number of versions.',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: {
    params: DatasetParams,
    query: Type.Object({
      search: optional(Text({ maxLength: 512 }), { description: 'Only versions with a tag that contains this text.' }),
      example: Type.Optional(Uuid({ description: 'Only versions that added, changed or deleted this example.' })),
      ...pageParameters,
    }),
    response: { 200: Type.Array(DatasetVersion) },
  },
  handler: async ({ caller, params, query: { example, search, ...page }, services }) =>
    buildPageResponse(
      await listVersions(services.database, caller.workspaceId, params.dataset_id, {
        ...{ exampleId: example, search: search ?? undefined },
        ...page,
      }),
    ),
});

const getDatasetVersion = defineOperation({
  operationId: 'getDatasetVersion',
  method: 'GET',
  path: '/datasets/:dataset_id/version',
  summary: 'Get the version with a tag, or the newest one at a time',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'BAD_REQUEST'],
  schema: {
    params: DatasetParams,
    query: Type.Object({
      as_of: Type.Optional(TimeOrTag('A time; also a tag.')),
      tag: Type.Optional(TimeOrTag('A tag.')),
    }),
    response: { 200: DatasetVersion },
  },
  handler: async ({ caller, params, query: { as_of, tag }, services }) => {
    const asOf = as_of ?? tag;
    if (asOf === undefined || (as_of !== undefined && tag !== undefined)) {
      throw runlakeError('BAD_REQUEST', { reason: 'Send either as_of or tag.' });
    }
    return readVersion(services.database, caller.workspaceId, params.dataset_id, asOf);
  },
});

const tagDatasetVersion = defineOperation({
  operationId: 'tagDatasetVersion',
  method: 'PUT',
  path: '/datasets/:dataset_id/tags',
  summary: 'Set a tag on a version of a dataset',
  description: 'The tag is set on the newest version at `as_of`. A tag that another version has moves.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'BAD_REQUEST', 'DATASET_FULL'],
  schema: {
    params: DatasetParams,
    body: Type.Object({ as_of: TimeOrTag('A time or a tag.'), tag: Tag }),
    response: { 200: DatasetVersion },
  },
  handler: async ({ caller, params, body, services }) => {
    const change = { asOf: body.as_of, tag: body.tag };
    return tagVersion(services.database, caller.workspaceId, params.dataset_id, change);
  },
});

const diffDatasetVersions = defineOperation({
  operationId: 'diffDatasetVersions',
  method: 'GET',
  path: '/datasets/:dataset_id/versions/diff',
  summary: 'Compare two versions of a dataset',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: {
    params: DatasetParams,
    query: Type.Object({ from_version: TimeOrTag('A time or a tag.'), to_version: TimeOrTag('A time or a tag.') }),
    response: {
      200: Type.Object({
        examples_added: Type.Array(Uuid()),
        examples_modified: Type.Array(Uuid()),
        examples_removed: Type.Array(Uuid()),
      }),
    },
  },
  handler: async ({ caller, params, query, services }) => {
    const range = { from: query.from_version, to: query.to_version };
    return diffVersions(services.database, caller.workspaceId, params.dataset_id, range);
  },
});

const listDatasetSplits = defineOperation({
  operationId: 'listDatasetSplits',
  method: 'GET',
  path: '/datasets/:dataset_id/splits',
  summary: 'List the splits of a dataset',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: {
    params: DatasetParams,
    query: Type.Object({ as_of: Type.Optional(TimeOrTag('A time, a tag, or `latest`.')) }),
    response: { 200: Type.Array(Type.String()) },
  },
  handler: async ({ caller, params, query, services }) =>
    listSplits(services.database, caller.workspaceId, params.dataset_id, query.as_of),
});

/** The stock SDKs send all ids in one request. */
const maxChangedExamples = 100_000;

const updateDatasetSplit = defineOperation({
  operationId: 'updateDatasetSplit',
  method: 'PUT',
  path: '/datasets/:dataset_id/splits',
  summary: 'Add examples to a split, or remove them from it',
  description: 'All or none, as one version.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'CONFLICT', 'DATASET_FULL'],
  // The Python SDK sends 40 characters for an id.
  maxBodyBytes: 50 * maxChangedExamples,
  schema: {
    params: DatasetParams,
    body: Type.Object({
      split_name: Text({ minLength: 1, maxLength: 512 }),
      examples: Type.Array(Uuid(), { minItems: 1, maxItems: maxChangedExamples }),
      remove: Type.Optional(Type.Boolean({ default: false })),
    }),
    response: { 200: Type.Array(Uuid()) },
  },
  handler: async ({ caller, params, body, services }) => {
    const change = { name: body.split_name, exampleIds: body.examples, remove: body.remove ?? false };
    return changeSplit(services, caller.workspaceId, params.dataset_id, change);
  },
});

export const datasetVersionOperations = [
  listDatasetVersions,
  getDatasetVersion,
  tagDatasetVersion,
  diffDatasetVersions,
  listDatasetSplits,
  updateDatasetSplit,
];
