import { type Static, Type } from 'typebox';
import { type ProjectWithStats, type StatOrder, statOrders } from '../../pipelines/projects/list-by-stats.ts';
import { nullable, OneOf, Uuid } from '../server/formats.ts';
import {
  cursorParameter,
  metadataParameter,
  nameParameters,
  pageParameters,
  readOffset,
  tagValueParameter,
  writeOffset,
} from '../server/list-parameters.ts';
import { defineOperation } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { RunStats as RunStatsShape, statSelects } from './run-stats.ts';
import {
  buildNullRecord,
  formatSessionStats,
  sessionFields,
  sessionStatsFields,
  statsParameters,
} from './session-stats.ts';
import {
  datasetVersionParameter,
  projectFilterParameter,
  readSession,
  readSessions,
  SessionParams,
} from './sessions.ts';
import { PageResponse } from './v2-runs.ts';

export const sessionTypes = ['PROJECT', 'AGENT', 'EXPERIMENT'] as const;
export const v2Tiers = { longlived: 'LONG_LIVED', shortlived: 'SHORT_LIVED' } as const;
export type V2Tier = (typeof v2Tiers)[keyof typeof v2Tiers];

const orders = ['start_time', 'name', ...(Object.keys(statOrders) as StatOrder[])] as const;
type Order = (typeof orders)[number];
const orderNames = orders.map((order) => order.toUpperCase() as Uppercase<Order>);

const costs = ['total_cost', 'prompt_cost', 'completion_cost'] as const;

/** A project in the form of version 2: tiers in upper case, and costs as numbers. */
export const V2Session = Type.Object({
  ...sessionFields,
  type: OneOf(sessionTypes, { description: '`EXPERIMENT`: it has a reference dataset. `AGENT` does not occur.' }),
  trace_tier: nullable(OneOf(Object.values(v2Tiers))),
  ...sessionStatsFields,
  ...Type.Pick(RunStatsShape, [...costs]).properties,
});

const emptySession = buildNullRecord(V2Session);

export function formatV2Session({
  project,
  ...read
}: Pick<ProjectWithStats, 'project'> & Partial<ProjectWithStats>): Static<typeof V2Session> {
  return {
    ...emptySession,
    ...project,
    ...formatSessionStats(read),
    ...Object.fromEntries(costs.map((name) => [name, read.stats?.[name] ?? null])),
    type: project.reference_dataset_id === null ? ('PROJECT' as const) : ('EXPERIMENT' as const),
    trace_tier: project.trace_tier === null ? null : v2Tiers[project.trace_tier as keyof typeof v2Tiers],
  } as unknown as Static<typeof V2Session>;
}

const getV2Session = defineOperation({
  operationId: 'getV2Session',
  method: 'GET',
  path: '/v2/sessions/:session_id',
  summary: 'Get a tracing project',
  access: { permission: 'projects:read', tenantScope: 'workspace' },
  errorStyle: 'problem',
  errors: ['NOT_FOUND', ...clickhouseErrors],
  schema: { params: SessionParams, query: Type.Object(statsParameters), response: { 200: V2Session } },
  handler: async ({ caller, params, query, services }) =>
    formatV2Session(await readSession(services, caller, params.session_id, query)),
});

const listV2Sessions = defineOperation({
  operationId: 'listV2Sessions',
  method: 'GET',
  path: '/v2/sessions',
  summary: 'List the tracing projects of the workspace, page by page',
  description: 'A project that is created or deleted meanwhile, or whose value for `sort_by` changes, can shift pages.',
  access: { permission: 'projects:read', tenantScope: 'workspace' },
  errorStyle: 'problem',
  errors: ['ANSWER_TOO_LARGE', 'BAD_REQUEST', 'INVALID_FILTER', 'SEARCH_TOO_SLOW', ...clickhouseErrors],
  schema: {
    query: Type.Object({
      ...nameParameters,
      metadata: metadataParameter,
      tag_value_id: tagValueParameter,
      type: Type.Optional(Type.Array(OneOf(sessionTypes), { maxItems: 3 })),
      reference_dataset_id: Type.Optional(Type.Array(Uuid(), { maxItems: 1_000 })),
      dataset_version: datasetVersionParameter,
      filter: projectFilterParameter,
      ...statsParameters,
      include_facets: Type.Boolean({ default: false }),
      stats_filter: Type.Optional(Type.String({ description: 'Statistics of root runs that match; see the guide.' })),
      stats_select: Type.Optional(Type.Array(OneOf(statSelects), { maxItems: 200, description: 'Default: all.' })),
      use_approx_stats: Type.Optional(Type.Boolean({ description: 'Accepted; statistics are always exact.' })),
      sort_by: OneOf(orderNames, { default: 'START_TIME', description: 'Projects without a value are last.' }),
      sort_by_feedback_key: Type.Optional(
        Type.String({ description: 'For `FEEDBACK`: the key whose average orders.' }),
      ),
      sort_by_feedback_source: Type.Optional(
        OneOf(['RUN', 'SESSION'], {
          description: 'For `FEEDBACK`: of root runs (default) or of the projects themselves.',
        }),
      ),
      sort_order: OneOf(['asc', 'desc'], { default: 'desc' }),
      page_size: pageParameters.limit,
      cursor: cursorParameter,
    }),
    response: { 200: PageResponse(V2Session) },
  },
  handler: async ({ caller, query, services }) => {
    const offset = readOffset(query.cursor);
    const types = new Set(query.type ?? sessionTypes);
    if (!types.has('PROJECT') && !types.has('EXPERIMENT')) return { items: [], next_cursor: null, has_more: false };
    const found = await readSessions(services, caller, query, {
      referenceFree: types.has('PROJECT') && types.has('EXPERIMENT') ? undefined : types.has('PROJECT'),
      referenceDatasetIds: query.reference_dataset_id,
      includeFacets: query.include_facets,
      sortBy: query.sort_by.toLowerCase() as Order,
      feedbackSource: query.sort_by_feedback_source === 'SESSION' ? 'session' : 'run',
      descending: query.sort_order === 'desc',
      // Read one more than the page size: if it exists, there is another page.
      limit: query.page_size + 1,
      offset,
    });
    const items = found.slice(0, query.page_size).map(formatV2Session);
    const hasMore = found.length > items.length;
    const next_cursor = hasMore ? writeOffset(offset + items.length) : null;
    return { items, next_cursor, has_more: hasMore };
  },
});

export const v2SessionOperations = [listV2Sessions, getV2Session];
