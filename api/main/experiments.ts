import { Type } from 'typebox';
import { readExamplesWithRuns } from '../../pipelines/datasets/experiment-runs.ts';
import { requirePermission } from '../../pipelines/tenants/caller.ts';
import { optional, Uuid } from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { DatasetParams } from './datasets.ts';
import { createExampleLinks, exampleShape } from './example-fields.ts';
import { createRunExtras } from './run-extras.ts';
import { Run } from './runs.ts';

export const listExperimentRuns = defineOperation({
  operationId: 'listExperimentRuns',
  method: 'POST',
  path: '/datasets/:dataset_id/runs',
  tag: 'datasets',
  summary: 'List the examples of a dataset with their runs in experiments',
  description: 'The newest version of the examples. Needs the permission `runs:read` too.',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  unsupported: {
    query: ['format'],
    body: ['comparative_experiment_id', 'filters', 'sort_params', 'include_annotator_detail'],
    flags: ['include_annotator_detail'],
  },
  errors: ['NOT_FOUND', 'BAD_REQUEST', ...clickhouseErrors],
  schema: {
    params: DatasetParams,
    body: Type.Object({
      session_ids: Type.Array(Uuid(), { minItems: 1, maxItems: 100, description: 'Experiments on the dataset.' }),
      example_ids: optional(Type.Array(Uuid(), { maxItems: 1_000 })),
      limit: optional(Type.Integer({ minimum: 1, maximum: 100, default: 10 })),
      offset: optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 })),
      preview: optional(Type.Boolean({ description: 'Accepted; inputs and outputs are always complete.' })),
    }),
    response: { 200: Type.Array(Type.Object({ ...exampleShape, runs: Type.Array(Run) })) },
    // The response contains stored JSON, which must not be re-serialised.
    produces: 'application/json; charset=utf-8',
  },
  handler: async ({ caller, params, body, services, request }) => {
    requirePermission(caller, 'runs:read');
    const query = {
      datasetId: params.dataset_id,
      projectIds: body.session_ids,
      exampleIds: body.example_ids ?? undefined,
      limit: body.limit ?? 10,
      offset: body.offset ?? 0,
    };
    const deps = { ...services, extras: createRunExtras(services, request) };
    const links = createExampleLinks(services, request);
    return new RawResponse({ body: await readExamplesWithRuns(deps, caller.workspaceId, query, links) });
  },
});
