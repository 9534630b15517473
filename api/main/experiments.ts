import { Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { Dictionary } from '../../infra/json/dictionary.ts';
import { requireComparison } from '../../pipelines/datasets/comparisons.ts';
import {
  type ExperimentFilters,
  readExamplesWithRuns,
  readV2ExamplesWithRuns,
  type ScoreOrder,
} from '../../pipelines/datasets/experiment-runs.ts';
import { readFeedbackStatsByRun } from '../../pipelines/feedback/feedback-stats.ts';
import { toUniqueIds } from '../../pipelines/ingest/run-event/uuid.ts';
import { parseRunFilter } from '../../pipelines/runs/filter/run-filter.ts';
import type { ReadDeps } from '../../pipelines/runs/locate-run.ts';
import { selectWithPreviews } from '../../pipelines/runs/run-select.ts';
import { requirePermission } from '../../pipelines/tenants/caller.ts';
import { jsonMediaType, OneOf, optional, Text, Uuid } from '../server/formats.ts';
import { defineOperation, RawResponse, type WorkspaceRequest } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { DatasetParams } from './datasets.ts';
import { createExampleLinks, exampleShape } from './example-fields.ts';
import { addRunExtras } from './run-extras.ts';
import { Run } from './runs.ts';
import { buildPageFields, PageResponse, SelectList, V2Run, v2Errors } from './v2-runs.ts';

const Filters = () =>
  optional(Dictionary(Type.Array(Type.String(), { maxItems: 10 }), { maxProperties: 10 }), {
    description:
      'Filters by experiment. Only examples are returned that have, in each of these experiments, a run that satisfies all its filters.',
  });

/** @throws INVALID_FILTER; BAD_REQUEST for an experiment that is not requested. */
function readFilters(
  filters: Record<string, string[]> | null | undefined,
  experimentIds: readonly string[],
): ExperimentFilters {
  const requested = new Set(toUniqueIds(experimentIds));
  return new Map(
    Object.entries(filters ?? {})
      .filter(([, texts]) => texts.length > 0)
      .map(([id, texts]) => {
        if (!requested.has(id.toLowerCase()))
          throw runlakeError('BAD_REQUEST', { reason: 'filters names an experiment that is not requested.' });
        return [id.toLowerCase(), texts.map((text) => parseRunFilter('filters', text))] as const;
      }),
  );
}

/** Reads the order of examples by feedback score. The prefix `feedback.` of the key is optional. */
function readScoreOrder(
  by: string | null | undefined,
  order: 'ASC' | 'DESC' | null | undefined,
  comparisonId: string | null | undefined,
): ScoreOrder | undefined {
  const feedbackKey = by?.replace(/^feedback\./, '');
  if (!feedbackKey) return undefined;
  return { feedbackKey, descending: order !== 'ASC', comparisonId: comparisonId ?? undefined };
}

const SortKey = () =>
  Text({
    minLength: 1,
    maxLength: 200,
    description: 'Feedback key, such as `feedback.correctness`; the prefix is optional.',
  });
const SortOrder = () => optional(OneOf(['ASC', 'DESC'], { default: 'DESC' }));
const sortDescription =
  'Orders the examples by the average score of their runs in the only experiment of the request. Examples without a score are last.';

const listExperimentRuns = defineOperation({
  operationId: 'listExperimentRuns',
  method: 'POST',
  path: '/datasets/:dataset_id/runs',
  summary: 'List the examples of a dataset with their runs in experiments',
  description: 'The newest version of the examples, with root runs only. Needs the permission `runs:read` too.',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  unsupported: {
    query: ['format'],
    body: ['include_annotator_detail'],
    flags: ['include_annotator_detail'],
  },
  errors: ['NOT_FOUND', 'BAD_REQUEST', 'INVALID_FILTER', ...clickhouseErrors],
  schema: {
    params: DatasetParams,
    body: Type.Object({
      session_ids: Type.Array(Uuid(), { minItems: 1, maxItems: 100, description: 'Experiments on the dataset.' }),
      example_ids: optional(Type.Array(Uuid(), { maxItems: 1_000 })),
      comparative_experiment_id: optional(Uuid({ description: 'Only its feedback is in `feedback_stats`.' })),
      filters: Filters(),
      sort_params: optional(Type.Object({ sort_by: SortKey(), sort_order: SortOrder() }), {
        description: sortDescription,
      }),
      limit: optional(Type.Integer({ minimum: 1, maximum: 100, default: 10 })),
      offset: optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 })),
      preview: optional(
        Type.Boolean({
          description:
            'Whether runs also have `inputs_preview` and `outputs_preview`. Inputs and outputs stay complete.',
        }),
      ),
    }),
    response: { 200: Type.Array(Type.Object({ ...exampleShape, runs: Type.Array(Run) })) },
    produces: jsonMediaType,
  },
  handler: async ({ caller, params, body, services, request }) => {
    requirePermission(caller, 'runs:read');
    const query = {
      datasetId: params.dataset_id,
      projectIds: body.session_ids,
      exampleIds: body.example_ids ?? undefined,
      filters: readFilters(body.filters, body.session_ids),
      sort: readScoreOrder(body.sort_params?.sort_by, body.sort_params?.sort_order, body.comparative_experiment_id),
      limit: body.limit ?? 10,
      offset: body.offset ?? 0,
    };
    const deps = await createReadDeps({ services, request, caller }, query.datasetId, body.comparative_experiment_id);
    const links = createExampleLinks(services, request);
    const selection = body.preview ? { selected: selectWithPreviews() } : {};
    return new RawResponse({ body: await readExamplesWithRuns(deps, caller.workspaceId, query, links, selection) });
  },
});

/**
 * Creates the dependencies for reading experiments.
 *
 * @throws NOT_FOUND if the dataset has no such comparative experiment.
 */
async function createReadDeps(
  { services, request, caller }: WorkspaceRequest,
  datasetId: string,
  comparisonId: string | null | undefined,
): Promise<ReadDeps> {
  const deps = addRunExtras(services, request);
  if (comparisonId == null) return deps;
  await requireComparison(services.database, caller.workspaceId, { datasetId, id: comparisonId });
  return {
    ...deps,
    extras: {
      ...deps.extras,
      feedbackStats: (tenantId, runIds) =>
        readFeedbackStatsByRun(services.clickhouse, tenantId, runIds, { comparisonId }),
    },
  };
}

const queryExperimentRuns = defineOperation({
  operationId: 'queryExperimentRuns',
  method: 'POST',
  path: '/v2/datasets/:dataset_id/experiment-runs',
  summary: 'Query the examples of a dataset with their runs in experiments, page by page',
  description:
    'All pages are of the same version of the dataset, the newest one at the first page. Runs have the selected fields, and ' +
    'always `id` and `reference_example_id`. Needs the permission `runs:read` too.',
  access: { permission: 'datasets:read', tenantScope: 'workspace' },
  errorStyle: 'problem',
  errors: ['BAD_REQUEST', 'INVALID_FILTER', ...v2Errors],
  schema: {
    params: DatasetParams,
    body: Type.Object({
      experiment_ids: Type.Array(Uuid(), { minItems: 1, maxItems: 100, description: 'Experiments on the dataset.' }),
      example_ids: optional(Type.Array(Uuid(), { maxItems: 1_000 })),
      comparative_experiment_id: optional(Uuid({ description: 'Only its feedback is in `feedback_stats`.' })),
      filters: Filters(),
      sort: optional(Type.Object({ by: optional(SortKey()), order: SortOrder() }), { description: sortDescription }),
      selects: optional(SelectList()),
      ...buildPageFields(100, 20),
    }),
    response: { 200: PageResponse(Type.Object({ ...exampleShape, runs: Type.Array(V2Run) })) },
    produces: jsonMediaType,
  },
  handler: async ({ caller, params, body, services, request }) => {
    requirePermission(caller, 'runs:read');
    const query = {
      datasetId: params.dataset_id,
      projectIds: body.experiment_ids,
      exampleIds: body.example_ids ?? undefined,
      filters: readFilters(body.filters, body.experiment_ids),
      sort: readScoreOrder(body.sort?.by, body.sort?.order, body.comparative_experiment_id),
      selects: body.selects ?? [],
      limit: body.page_size ?? 20,
      cursor: body.cursor || undefined,
    };
    const deps = await createReadDeps({ services, request, caller }, query.datasetId, body.comparative_experiment_id);
    const links = createExampleLinks(services, request);
    return new RawResponse({ body: await readV2ExamplesWithRuns(deps, caller.workspaceId, query, links) });
  },
});

export const experimentOperations = [listExperimentRuns, queryExperimentRuns];
