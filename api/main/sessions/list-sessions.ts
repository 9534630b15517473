import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { listProjects } from '../../../pipelines/projects/list-projects.ts';
import { Uuid } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';
import { SessionWithStatistics, showSessionWithStatistics } from './session-schema.ts';

/** Sort orders that need statistics of runs. */
const unsupportedOrders = ['last_run_start_time', 'latency_p50', 'latency_p99', 'error_rate', 'feedback', 'runs_count'];

const Query = Type.Object({
  id: Type.Optional(Type.Array(Uuid(), { maxItems: 1_000 })),
  name: Type.Optional(Type.String()),
  name_contains: Type.Optional(Type.String({ description: 'Case-insensitive.' })),
  metadata: Type.Optional(
    Type.String({ description: 'A JSON object. Only projects whose metadata contains all of its pairs.' }),
  ),
  reference_free: Type.Optional(
    Type.Boolean({ description: 'true: without experiments on datasets; false: only experiments.' }),
  ),
  reference_dataset: Type.Optional(Type.Array(Uuid(), { maxItems: 1_000 })),
  include_stats: Type.Optional(Type.Boolean({ description: 'Accepted; statistics are not computed yet and null.' })),
  sort_by: Type.Union(
    ['start_time', 'name', ...unsupportedOrders].map((order) => Type.Literal(order)),
    { default: 'start_time', description: '`start_time` or `name`. Other values are not supported yet.' },
  ),
  sort_by_desc: Type.Boolean({ default: true }),
  limit: Type.Integer({ minimum: 1, maximum: 100, default: 100 }),
  offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
});

export const listSessions = defineOperation({
  operationId: 'listSessions',
  method: 'GET',
  path: '/sessions',
  tag: 'projects',
  summary: 'List the tracing projects of the workspace',
  description: 'The list is empty if no project has the given name.',
  access: { permission: 'projects:read', tenantScope: 'workspace' },
  unsupported: {
    query: [
      'dataset_version',
      'facets',
      'filter',
      'sort_by_feedback_key',
      'sort_by_feedback_source',
      'stats_filter',
      'stats_select',
      'stats_start_time',
      'tag_value_id',
      'use_approx_stats',
    ],
    flags: ['facets', 'use_approx_stats'],
  },
  schema: { query: Query, response: { 200: Type.Array(SessionWithStatistics) } },
  handler: async ({ caller, query, services }) => {
    const sortBy = query.sort_by;
    if (sortBy !== 'name' && sortBy !== 'start_time') {
      throw runlakeError('PARAMETER_NOT_SUPPORTED', { parameter: `sort_by=${sortBy}` });
    }
    const projects = await listProjects(services.database, caller.workspaceId, {
      ids: query.id,
      name: query.name,
      nameContains: query.name_contains,
      metadata: query.metadata === undefined ? undefined : readMetadata(query.metadata),
      referenceFree: query.reference_free,
      referenceDatasetIds: query.reference_dataset,
      sortBy,
      descending: query.sort_by_desc,
      limit: query.limit,
      offset: query.offset,
    });
    return projects.map(showSessionWithStatistics);
  },
});

function readMetadata(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // Invalid JSON has the same error as JSON that is not an object.
  }
  const field = { loc: ['query', 'metadata'], msg: 'must be a JSON object', type: 'json_object' };
  throw runlakeError('INVALID_REQUEST', {}, { fields: [field] });
}
