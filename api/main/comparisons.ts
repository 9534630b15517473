import { type Static, Type } from 'typebox';
import {
  comparisonOrders,
  createComparison as insertComparison,
  listComparisons as readPage,
  deleteComparison as removeComparison,
} from '../../pipelines/datasets/comparisons.ts';
import { maxNameLength } from '../../pipelines/projects/project.ts';
import { requirePermission } from '../../pipelines/tenants/caller.ts';
import { JsonObject, nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { buildPageResponse, nameParameters, pageParameters } from '../server/list-parameters.ts';
import { defineOperation } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { DatasetParams } from './datasets.ts';

/** Comparative experiments, which pairwise evaluation creates. */

export const comparisonFields = {
  id: Uuid(),
  tenant_id: Uuid({ description: 'Id of the workspace.' }),
  reference_dataset_id: Uuid(),
  name: nullable(Type.String()),
  description: nullable(Type.String()),
  extra: nullable(JsonObject()),
  created_at: Timestamp(),
  modified_at: Timestamp(),
};

const maxExperiments = 100;

/** Fields that lists of comparative experiments add to {@link comparisonFields}. */
export const comparisonResults = {
  experiments_info: Type.Array(Type.Object({ id: Uuid(), name: Type.String() })),
  feedback_stats: JsonObject({ description: 'Statistics of its feedback, by feedback key.' }),
};

export const ComparisonQuery = Type.Object({
  ...nameParameters,
  sort_by: OneOf(comparisonOrders, { default: 'created_at' }),
  sort_by_desc: Type.Boolean({ default: true }),
  ...pageParameters,
});

export function parseComparisonQuery(query: Static<typeof ComparisonQuery>) {
  const { sort_by: sortBy, sort_by_desc: descending, name_contains: nameContains, id: ids, ...rest } = query;
  return { ids, nameContains, sortBy, descending, ...rest };
}

const createComparison = defineOperation({
  operationId: 'createComparativeExperiment',
  method: 'POST',
  path: '/datasets/comparative',
  summary: 'Create a comparative experiment',
  description: 'A comparison of experiments on one dataset. Feedback names it in `comparative_experiment_id`.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'BAD_REQUEST', 'CONFLICT', 'LIMIT_REACHED'],
  exactFields: ['extra'],
  schema: {
    body: Type.Object({
      id: optional(Uuid()),
      experiment_ids: Type.Array(Uuid(), { minItems: 1, maxItems: maxExperiments }),
      reference_dataset_id: optional(Uuid({ description: 'Default: the dataset of the experiments.' })),
      // The stock SDKs join the names of the experiments.
      name: optional(Text({ maxLength: maxExperiments * (maxNameLength + 10) })),
      description: optional(Text({ maxLength: 100_000 })),
      extra: optional(JsonObject()),
      created_at: optional(Timestamp()),
    }),
    response: { 200: Type.Object(comparisonFields) },
  },
  handler: async ({ caller, body, services }) =>
    insertComparison(services.database, caller.workspaceId, {
      id: body.id,
      experimentIds: body.experiment_ids,
      datasetId: body.reference_dataset_id,
      name: body.name,
      description: body.description,
      extra: body.extra,
      createdAt: body.created_at,
    }),
});

const listComparisons = defineOperation({
  operationId: 'listComparativeExperiments',
  method: 'GET',
  path: '/datasets/:dataset_id/comparative',
  summary: 'List the comparative experiments of a dataset',
  description: 'Needs the permission `feedback:read` too. `X-Pagination-Total` is the number on all pages.',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  errors: ['ANSWER_TOO_LARGE', 'NOT_FOUND', ...clickhouseErrors],
  schema: {
    params: DatasetParams,
    query: ComparisonQuery,
    response: {
      200: Type.Array(
        Type.Object({
          ...comparisonFields,
          ...comparisonResults,
        }),
      ),
    },
  },
  handler: async ({ caller, params, query, services }) => {
    requirePermission(caller, 'feedback:read');
    const request = { datasetId: params.dataset_id, ...parseComparisonQuery(query) };
    return buildPageResponse(await readPage(services, caller.workspaceId, request));
  },
});

const deleteComparison = defineOperation({
  operationId: 'deleteComparativeExperiment',
  method: 'DELETE',
  path: '/datasets/comparative/:comparative_experiment_id',
  summary: 'Delete a comparative experiment',
  description: 'Its experiments and its feedback stay.',
  access: { permission: 'datasets:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: {
    params: Type.Object({ comparative_experiment_id: Uuid() }),
    response: { 200: Type.Object({ message: Type.String() }) },
  },
  handler: async ({ caller, params, services }) => {
    await removeComparison(services.database, caller.workspaceId, params.comparative_experiment_id);
    return { message: 'Comparative experiment deleted' };
  },
});

export const comparisonOperations = [createComparison, listComparisons, deleteComparison];
