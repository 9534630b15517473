import type { FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import { NIL } from 'uuid';
import { runForTenant } from '../../infra/fairness/tenant-context.ts';
import { cloneExamples } from '../../pipelines/datasets/clone-examples.ts';
import { readDataset } from '../../pipelines/datasets/dataset.ts';
import { publicExampleFields } from '../../pipelines/datasets/example.ts';
import { parsePublicExampleFilter } from '../../pipelines/datasets/example-filter.ts';
import { countExamples, readExamples } from '../../pipelines/datasets/read-examples.ts';
import {
  shareDataset as createShare,
  openSharedDataset,
  readDatasetShare,
  unshareDataset as removeShare,
  type SharedDataset,
} from '../../pipelines/datasets/shared-datasets.ts';
import { listProjects, type ProjectRecord } from '../../pipelines/projects/project.ts';
import { identifyShare } from '../../pipelines/shares/share-tokens.ts';
import { jsonMediaType, nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { nameParameters, pageParameters } from '../server/list-parameters.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import type { Services } from '../server/services.ts';
import { Dataset, DatasetParams } from './datasets.ts';
import {
  buildSelectParameters,
  createExampleLinks,
  Example,
  filterParameters,
  ListedExample,
  maxExamples,
  toFields,
  toFilter,
} from './example-fields.ts';
import { exampleWriteErrors } from './examples.ts';
import { publicAccess, publicHeaders, ShareParams } from './shared-runs.ts';

/** Copies of datasets and shared datasets. */

export const cloneDataset = defineOperation({
  operationId: 'cloneDataset',
  method: 'POST',
  path: '/datasets/clone',
  summary: 'Copy examples of a dataset into another one',
  description:
    'All or none, as one version. The copies have new ids and are returned; they keep their time of creation.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  errors: exampleWriteErrors,
  schema: {
    body: Type.Object({
      source_dataset_id: Uuid(),
      target_dataset_id: Uuid(),
      as_of: optional(
        Type.String({ maxLength: 512, description: 'Version of the source: a time, a tag, or `latest`.' }),
      ),
      examples: optional(Type.Array(Uuid(), { maxItems: maxExamples, description: 'Only these; default: all.' })),
      split: optional(
        Type.Union([Type.Array(Text(), { maxItems: 100 }), Text()], { description: 'Only examples in these splits.' }),
      ),
    }),
    response: { 200: Type.Array(Example) },
    produces: jsonMediaType,
  },
  handler: async ({ caller, body, services, request }) => {
    const cloneRequest = {
      sourceId: body.source_dataset_id.toLowerCase(),
      targetId: body.target_dataset_id.toLowerCase(),
      asOf: body.as_of || undefined,
      exampleIds: body.examples?.length ? body.examples : undefined,
      splits: body.split == null || body.split.length === 0 ? undefined : [body.split].flat(),
    };
    const links = createExampleLinks(services, request);
    return new RawResponse({ body: await cloneExamples(services, caller.workspaceId, cloneRequest, links) });
  },
});

const Share = Type.Object({ dataset_id: Uuid(), share_token: Uuid() });
const shareErrors = ['NOT_FOUND', 'CONFLICT', 'SEAL_KEY_UNKNOWN', 'SEAL_BROKEN'] as const;

const getDatasetShare = defineOperation({
  operationId: 'getDatasetShare',
  method: 'GET',
  path: '/datasets/:dataset_id/share',
  summary: 'Get the token of a shared dataset',
  description: '`null` if the dataset is not shared.',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  errors: shareErrors,
  schema: { params: DatasetParams, response: { 200: nullable(Share) } },
  handler: async ({ caller, params, services }) => {
    const datasetId = params.dataset_id.toLowerCase();
    const token = await readDatasetShare(services, caller.workspaceId, datasetId);
    return token === undefined ? null : { dataset_id: datasetId, share_token: token };
  },
});

const shareDataset = defineOperation({
  operationId: 'shareDataset',
  method: 'PUT',
  path: '/datasets/:dataset_id/share',
  summary: 'Share a dataset',
  description:
    'Anyone who has the token can read the dataset and all versions of its examples, with their attachments, until the sharing ' +
    'ends. A shared dataset keeps its token.',
  access: { permission: 'datasets:share', tenantScope: 'workspace' },
  errors: shareErrors,
  // The SDKs send the body without a content type.
  rawBody: {
    contentTypes: ['application/json'],
    description: 'Ignored: the server creates the token, because a token of the client may be easy to guess.',
  },
  schema: {
    params: DatasetParams,
    query: Type.Object({
      share_projects: Type.Boolean({
        default: false,
        description: 'List the experiments on the dataset too, without their runs.',
      }),
    }),
    response: { 200: Share },
  },
  handler: async ({ caller, params, query, services }) => {
    const datasetId = params.dataset_id.toLowerCase();
    const options = { userId: caller.userId, withExperiments: query.share_projects };
    return {
      dataset_id: datasetId,
      share_token: await createShare(services, caller.workspaceId, datasetId, options),
    };
  },
});

const unshareDataset = defineOperation({
  operationId: 'unshareDataset',
  method: 'DELETE',
  path: '/datasets/:dataset_id/share',
  summary: 'End the sharing of a dataset',
  description: 'Takes effect at once. Does nothing if the dataset is not shared.',
  access: { permission: 'datasets:share', tenantScope: 'workspace' },
  schema: { params: DatasetParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await removeShare(services.database, caller.workspaceId, params.dataset_id);
    return { message: 'Sharing ended' };
  },
});

const publicErrors = [
  'INVALID_FILTER',
  'RATE_LIMITED',
  'ANSWER_TOO_LARGE',
  'SEARCH_TOO_SLOW',
  ...clickhouseErrors,
  'NOT_FOUND',
  'BAD_REQUEST',
  'DATABASE_UNAVAILABLE',
  'DATABASE_QUERY_FAILED',
] as const;

/**
 * Reads a shared dataset. Requests for shared resources count towards the usage of the organisation that owns the
 * dataset.
 */
export async function readSharedDataset(
  services: Services,
  { disconnected, params }: FastifyRequest,
  read: (shared: SharedDataset) => Promise<NonNullable<RawResponse['body']>>,
): Promise<RawResponse> {
  const { share_token: token } = params as Static<typeof ShareParams>;
  const shared = await openSharedDataset(services.database, token);
  const body = await runForTenant({ organizationId: shared.organizationId, disconnected }, () => read(shared));
  return new RawResponse({ body: body as object, headers: publicHeaders });
}

const publicFields = [
  'id',
  'name',
  'description',
  'data_type',
  'inputs_schema_definition',
  'outputs_schema_definition',
  'externally_managed',
  'transformations',
  'example_count',
  'created_at',
] as const;

const getSharedDataset = defineOperation({
  operationId: 'getSharedDataset',
  method: 'GET',
  path: '/public/:share_token/datasets',
  summary: 'Get a shared dataset',
  access: publicAccess,
  errors: publicErrors,
  schema: { params: ShareParams, response: { 200: Type.Pick(Dataset, publicFields) } },
  handler: ({ services, request }) =>
    readSharedDataset(services, request, async ({ workspaceId, datasetId }) => {
      const dataset = await readDataset(services.database, workspaceId, datasetId);
      return Object.fromEntries(publicFields.map((name) => [name, dataset[name]]));
    }),
});

const { dataset: _, ...publicFilter } = filterParameters;
const sharedExampleFields = [...publicExampleFields, 'attachment_urls'] as const;

type PublicFilter = Parameters<typeof toFilter>[0];

/**
 * Converts the query to a filter for the shared dataset. The filter expression can use only fields that the response
 * may contain. A search counts against the rate limit of the dataset.
 *
 * @throws RATE_LIMITED
 */
async function toSharedFilter({ rateLimiter }: Services, query: PublicFilter, { datasetId }: SharedDataset) {
  const { filter, full_text_contains: texts, metadata, splits } = query;
  const isSearch = [filter, texts, metadata, splits].some((condition) => condition !== undefined);
  if (isSearch) await rateLimiter.takeSharedSearch({ targetId: datasetId });
  return { ...toFilter(query, parsePublicExampleFilter), datasetId, waits: false, isPublic: true };
}

const listSharedExamples = defineOperation({
  operationId: 'listSharedExamples',
  method: 'GET',
  path: '/public/:share_token/examples',
  summary: 'List the examples of a shared dataset',
  description: 'The links in `attachment_urls` are valid for an hour, at most until the sharing ends.',
  access: publicAccess,
  errors: publicErrors,
  schema: {
    params: ShareParams,
    query: Type.Object({
      ...publicFilter,
      ...buildSelectParameters(sharedExampleFields, 'all'),
      ...pageParameters,
    }),
    response: { 200: Type.Array(Type.Pick(ListedExample, ['id', ...sharedExampleFields])) },
    produces: jsonMediaType,
  },
  handler: ({ params, query, services, request }) =>
    readSharedDataset(services, request, async (shared) => {
      const { limit, offset } = query;
      const filter = await toSharedFilter(services, query, shared);
      const fields = toFields(query, sharedExampleFields);
      const page = { ...filter, order: 'recent', fields, limit, offset } as const;
      const links = { ...createExampleLinks(services, request), share: identifyShare(params.share_token) };
      return readExamples(services.database, shared.workspaceId, page, links);
    }),
});

const countSharedExamples = defineOperation({
  operationId: 'countSharedExamples',
  method: 'GET',
  path: '/public/:share_token/examples/count',
  summary: 'Count the examples of a shared dataset',
  access: publicAccess,
  errors: publicErrors,
  schema: {
    params: ShareParams,
    query: Type.Object(publicFilter),
    response: { 200: Type.Integer() },
    produces: jsonMediaType,
  },
  handler: ({ query, services, request }) =>
    readSharedDataset(services, request, async (shared) => {
      const filter = await toSharedFilter(services, query, shared);
      return Buffer.from(String(await countExamples(services.database, shared.workspaceId, filter)));
    }),
});

export const SharedExperiment = Type.Object({
  id: Uuid(),
  tenant_id: Uuid({ description: 'The nil UUID. Clients require the field.' }),
  name: Type.String(),
  description: nullable(Type.String()),
  start_time: Timestamp(),
  end_time: nullable(Timestamp()),
  reference_dataset_id: Uuid(),
});

export function formatSharedExperiment(project: ProjectRecord) {
  const { id, name, description, start_time, end_time, reference_dataset_id } = project;
  return {
    ...{ id, tenant_id: NIL, name, description, start_time, end_time },
    reference_dataset_id: reference_dataset_id ?? NIL,
  };
}

const listSharedExperiments = defineOperation({
  operationId: 'listSharedExperiments',
  method: 'GET',
  path: '/public/:share_token/datasets/sessions',
  summary: 'List the experiments on a shared dataset',
  description: 'Empty unless the dataset is shared with `share_projects`.',
  access: publicAccess,
  errors: publicErrors,
  schema: {
    params: ShareParams,
    query: Type.Object({
      ...nameParameters,
      sort_by: OneOf(['name', 'start_time'], { default: 'start_time' }),
      sort_by_desc: Type.Boolean({ default: true }),
      ...pageParameters,
    }),
    response: { 200: Type.Array(SharedExperiment) },
  },
  handler: ({ query, services, request }) =>
    readSharedDataset(services, request, async ({ workspaceId, datasetId, withExperiments }) => {
      if (!withExperiments) return [];
      const rows = await listProjects(services.database, workspaceId, {
        ids: query.id,
        name: query.name,
        nameContains: query.name_contains,
        referenceDatasetIds: [datasetId],
        sortBy: query.sort_by,
        descending: query.sort_by_desc,
        limit: query.limit,
        offset: query.offset,
      });
      return rows.map(formatSharedExperiment);
    }),
});

export const datasetShareOperations = [
  getDatasetShare,
  shareDataset,
  unshareDataset,
  getSharedDataset,
  listSharedExamples,
  countSharedExamples,
  listSharedExperiments,
];
