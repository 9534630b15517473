import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { runForTenant } from '../../infra/fairness/tenant-context.ts';
import { listComparisons } from '../../pipelines/datasets/comparisons.ts';
import { openSharedDataset } from '../../pipelines/datasets/shared-datasets.ts';
import { listProjects } from '../../pipelines/projects/project.ts';
import { Uuid } from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import type { Services } from '../server/services.ts';
import { ComparisonQuery, comparisonFields, comparisonResults, parseComparisonQuery } from './comparisons.ts';
import { formatSharedExperiment, readSharedDataset, SharedExperiment } from './dataset-shares.ts';
import { readStatsOfQuery, statsSchema } from './run-stats.ts';
import { experimentsDescription, readExperiments, shared } from './shared-experiments.ts';
import { publicHeaders, ShareParams } from './shared-runs.ts';

/** Experiments on shared datasets compared: statistics, comparative experiments, and experiments of several datasets. */

/** Maximum number of tokens in a request, and maximum number of experiments that it returns for each token. */
const maxTokens = 20;
const maxExperiments = 100;

const { id, name, description, created_at, modified_at } = comparisonFields;

async function listExperimentsOf(
  services: Services,
  { disconnected }: FastifyRequest,
  token: string,
): Promise<object[]> {
  const dataset = await openSharedDataset(services.database, token).catch((error: unknown) => {
    if (isRunlakeError(error) && error.code === 'NOT_FOUND') return undefined;
    throw error;
  });
  if (!dataset?.withExperiments) return [];
  const query = { referenceDatasetIds: [dataset.datasetId], limit: maxExperiments, offset: 0 };
  const order = { sortBy: 'start_time', descending: true } as const;
  const rows = await runForTenant({ organizationId: dataset.organizationId, disconnected }, () =>
    listProjects(services.database, dataset.workspaceId, { ...query, ...order }),
  );
  return rows.map(formatSharedExperiment);
}

export const sharedComparisonOperations = [
  defineOperation({
    ...shared,
    operationId: 'getSharedExperimentStats',
    method: 'POST',
    path: '/public/:share_token/datasets/runs/stats',
    summary: 'Get statistics of the runs of the experiments on a shared dataset',
    description: `${experimentsDescription} As \`POST /runs/stats\`; \`session\` selects experiments. At most 10 per second and token.`,
    errors: ['INVALID_FILTER', 'RATE_LIMITED', ...shared.errors],
    schema: { params: ShareParams, ...statsSchema },
    handler: ({ body, services, request }) => {
      const among = body.session == null ? undefined : [body.session].flat();
      return readExperiments(services, request, among, async ({ tenantId, datasetId, projectIds }) => {
        await services.rateLimiter.takeSharedSearch({ targetId: datasetId });
        return readStatsOfQuery(services, tenantId, body, projectIds);
      });
    },
  }),
  defineOperation({
    ...shared,
    operationId: 'listSharedComparativeExperiments',
    method: 'GET',
    path: '/public/:share_token/datasets/comparative',
    summary: 'List the comparative experiments of a shared dataset',
    description: `${experimentsDescription} Without \`extra\`.`,
    errors: ['ANSWER_TOO_LARGE', ...shared.errors],
    schema: {
      params: ShareParams,
      query: ComparisonQuery,
      response: {
        200: Type.Array(Type.Object({ ...{ id, name, description, created_at, modified_at }, ...comparisonResults })),
      },
    },
    handler: ({ query, services, request }) =>
      readSharedDataset(services, request, async ({ workspaceId, datasetId, withExperiments }) => {
        if (!withExperiments) return [];
        const request = { datasetId, ...parseComparisonQuery(query) };
        const { rows } = await listComparisons(services, workspaceId, request);
        return rows.map(({ tenant_id: _workspace, reference_dataset_id: _dataset, extra: _extra, ...row }) => row);
      }),
  }),
  defineOperation({
    ...shared,
    operationId: 'listSharedExperimentsOfDatasets',
    method: 'GET',
    path: '/public/datasets/sessions-bulk',
    summary: 'List the experiments on several shared datasets',
    description:
      `The newest ${maxExperiments} of each dataset, in the order of the tokens. Nothing for a token that is not valid, and for a ` +
      'dataset without `share_projects`.',
    errors: ['ANSWER_TOO_LARGE', ...shared.errors],
    schema: {
      query: Type.Object({ share_tokens: Type.Array(Uuid(), { minItems: 1, maxItems: maxTokens }) }),
      response: { 200: Type.Array(SharedExperiment) },
    },
    handler: async ({ query, services, request }) => {
      const tokens = [...new Set(query.share_tokens.map((token) => token.toLowerCase()))];
      const experiments: object[] = [];
      for (const token of tokens) experiments.push(...(await listExperimentsOf(services, request, token)));
      return new RawResponse({ body: experiments, headers: publicHeaders });
    },
  }),
];
