import { type Static, Type } from 'typebox';
import { isJsonObject } from '../../infra/json/json-value.ts';
import { datasetOrders, dataTypes, readDataset, listDatasets as readList } from '../../pipelines/datasets/dataset.ts';
import { transformationTypes } from '../../pipelines/datasets/transformations/dataset-transformation.ts';
import {
  updateDataset as changeDataset,
  createDataset as insertDataset,
  deleteDataset as removeDataset,
} from '../../pipelines/datasets/write-dataset.ts';
import { maxNameLength } from '../../pipelines/projects/project.ts';
import { findTaggedIds } from '../../pipelines/tags/taggings.ts';
import { requirePermission } from '../../pipelines/tenants/caller.ts';
import { JsonObject, nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import {
  buildPageResponse,
  cursorParameter,
  looksUpEmptyName,
  metadataParameter,
  nameParameters,
  newTagsField,
  pageParameters,
  parseMetadata,
  readOffset,
  tagValueParameter,
  writeOffset,
} from '../server/list-parameters.ts';
import { defineOperation } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { PageResponse } from './v2-runs.ts';

const DataType = OneOf(dataTypes);
const Name = Text({ minLength: 1, maxLength: maxNameLength });
const Description = Text({ maxLength: 100_000 });
const Schema = () =>
  JsonObject({ description: 'JSON Schema, draft 2020-12, or draft 7 if `$schema` says so. Examples must match it.' });

/** More than a schema has fields worth a transformation. */
const maxTransformations = 100;
/** Deeper than members of examples that are worth a transformation. */
const maxPathLength = 20;
export const Transformations = Type.Array(
  Type.Object({
    path: Type.Array(Text({ maxLength: 1_000 }), {
      minItems: 1,
      maxItems: maxPathLength,
      description: '`inputs` or `outputs`, then the names of members down to the value.',
    }),
    transformation_type: Text({ maxLength: 100, description: `One of ${transformationTypes.join(', ')}.` }),
  }),
  {
    maxItems: maxTransformations,
    description: 'Changes to the inputs and outputs of examples, before they are validated and stored; see the guide.',
  },
);

export const DatasetParams = Type.Object({ dataset_id: Uuid() });

export const NewDataset = Type.Object({
  id: optional(Uuid()),
  name: Name,
  description: optional(Description),
  data_type: optional(DataType, { default: 'kv' }),
  inputs_schema_definition: optional(Schema()),
  outputs_schema_definition: optional(Schema()),
  transformations: optional(Transformations),
  externally_managed: optional(Type.Boolean()),
  extra: optional(JsonObject({ description: '`metadata` in it is stored; other fields are ignored.' })),
  created_at: optional(Timestamp()),
  tag_value_ids: newTagsField,
});

const DatasetChange = Type.Object({
  name: optional(Name),
  description: optional(Description),
  inputs_schema_definition: optional(Schema()),
  outputs_schema_definition: optional(Schema()),
  transformations: optional(Transformations),
  metadata: optional(JsonObject()),
  baseline_experiment_id: optional(Uuid()),
});

export const Dataset = Type.Object({
  id: Uuid(),
  tenant_id: Uuid({ description: 'Id of the workspace.' }),
  name: Type.String(),
  description: nullable(Type.String()),
  data_type: DataType,
  inputs_schema_definition: nullable(JsonObject()),
  outputs_schema_definition: nullable(JsonObject()),
  metadata: nullable(JsonObject()),
  baseline_experiment_id: nullable(Uuid()),
  externally_managed: Type.Boolean(),
  example_count: Type.Integer({ description: 'Number of examples in the newest version.' }),
  session_count: Type.Integer({ description: 'Number of experiments.' }),
  last_session_start_time: nullable(Timestamp()),
  transformations: nullable(
    Type.Array(Type.Object({ path: Type.Array(Type.String()), transformation_type: OneOf(transformationTypes) })),
  ),
  created_at: Timestamp(),
  modified_at: Timestamp(),
});

const createDataset = defineOperation({
  operationId: 'createDataset',
  method: 'POST',
  path: '/datasets',
  summary: 'Create a dataset',
  access: { permission: 'datasets:create', tenantScope: 'workspace' },
  errors: ['BAD_REQUEST', 'CONFLICT', 'LIMIT_REACHED', 'NOT_FOUND', 'INVALID_SCHEMA'],
  exactFields: ['extra'],
  schema: { body: NewDataset, response: { 200: Dataset } },
  handler: async ({ caller, body, services }) => {
    if (body.tag_value_ids?.length) requirePermission(caller, 'tags:manage');
    const metadata = body.extra?.metadata;
    const dataset = {
      id: body.id,
      name: body.name,
      description: body.description,
      dataType: body.data_type ?? 'kv',
      inputsSchema: body.inputs_schema_definition,
      outputsSchema: body.outputs_schema_definition,
      transformations: body.transformations,
      metadata: isJsonObject(metadata) ? metadata : undefined,
      externallyManaged: body.externally_managed,
      createdAt: body.created_at,
      tagValueIds: body.tag_value_ids,
    };
    return await insertDataset(services.database, caller.workspaceId, dataset);
  },
});

const Query = Type.Object({
  ...nameParameters,
  data_type: Type.Optional(Type.Array(DataType, { maxItems: dataTypes.length })),
  metadata: metadataParameter,
  tag_value_id: tagValueParameter,
  sort_by: OneOf(datasetOrders, {
    default: 'last_session_start_time',
    description: 'By `last_session_start_time`, datasets without experiments come last in both orders.',
  }),
  sort_by_desc: Type.Boolean({ default: true }),
  exclude: Type.Optional(
    Type.Array(Type.Literal('example_count'), { description: 'Accepted; the response has all fields.' }),
  ),
  exclude_corrections_datasets: Type.Optional(
    Type.Boolean({ description: 'Accepted; there are no datasets of corrections.' }),
  ),
  ...pageParameters,
});

const toDatasetFilter = (query: Omit<Static<typeof Query>, 'sort_by_desc' | 'limit' | 'offset'>) => ({
  name: query.name,
  nameContains: query.name_contains,
  dataTypes: query.data_type,
  metadata: parseMetadata(query.metadata),
  sortBy: query.sort_by,
});

const listDatasets = defineOperation({
  operationId: 'listDatasets',
  method: 'GET',
  path: '/datasets',
  summary: 'List the datasets of the workspace',
  description:
    'The list is empty if no dataset has the given name; an empty name counts only in a request without `offset`. `X-Pagination-Total` is the number of datasets on all pages.',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  errors: ['ANSWER_TOO_LARGE'],
  schema: { query: Query, response: { 200: Type.Array(Dataset) } },
  handler: async ({ caller, query, services, request }) => {
    if (looksUpEmptyName(request)) return buildPageResponse({ rows: [], total: 0 });
    const { rows, total } = await readList(services.database, caller.workspaceId, {
      ...toDatasetFilter(query),
      ids: await findTaggedIds(services.database, caller.workspaceId, query.tag_value_id, query.id),
      descending: query.sort_by_desc,
      limit: query.limit,
      offset: query.offset,
    });
    return buildPageResponse({ rows, total });
  },
});

const { sort_by_desc: _, limit, offset: __, ...filters } = Query.properties;

const listV2Datasets = defineOperation({
  operationId: 'listV2Datasets',
  method: 'GET',
  path: '/v2/datasets',
  summary: 'List the datasets of the workspace, page by page',
  description: 'A dataset that is created or deleted meanwhile, or whose value for `sort_by` changes, can shift pages.',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  errorStyle: 'problem',
  errors: ['ANSWER_TOO_LARGE', 'BAD_REQUEST'],
  schema: {
    query: Type.Object({
      ...filters,
      sort_order: OneOf(['asc', 'desc'], { default: 'desc' }),
      page_size: limit,
      cursor: cursorParameter,
    }),
    response: { 200: PageResponse(Dataset) },
  },
  handler: async ({ caller, query, services }) => {
    const offset = readOffset(query.cursor);
    const { rows, total } = await readList(services.database, caller.workspaceId, {
      ...toDatasetFilter(query),
      ids: await findTaggedIds(services.database, caller.workspaceId, query.tag_value_id, query.id),
      descending: query.sort_order === 'desc',
      limit: query.page_size,
      offset,
    });
    const next = offset + rows.length;
    const hasMore = next < total && rows.length > 0;
    return { items: [...rows], next_cursor: hasMore ? writeOffset(next) : null, has_more: hasMore };
  },
});

const getDataset = defineOperation({
  operationId: 'getDataset',
  method: 'GET',
  path: '/datasets/:dataset_id',
  summary: 'Get a dataset',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: {
    params: DatasetParams,
    query: Type.Object({ limit: Type.Optional(Type.Integer({ description: 'Accepted; clients send it.' })) }),
    response: { 200: Dataset },
  },
  handler: ({ caller, params, services }) => readDataset(services.database, caller.workspaceId, params.dataset_id),
});

const updateDataset = defineOperation({
  operationId: 'updateDataset',
  method: 'PATCH',
  path: '/datasets/:dataset_id',
  summary: 'Update a dataset',
  description:
    'Absent fields stay unchanged; null clears a field, except for the name. Changed schemas and ' +
    'transformations apply to later writes of examples.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  unsupported: { body: ['patch_examples'] },
  errors: ['NOT_FOUND', 'BAD_REQUEST', 'CONFLICT', 'INVALID_SCHEMA'],
  exactFields: ['metadata'],
  schema: { params: DatasetParams, body: DatasetChange, response: { 200: Dataset } },
  handler: async ({ caller, params, body, services }) => {
    const change = {
      name: body.name,
      description: body.description,
      inputsSchema: body.inputs_schema_definition,
      outputsSchema: body.outputs_schema_definition,
      transformations: body.transformations,
      metadata: body.metadata,
      baselineExperimentId: body.baseline_experiment_id,
    };
    return await changeDataset(services.database, caller.workspaceId, params.dataset_id, change);
  },
});

const deleteDataset = defineOperation({
  operationId: 'deleteDataset',
  method: 'DELETE',
  path: '/datasets/:dataset_id',
  summary: 'Delete a dataset with all versions of its examples',
  description: 'Experiments on the dataset stay.',
  access: { permission: 'datasets:delete', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', ...clickhouseErrors],
  schema: { params: DatasetParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await removeDataset(services, caller.workspaceId, params.dataset_id);
    return { message: 'Dataset deleted' };
  },
});

export const datasetOperations = [
  listDatasets,
  listV2Datasets,
  createDataset,
  getDataset,
  updateDataset,
  deleteDataset,
];
