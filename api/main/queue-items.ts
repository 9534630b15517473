import { Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { formatTimeWithZone } from '../../pipelines/ingest/run-event/times.ts';
import { readQueue } from '../../pipelines/queues/queue.ts';
import { findItemPosition, listItems, takePage, writeCursor } from '../../pipelines/queues/queue-items.ts';
import {
  deleteQueueRuns,
  type NewQueueRun,
  readReview,
  type Section,
  sections,
  setReview,
  updateQueueRun,
} from '../../pipelines/queues/queue-runs.ts';
import type { QueueItem } from '../../pipelines/queues/read-queue-runs.ts';
import type { ThreadKey } from '../../pipelines/runs/threads.ts';
import { nullable, OneOf, optional, parseOptionalTime, Text, Timestamp, Uuid } from '../server/formats.ts';
import { cursorParameter } from '../server/list-parameters.ts';
import { defineOperation } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { QueueParams } from './annotation-queues.ts';
import { addRuns, extendParameter, ReviewBody, toReview } from './queue-runs.ts';
import { PageResponse } from './v2-runs.ts';

/** Runs and threads of annotation queues as items, the form that clients use from 0.12 on. */

const maxItems = 1_000;
const path = '/v1/platform/annotation-queues';
const ItemParams = Type.Object({ ...QueueParams.properties, item_id: Uuid() });

/** Names of the sections of a queue in requests and responses. */
const statuses = ['needs_my_review', 'needs_others_review', 'archived'] as const;
const toSection = (status: string): Section => (status === 'archived' ? 'completed' : (status as Section));
const toStatus = (section: Section): (typeof statuses)[number] => (section === 'completed' ? 'archived' : section);

const itemTypes = ['RUN', 'THREAD'] as const;

const ItemFields = {
  id: Uuid({ description: 'Id of the run in the queue.' }),
  queue_id: Uuid(),
  item_type: OneOf(itemTypes),
  run_id: nullable(Uuid()),
  thread_id: nullable(Type.String()),
  project_id: Uuid(),
  start_time: nullable(Timestamp({ description: 'Start time of the run; null for a thread.' })),
  added_at: Timestamp(),
  last_reviewed_time: nullable(Timestamp()),
  source_proposed_example_id: nullable(Uuid()),
};
const Item = Type.Object(ItemFields);
const ListedItem = Type.Object({
  ...ItemFields,
  effective_added_at: Timestamp({ description: 'Position in the queue of the user of the key.' }),
  completed_by: Type.Array(Uuid()),
  reserved_by: Type.Array(Uuid()),
});

const RunTimes = {
  min_start_time: optional(Timestamp({ description: 'Start of the run, inclusive.' })),
  max_start_time: optional(Timestamp({ description: 'Start of the run, inclusive.' })),
};

/** Clients send the zero time for no bound. */
const zeroTimeMicros = parseOptionalTime('0001-01-01T00:00:00Z');

function parseBound(text: string | null | undefined): number | undefined {
  const micros = parseOptionalTime(text);
  return micros === zeroTimeMicros ? undefined : micros;
}

const addMicro = (micros: number | undefined) => (micros === undefined ? undefined : micros + 1);

const parseRunTimes = (times: { min_start_time?: string | null; max_start_time?: string | null }) => ({
  startedFromMicros: parseBound(times.min_start_time),
  startedBeforeMicros: addMicro(parseBound(times.max_start_time)),
});

const toItemType = ({ location }: QueueItem) => (location === undefined ? ('THREAD' as const) : ('RUN' as const));

function formatItem(queueId: string, item: QueueItem) {
  const { queue_run_id, location, position: _position, section: _section, project_id, ...rest } = item;
  return {
    id: queue_run_id,
    queue_id: queueId,
    item_type: toItemType(item),
    project_id: location?.projectId ?? project_id ?? '',
    start_time: location === undefined ? null : formatTimeWithZone(location.startTimeMicros),
    ...rest,
  };
}

const readOperation = {
  errorStyle: 'error',
  method: 'GET',
  access: { permission: 'annotation-queues:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'BAD_REQUEST', ...clickhouseErrors],
} as const;
const changeOperation = {
  errorStyle: 'error',
  access: { permission: 'annotation-queues:update', tenantScope: 'workspace' },
} as const;

interface ItemToAdd {
  readonly item_type?: (typeof itemTypes)[number] | null;
  readonly run_id?: string | null;
  readonly thread_id?: string | null;
  readonly project_id?: string | null;
  readonly session_id?: string | null;
  readonly source_proposed_example_id?: string | null;
}

/** @throws BAD_REQUEST */
function parseItems(items: readonly ItemToAdd[]): { runs: NewQueueRun[]; threads: ThreadKey[] } {
  const runs: NewQueueRun[] = [];
  const threads: ThreadKey[] = [];
  for (const [index, item] of items.entries()) {
    const { item_type, run_id: runId, thread_id: threadId, source_proposed_example_id: sourceProposedExampleId } = item;
    const projectId = item.project_id ?? item.session_id;
    const isThread = (item_type ?? (runId ? 'RUN' : 'THREAD')) === 'THREAD';
    if (!isThread && runId && !threadId) runs.push({ runId: runId.toLowerCase(), sourceProposedExampleId });
    else if (isThread && threadId && projectId && !runId)
      threads.push({ threadId, projectId: projectId.toLowerCase() });
    else {
      const needs = isThread ? '`thread_id` and `project_id`, and no `run_id`' : '`run_id`, and no `thread_id`';
      throw runlakeError('BAD_REQUEST', { reason: `Item ${index} needs ${needs}.` });
    }
  }
  return { runs, threads };
}

const createItems = defineOperation({
  ...changeOperation,
  operationId: 'createAnnotationQueueItems',
  method: 'POST',
  path: `${path}/:queue_id/items`,
  summary: 'Add runs and threads to an annotation queue as items',
  description:
    'All or none. Items that are in the queue stay as they are. An item has a `run_id`, or a `thread_id` and the `project_id` of the thread.',
  errors: ['NOT_FOUND', 'BAD_REQUEST', 'QUEUE_FULL', 'NOT_STORED_YET', 'KAFKA_UNAVAILABLE', ...clickhouseErrors],
  schema: {
    params: QueueParams,
    query: Type.Object({ extend_trace_retention: extendParameter }),
    body: Type.Object({
      items: Type.Array(
        Type.Object({
          item_type: optional(OneOf(itemTypes)),
          run_id: optional(Uuid()),
          thread_id: optional(Text({ minLength: 1, maxLength: 1_000 })),
          project_id: optional(Uuid({ description: 'Of a thread; the id of a run suffices.' })),
          session_id: optional(Uuid({ description: 'Same as `project_id`.' })),
          start_time: optional(Timestamp()),
          source_proposed_example_id: optional(Uuid()),
        }),
        { minItems: 1, maxItems },
      ),
    }),
    response: { 200: Type.Object({ items: Type.Array(Item) }) },
  },
  handler: async ({ caller, params, query, body, services }) => {
    const { queue_id: queueId } = params;
    const { runs, threads } = parseItems(body.items);
    const keepsTraces = query.extend_trace_retention;
    const added = await addRuns(services, caller, queueId, { runs, threads, keepsTraces });
    const addedIds = new Set(added.map(({ id }) => id));
    const items = await listItems(services, caller, queueId, sections);
    return { items: items.filter((item) => addedIds.has(item.queue_run_id)).map((item) => formatItem(queueId, item)) };
  },
});

/** Filters by the agreement of reviewers. */
const reviewerFilters = ['agreement', 'has_unresolved_keys'];

const listQueueItems = defineOperation({
  ...readOperation,
  operationId: 'listAnnotationQueueItems',
  path: `${path}/:queue_id/items`,
  summary: 'List the items of an annotation queue, page by page',
  description:
    'Oldest first, without the content of the runs. Deleted and expired runs are left out; a thread stays until it is removed or its project is deleted.',
  unsupported: { query: reviewerFilters },
  schema: {
    params: QueueParams,
    query: Type.Object({
      status: OneOf(statuses, { description: '`archived`: as many users as the queue asks for have completed it.' }),
      item_type: Type.Optional(OneOf(itemTypes)),
      direction: Type.Optional(OneOf(['forward', 'backward'], { description: '`backward`: items before the cursor.' })),
      ...RunTimes,
      page_size: Type.Integer({ minimum: 1, maximum: 100, default: 20 }),
      cursor: cursorParameter,
    }),
    response: { 200: PageResponse(ListedItem) },
  },
  handler: async ({ caller, params, query, services }) => {
    const { queue_id: queueId } = params;
    await readQueue(services.database, caller.workspaceId, queueId);
    const items = await listItems(services, caller, queueId, [toSection(query.status)], parseRunTimes(query));
    const ofType = items.filter((item) => (query.item_type ?? toItemType(item)) === toItemType(item));
    const { page, next } = takePage(ofType, {
      limit: query.page_size,
      cursor: query.cursor || undefined,
      backward: query.direction === 'backward',
    });
    return { items: page.map((item) => formatItem(queueId, item)), next_cursor: next, has_more: next !== null };
  },
});

const countItems = defineOperation({
  ...readOperation,
  operationId: 'countAnnotationQueueItems',
  path: `${path}/:queue_id/items/count`,
  summary: 'Count the items of an annotation queue',
  unsupported: { query: reviewerFilters },
  schema: {
    params: QueueParams,
    query: Type.Object({
      status: OneOf([...statuses, 'active', 'all'], { description: '`active`: not archived.' }),
      ...RunTimes,
      start_time: optional(Timestamp({ description: 'Last review, exclusive. Only for `archived`.' })),
      end_time: optional(Timestamp({ description: 'Last review, exclusive. Only for `archived`.' })),
    }),
    response: { 200: Type.Object({ count: Type.Integer() }) },
  },
  handler: async ({ caller, params, query, services }) => {
    await readQueue(services.database, caller.workspaceId, params.queue_id);
    const { status } = query;
    const requestedSections =
      status === 'all'
        ? sections
        : status === 'active'
          ? sections.filter((one) => one !== 'completed')
          : [toSection(status)];
    const times = {
      ...parseRunTimes(query),
      ...(status === 'archived' && {
        reviewedFromMicros: addMicro(parseBound(query.start_time)),
        reviewedBeforeMicros: parseBound(query.end_time),
      }),
    };
    return { count: (await listItems(services, caller, params.queue_id, requestedSections, times)).length };
  },
});

const getPlacement = defineOperation({
  ...readOperation,
  operationId: 'getAnnotationQueueItemPlacement',
  path: `${path}/:queue_id/items/:item_id/placement`,
  summary: 'Find an item in its annotation queue',
  description: '`cursor` is valid for the list of its section without times; the page after it begins behind the item.',
  schema: {
    params: ItemParams,
    response: {
      200: Type.Object({
        item_type: OneOf(itemTypes),
        section: OneOf(statuses),
        position: Type.Integer({ description: 'From 0.' }),
        cursor: Type.String(),
      }),
    },
  },
  handler: async ({ caller, params, services }) => {
    const { section, position, item } = await findItemPosition(
      services,
      caller,
      params.queue_id,
      params.item_id.toLowerCase(),
      { among: 'items' },
    );
    return { item_type: toItemType(item), section: toStatus(section), position, cursor: writeCursor(item) };
  },
});

const updateItem = defineOperation({
  ...changeOperation,
  operationId: 'updateAnnotationQueueItem',
  method: 'PATCH',
  path: `${path}/:queue_id/items/:item_id`,
  summary: 'Change the times of an item of an annotation queue',
  description: 'Absent and null fields stay unchanged.',
  errors: ['NOT_FOUND', ...clickhouseErrors],
  schema: {
    params: ItemParams,
    body: Type.Object({ added_at: optional(Timestamp()), last_reviewed_time: optional(Timestamp()) }),
    response: { 200: Item },
  },
  handler: async ({ caller, params, body, services }) => {
    const row = { queueId: params.queue_id, queueRunId: params.item_id.toLowerCase() };
    const change = { addedAt: body.added_at, lastReviewedTime: body.last_reviewed_time };
    await updateQueueRun(services.database, caller.workspaceId, row, change);
    const items = await listItems(services, caller, row.queueId, sections);
    const item = items.find(({ queue_run_id }) => queue_run_id === row.queueRunId);
    if (item === undefined) throw runlakeError('NOT_FOUND', { what: 'Run of the queue' });
    return formatItem(row.queueId, item);
  },
});

const deleteItems = defineOperation({
  ...changeOperation,
  operationId: 'deleteAnnotationQueueItems',
  method: 'POST',
  path: `${path}/:queue_id/items/delete`,
  summary: 'Remove items from an annotation queue',
  errors: ['NOT_FOUND'],
  schema: {
    params: QueueParams,
    body: Type.Object({ item_ids: Type.Array(Uuid(), { minItems: 1, maxItems }) }),
    response: { 200: Type.Object({ message: Type.String() }) },
  },
  handler: async ({ caller, params, body, services }) => {
    await deleteQueueRuns(services.database, caller.workspaceId, params.queue_id, { only: body.item_ids });
    return { message: 'Items removed from the queue' };
  },
});

const itemStatuses = ['viewed', 'completed'] as const;

const setItemStatus = defineOperation({
  ...changeOperation,
  operationId: 'setAnnotationQueueItemStatus',
  method: 'POST',
  path: `${path}/items/:queue_item_id/status`,
  summary: 'Reserve or complete an item of an annotation queue, for the user of the key',
  description:
    '`viewed` reserves it, as `in_progress` of `POST /annotation-queues/status/{id}`. Null withdraws the review.',
  errors: ['NOT_FOUND', 'RUN_RESERVED', 'REVIEWER_NOT_ASSIGNED'],
  schema: {
    params: Type.Object({ queue_item_id: Uuid() }),
    body: ReviewBody,
    response: {
      200: Type.Object({
        queue_item_id: Uuid(),
        status: nullable(OneOf(itemStatuses)),
        override_added_at: nullable(Timestamp()),
        is_archived: Type.Boolean(),
      }),
    },
  },
  handler: async ({ caller, params, body, services }) => {
    const { queue_item_id: id } = params;
    await setReview(services.database, caller, id, toReview(body));
    const review = await readReview(services.database, caller, id);
    return { queue_item_id: id, ...review };
  },
});

export const queueItemOperations = [
  createItems,
  listQueueItems,
  countItems,
  getPlacement,
  updateItem,
  deleteItems,
  setItemStatus,
];
