import type { FastifyRequest } from 'fastify';
import { type Static, type TObject, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { runForTenant } from '../../infra/fairness/tenant-context.ts';
import { publicExampleFields } from '../../pipelines/datasets/example.ts';
import { readExamplesWithRuns } from '../../pipelines/datasets/experiment-runs.ts';
import { type FeedbackFilter, listFeedback } from '../../pipelines/feedback/list-feedback.ts';
import { findProjectIds } from '../../pipelines/projects/project.ts';
import { parseRunFilters } from '../../pipelines/runs/filter/run-filter.ts';
import { findLiveProjects } from '../../pipelines/runs/locate-run.ts';
import { queryRuns, readOneRun, v1Envelope } from '../../pipelines/runs/query-runs.ts';
import { publicFields, selectPublicFields } from '../../pipelines/runs/run-select.ts';
import { openShare } from '../../pipelines/runs/shared-traces.ts';
import { identifyShare } from '../../pipelines/shares/share-tokens.ts';
import { JsonObject, jsonMediaType, OneOf, optional, Text, Uuid } from '../server/formats.ts';
import { pageParameters } from '../server/list-parameters.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import type { Services } from '../server/services.ts';
import { readSharedDataset } from './dataset-shares.ts';
import { createExampleLinks, exampleShape } from './example-fields.ts';
import { Feedback, parseSourceTypes, sourceParameter } from './feedback.ts';
import { addRunExtras } from './run-extras.ts';
import { maxPageRows, normaliseIds, oneOrMore, Run, RunPage } from './runs.ts';
import { publicAccess, publicHeaders, ShareParams, sharedQueryFields } from './shared-runs.ts';

/**
 * Experiments on shared datasets, and feedback on shared traces. They are read with a share token instead of an API
 * key.
 */

export const shared = {
  access: publicAccess,
  errors: ['NOT_FOUND', 'BAD_REQUEST', ...clickhouseErrors, 'DATABASE_UNAVAILABLE', 'DATABASE_QUERY_FAILED'],
} as const;
export const experimentsDescription = 'Nothing unless the dataset is shared with `share_projects`.';

/** Fields of a run in an experiment on a shared dataset. */
const experimentRunFields = [...publicFields, 'session_id'] as const;
const SharedRun: TObject = Type.Pick(Run as TObject, [...experimentRunFields]);

interface SharedExperiments {
  readonly tenantId: string;
  readonly datasetId: string;
  /** Ids of the experiments that the token gives access to. */
  readonly projectIds: readonly string[];
}

/** Reads experiments on a shared dataset, only those of `among` if it is given. */
export async function readExperiments(
  services: Services,
  request: FastifyRequest,
  requestedIds: readonly string[] | undefined,
  read: (experiments: SharedExperiments) => Promise<NonNullable<RawResponse['body']>>,
): Promise<RawResponse> {
  return readSharedDataset(services, request, async ({ workspaceId: tenantId, datasetId, withExperiments }) => {
    const conditions = { ids: requestedIds?.map((id) => id.toLowerCase()), referenceDatasetIds: [datasetId] };
    const projectIds = withExperiments ? await findProjectIds(services.database, tenantId, conditions) : [];
    return read({ tenantId, datasetId, projectIds });
  });
}

const ids = () => Type.Optional(Type.Array(Uuid(), { maxItems: 1_000 }));
const FeedbackQuery = Type.Object({
  run: ids(),
  key: Type.Optional(Type.Array(Text(), { maxItems: 1_000 })),
  session: ids(),
  source: sourceParameter,
  has_comment: Type.Optional(Type.Boolean()),
  has_score: Type.Optional(Type.Boolean()),
  level: Type.Optional(OneOf(['run', 'session'])),
  ...pageParameters,
});

function readFeedback(
  services: Services,
  tenantId: string,
  query: Static<typeof FeedbackQuery>,
  restriction: Pick<FeedbackFilter, 'projectIds' | 'traceId'>,
): Promise<Buffer> {
  const filter = {
    runIds: query.run,
    keys: query.key,
    sourceTypes: parseSourceTypes(query.source),
    hasComment: query.has_comment,
    hasScore: query.has_score,
    level: query.level,
    ...restriction,
  };
  const page = { limitRows: query.limit, offsetRows: query.offset };
  return listFeedback(services, { tenantId, filter, ...page, withUserNames: false, omitUsers: true });
}

const emptyList = Buffer.from('[]');

export const sharedExperimentOperations = [
  defineOperation({
    ...shared,
    operationId: 'querySharedExperimentRuns',
    method: 'POST',
    path: '/public/:share_token/datasets/runs/query',
    summary: 'Query the runs of the experiments on a shared dataset, page by page',
    description: experimentsDescription,
    errors: ['INVALID_FILTER', 'RATE_LIMITED', ...shared.errors],
    schema: {
      params: ShareParams,
      body: Type.Object({
        session: oneOrMore(Uuid(), 100, 'Only these experiments.'),
        id: oneOrMore(Uuid(), 1_000, 'Only these runs.'),
        reference_example: oneOrMore(Uuid(), 1_000, 'Only runs on these examples.'),
        is_root: optional(Type.Boolean()),
        ...sharedQueryFields,
      }),
      response: { 200: RunPage(SharedRun) },
      produces: jsonMediaType,
    },
    handler: ({ body, services, request }) => {
      return readExperiments(services, request, normaliseIds(body.session), async (experiments) => {
        const { tenantId, datasetId, projectIds } = experiments;
        if (body.filter) await services.rateLimiter.takeSharedSearch({ targetId: datasetId });
        return queryRuns(
          addRunExtras(services, request),
          {
            tenantId,
            projectIds,
            runIds: normaliseIds(body.id),
            filter: {
              isRoot: body.is_root ?? undefined,
              referenceExampleIds: normaliseIds(body.reference_example),
              conditions: parseRunFilters({ filter: body.filter ?? null }),
            },
            selected: selectPublicFields(['session_id']),
            order: 'desc',
            limitRows: body.limit ?? maxPageRows,
            cursor: body.cursor || undefined,
          },
          v1Envelope,
        );
      });
    },
  }),
  defineOperation({
    ...shared,
    operationId: 'getSharedExperimentRun',
    method: 'GET',
    path: '/public/:share_token/datasets/runs/:run_id',
    summary: 'Get a run of an experiment on a shared dataset',
    schema: {
      params: Type.Object({ share_token: Uuid(), run_id: Uuid() }),
      query: Type.Object({
        exclude_s3_stored_attributes: Type.Optional(Type.Boolean({ description: 'Accepted; all fields are stored.' })),
      }),
      response: { 200: SharedRun },
      produces: jsonMediaType,
    },
    handler: ({ params, services, request }) =>
      readExperiments(services, request, undefined, ({ tenantId, projectIds }) => {
        const runIds = [params.run_id.toLowerCase()];
        const deps = addRunExtras(services, request);
        return readOneRun(deps, {
          tenantId,
          projectIds,
          runIds,
          filter: {},
          selected: selectPublicFields(['session_id']),
        });
      }),
  }),
  defineOperation({
    ...shared,
    operationId: 'listSharedExperimentFeedback',
    method: 'GET',
    path: '/public/:share_token/datasets/feedback',
    summary: 'List the feedback of the experiments on a shared dataset, newest first',
    description: `${experimentsDescription} Without the users that sent it. At most 10 per second and token.`,
    errors: ['ANSWER_TOO_LARGE', 'RATE_LIMITED', ...shared.errors],
    schema: {
      params: ShareParams,
      query: FeedbackQuery,
      response: { 200: Type.Array(Feedback) },
      produces: jsonMediaType,
    },
    handler: ({ query, services, request }) =>
      readExperiments(services, request, query.session, async ({ tenantId, datasetId, projectIds }) => {
        await services.rateLimiter.takeSharedSearch({ targetId: datasetId });
        return projectIds.length === 0 ? emptyList : readFeedback(services, tenantId, query, { projectIds });
      }),
  }),
  defineOperation({
    ...shared,
    operationId: 'listSharedFeedback',
    method: 'GET',
    path: '/public/:share_token/feedbacks',
    summary: 'List the feedback of a shared trace, newest first',
    description:
      'Without the users that sent it. Not for shared threads: their feedback is part of the runs. At most 10 per second and token.',
    errors: ['ANSWER_TOO_LARGE', 'RATE_LIMITED', ...shared.errors],
    schema: {
      params: ShareParams,
      query: FeedbackQuery,
      response: { 200: Type.Array(Feedback) },
      produces: jsonMediaType,
    },
    handler: async ({ params, query, services, request: { disconnected } }) => {
      const { organizationId, tenantId, traceId } = await openShare(services.database, params.share_token);
      if (traceId === undefined) throw runlakeError('NOT_FOUND', { what: 'Shared trace' });
      await services.rateLimiter.takeSharedSearch({ targetId: identifyShare(params.share_token) });
      const body = await runForTenant({ organizationId, disconnected }, async () => {
        const live = await findLiveProjects(services, tenantId, traceId);
        return live.length === 0 ? emptyList : readFeedback(services, tenantId, query, { traceId });
      });
      return new RawResponse({ body, headers: publicHeaders });
    },
  }),
  defineOperation({
    ...shared,
    operationId: 'listSharedExamplesWithRuns',
    method: 'POST',
    path: '/public/:share_token/examples/runs',
    summary: 'List the examples of a shared dataset with their runs in experiments',
    description: '404 for an experiment that is not shared. Without attachments.',
    schema: {
      params: ShareParams,
      body: Type.Object({
        session_ids: Type.Array(Uuid(), { minItems: 1, maxItems: 100, description: 'Experiments on the dataset.' }),
        example_ids: optional(Type.Array(Uuid(), { maxItems: 1_000 })),
        limit: optional(Type.Integer({ minimum: 1, maximum: 100, default: 10 })),
        offset: optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 })),
        preview: optional(Type.Boolean({ description: 'Accepted; inputs and outputs are always complete.' })),
      }),
      response: {
        200: Type.Array(
          Type.Object({ ...exampleShape, metadata: Type.Optional(JsonObject()), runs: Type.Array(SharedRun) }),
        ),
      },
      produces: jsonMediaType,
    },
    handler: ({ body, services, request }) =>
      readExperiments(services, request, body.session_ids, ({ tenantId, datasetId, projectIds }) => {
        const wanted = new Set(body.session_ids.map((id) => id.toLowerCase()));
        if (projectIds.length < wanted.size) throw runlakeError('NOT_FOUND', { what: 'Session' });
        const query = {
          datasetId,
          projectIds,
          exampleIds: body.example_ids ?? undefined,
          limit: body.limit ?? 10,
          offset: body.offset ?? 0,
        };
        const deps = addRunExtras(services, request);
        const selection = { selected: selectPublicFields(['session_id']), fields: new Set(publicExampleFields) };
        return readExamplesWithRuns(deps, tenantId, query, createExampleLinks(services, request), selection);
      }),
  }),
];
