import { type Static, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import {
  updateQueue as changeQueue,
  type QueueFields,
  type QueueRecord,
  queueOrders,
  listQueues as readList,
  readQueueWithConfigs,
  deleteQueue as removeQueue,
} from '../../pipelines/queues/queue.ts';
import { createPopulatedQueue } from '../../pipelines/queues/queue-items.ts';
import { countStoredRuns } from '../../pipelines/queues/read-queue-runs.ts';
import { findTaggedIds } from '../../pipelines/tags/taggings.ts';
import { requirePermission } from '../../pipelines/tenants/caller.ts';
import { JsonObject, nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { buildPageResponse, pageParameters, tagValueParameter } from '../server/list-parameters.ts';
import { defineOperation } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import type { Services } from '../server/services.ts';
import { formatRubricItem, NewRubricItem, RubricItemShape, toRubricItem } from './rubric-items.ts';
import { addRunExtras } from './run-extras.ts';

const queueTypes = ['single', 'pairwise'] as const;

export const QueueParams = Type.Object({ queue_id: Uuid() });

const Name = Text({ minLength: 1, maxLength: 256 });
const LongText = Text({ maxLength: 100_000 });
const fields = {
  description: optional(LongText),
  default_dataset: optional(Uuid({ description: 'Dataset that reviewers add examples to.' })),
  rubric_instructions: optional(LongText),
  rubric_items: optional(Type.Array(NewRubricItem, { maxItems: 100 })),
  metadata: optional(JsonObject()),
  num_reviewers_per_item: optional(Type.Integer({ minimum: 1, maximum: 100 }), {
    default: 1,
    description: 'A run is completed when this many users have completed it.',
  }),
  enable_reservations: optional(Type.Boolean(), {
    default: true,
    description: 'Hide a run from other users while enough users are reviewing it.',
  }),
  reservation_minutes: optional(Type.Integer({ minimum: 1, maximum: 100_000 }), { default: 1 }),
  reviewer_access_mode: optional(OneOf(['any', 'assigned']), {
    default: 'any',
    description:
      '`any`: any user can review, and `num_reviewers_per_item` complete a run. `assigned`: only reviewers can, and all of them complete it.',
  }),
};

const QueueFieldsSchema = Type.Object(fields);

/**
 * Converts a request body to queue fields. A field that is absent becomes undefined and stays unchanged. Null clears a
 * text field and resets a number or a flag to its default.
 */
function toQueueFields(body: Static<typeof QueueFieldsSchema>): Partial<QueueFields> {
  const replaceNull = <const T>(value: T | null | undefined, fallback: T) => (value === null ? fallback : value);
  const { num_reviewers_per_item, enable_reservations, reservation_minutes, reviewer_access_mode } = body;
  const columns = {
    description: body.description,
    default_dataset: body.default_dataset,
    rubric_instructions: body.rubric_instructions,
    rubric_items: body.rubric_items?.map(toRubricItem) ?? body.rubric_items,
    metadata: body.metadata,
    num_reviewers_per_item: replaceNull(num_reviewers_per_item, 1),
    enable_reservations: replaceNull(enable_reservations, true),
    reservation_minutes: replaceNull(reservation_minutes, 1),
    reviewer_access_mode: replaceNull(reviewer_access_mode, 'any'),
  };
  return Object.fromEntries(Object.entries(columns).filter(([, value]) => value !== undefined));
}

const emptyQueue: Omit<QueueFields, 'name'> = {
  ...{ description: null, default_dataset: null, rubric_instructions: null, rubric_items: null, metadata: null },
  ...{ num_reviewers_per_item: 1, enable_reservations: true, reservation_minutes: 1, reviewer_access_mode: 'any' },
};

const Queue = Type.Object({
  id: Uuid(),
  tenant_id: Uuid({ description: 'Id of the workspace.' }),
  name: Type.String(),
  description: nullable(Type.String()),
  default_dataset: nullable(Uuid()),
  rubric_instructions: nullable(Type.String()),
  rubric_items: nullable(Type.Array(RubricItemShape)),
  metadata: nullable(JsonObject()),
  num_reviewers_per_item: Type.Integer(),
  enable_reservations: Type.Boolean(),
  reservation_minutes: Type.Integer(),
  reviewer_access_mode: OneOf(['any', 'assigned']),
  assigned_reviewers: Type.Array(
    Type.Object({ id: Uuid(), name: nullable(Type.String()), email: nullable(Type.String()) }),
  ),
  queue_type: Type.Literal('single'),
  total_runs: Type.Integer({ description: 'Without deleted and expired runs.' }),
  source_rule_id: Type.Null(),
  run_rule_id: Type.Null(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});

/** Adds the numbers of runs. */
async function formatQueues(services: Services, workspaceId: string, queues: readonly QueueRecord[]) {
  const ids = queues.map(({ id }) => id);
  const totals = await countStoredRuns(services, workspaceId, ids);
  const constantFields = {
    queue_type: 'single',
    source_rule_id: null,
    run_rule_id: null,
  } as const;
  return queues.map((queue) => ({
    ...queue,
    rubric_items: queue.rubric_items?.map(formatRubricItem) ?? null,
    assigned_reviewers: [...queue.assigned_reviewers],
    total_runs: totals.get(queue.id) ?? 0,
    ...constantFields,
  }));
}

async function formatQueue(services: Services, workspaceId: string, queue: QueueRecord) {
  const [formatted] = await formatQueues(services, workspaceId, [queue]);
  return formatted!;
}

const createQueue = defineOperation({
  operationId: 'createAnnotationQueue',
  method: 'POST',
  path: '/annotation-queues',
  summary: 'Create an annotation queue',
  access: { permission: 'annotation-queues:create', tenantScope: 'workspace' },
  description: 'With `session_ids`, the root runs of these projects are in the queue from the beginning: all or none.',
  errors: [
    'BAD_REQUEST',
    'CONFLICT',
    'LIMIT_REACHED',
    'NOT_FOUND',
    'QUEUE_FULL',
    'NOT_STORED_YET',
    'KAFKA_UNAVAILABLE',
    ...clickhouseErrors,
  ],
  exactFields: ['metadata'],
  schema: {
    body: Type.Object({
      id: optional(Uuid()),
      name: Name,
      queue_type: optional(OneOf(queueTypes), { description: 'Only `single` is supported.' }),
      session_ids: optional(Type.Array(Uuid({ description: 'Experiments, or other projects.' }), { maxItems: 100 })),
      ...fields,
    }),
    response: { 200: Queue },
  },
  handler: async ({ caller, body, services, request }) => {
    if (body.queue_type === 'pairwise') {
      const reason =
        'Queues of the type `pairwise` are not supported, because items are single runs. Supported: `single`.';
      throw runlakeError('BAD_REQUEST', { reason });
    }
    const projectIds = (body.session_ids ?? []).map((id) => id.toLowerCase());
    if (projectIds.length > 0) requirePermission(caller, 'annotation-queues:update');
    const fields = { ...emptyQueue, ...toQueueFields(body), name: body.name };
    const deps = addRunExtras(services, request);
    const queue = { id: body.id?.toLowerCase(), fields, projectIds };
    return formatQueue(services, caller.workspaceId, await createPopulatedQueue(deps, caller.workspaceId, queue));
  },
});

const listQueues = defineOperation({
  operationId: 'listAnnotationQueues',
  method: 'GET',
  path: '/annotation-queues',
  summary: 'List the annotation queues of the workspace',
  access: { permission: 'annotation-queues:read', tenantScope: 'workspace' },
  errors: ['ANSWER_TOO_LARGE', ...clickhouseErrors],
  schema: {
    query: Type.Object({
      ids: Type.Optional(Type.Array(Uuid(), { maxItems: 1_000 })),
      name: Type.Optional(Text()),
      name_contains: Type.Optional(Text({ description: 'Case-insensitive.' })),
      tag_value_id: tagValueParameter,
      dataset_id: Type.Optional(Uuid({ description: 'Only queues with this default dataset.' })),
      assigned_to_me: Type.Optional(Type.Boolean({ description: 'Only queues with the user of the key as reviewer.' })),
      queue_type: Type.Optional(OneOf(queueTypes, { description: 'All queues are of the type `single`.' })),
      sort_by: OneOf(queueOrders, { default: 'created_at' }),
      sort_by_desc: Type.Boolean({ default: true }),
      ...pageParameters,
    }),
    response: { 200: Type.Array(Queue) },
  },
  handler: async ({ caller, query, services }) => {
    if (query.queue_type === 'pairwise') return buildPageResponse({ rows: [], total: 0 });
    const { rows, total } = await readList(services.database, caller.workspaceId, {
      ids: await findTaggedIds(services.database, caller.workspaceId, query.tag_value_id, query.ids),
      name: query.name,
      nameContains: query.name_contains,
      datasetId: query.dataset_id,
      reviewerId: query.assigned_to_me ? caller.userId : undefined,
      sortBy: query.sort_by,
      descending: query.sort_by_desc,
      limit: query.limit,
      offset: query.offset,
    });
    return buildPageResponse({ rows: await formatQueues(services, caller.workspaceId, rows), total });
  },
});

const listRunQueues = defineOperation({
  operationId: 'listRunAnnotationQueues',
  method: 'GET',
  path: '/annotation-queues/:run_id/queues',
  summary: 'List the annotation queues that contain a run',
  access: { permission: 'annotation-queues:read', tenantScope: 'workspace' },
  errors: ['ANSWER_TOO_LARGE', ...clickhouseErrors],
  schema: { params: Type.Object({ run_id: Uuid() }), response: { 200: Type.Array(Queue) } },
  handler: async ({ caller, params, services }) => {
    const query = { runId: params.run_id, sortBy: 'created_at', descending: true, limit: 1_000, offset: 0 } as const;
    const { rows } = await readList(services.database, caller.workspaceId, query);
    return formatQueues(services, caller.workspaceId, rows);
  },
});

const getQueue = defineOperation({
  operationId: 'getAnnotationQueue',
  method: 'GET',
  path: '/annotation-queues/:queue_id',
  summary: 'Get an annotation queue',
  access: { permission: 'annotation-queues:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', ...clickhouseErrors],
  schema: { params: QueueParams, response: { 200: Queue } },
  handler: async ({ caller, params, services }) => {
    const queue = await readQueueWithConfigs(services.database, caller.workspaceId, params.queue_id);
    return formatQueue(services, caller.workspaceId, queue);
  },
});

const updateQueue = defineOperation({
  operationId: 'updateAnnotationQueue',
  method: 'PATCH',
  path: '/annotation-queues/:queue_id',
  summary: 'Update an annotation queue',
  description: 'Absent fields stay unchanged; null clears a field, except for the name.',
  access: { permission: 'annotation-queues:update', tenantScope: 'workspace' },
  errors: ['BAD_REQUEST', 'NOT_FOUND', ...clickhouseErrors],
  exactFields: ['metadata'],
  schema: {
    params: QueueParams,
    body: Type.Object({ name: optional(Name), ...fields }),
    response: { 200: Queue },
  },
  handler: async ({ caller, params, body, services }) => {
    const change = { ...toQueueFields(body), ...(body.name == null ? {} : { name: body.name }) };
    const queue = await changeQueue(services.database, caller.workspaceId, params.queue_id, change);
    return formatQueue(services, caller.workspaceId, queue);
  },
});

const deleteQueue = defineOperation({
  operationId: 'deleteAnnotationQueue',
  method: 'DELETE',
  path: '/annotation-queues/:queue_id',
  summary: 'Delete an annotation queue',
  description: 'Its runs stay.',
  access: { permission: 'annotation-queues:delete', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: QueueParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await removeQueue(services.database, caller.workspaceId, params.queue_id);
    return { message: 'Annotation queue deleted' };
  },
});

export const annotationQueueOperations = [listQueues, createQueue, getQueue, updateQueue, deleteQueue, listRunQueues];
