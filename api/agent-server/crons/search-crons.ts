import { type Static, Type } from 'typebox';
import { assistantIdOf } from '../../../pipelines/agents/assistants/system-assistant.ts';
import {
  type CronFilter,
  countCrons as count,
  cronSorts,
  searchCrons as search,
} from '../../../pipelines/agents/crons/search-crons.ts';
import { readDatabaseClock } from '../../../pipelines/agents/due-clock.ts';
import { optional } from '../../server/formats.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { Closed, Limit, Offset, SortOrder, selectFields, words } from '../agent-schema.ts';
import { cronFilter, SelectedCron, selectable } from './cron-body.ts';

const Filter = Closed(cronFilter);

function buildFilter({ assistant_id: assistant, thread_id, enabled, metadata }: Static<typeof Filter>): CronFilter {
  return {
    assistantId: assistant ? assistantIdOf(assistant) : undefined,
    threadId: thread_id ?? undefined,
    enabled: enabled ?? undefined,
    metadata: metadata ?? undefined,
  };
}

export const searchCrons = defineAgentOperation({
  operationId: 'searchCrons',
  method: 'POST',
  path: '/runs/crons/search',
  tag: 'crons',
  summary: 'Search crons, newest first',
  access: reads,
  errors: ['ANSWER_TOO_LARGE'],
  schema: {
    body: Closed({
      ...cronFilter,
      limit: Limit(),
      offset: Offset(),
      sort_by: optional(words(cronSorts)),
      sort_order: SortOrder(),
      select: optional(Type.Array(words(selectable), { description: 'Fields of the response.' })),
    }),
    response: { 200: Type.Array(SelectedCron) },
  },
  handler: async ({ body, services: { agents } }) => {
    const crons = await search(agents.database, agents.deploymentId, buildFilter(body), {
      sortBy: body.sort_by ?? 'created_at',
      sortOrder: body.sort_order ?? 'desc',
      limitRows: body.limit ?? 10,
      offsetRows: body.offset ?? 0,
      select: body.select,
      limitBytes: agents.config.maxPageBytes,
    });
    const now = body.select?.includes('now')
      ? { now: new Date(await readDatabaseClock(agents.database)).toISOString() }
      : {};
    return crons.map((cron) => selectFields({ ...cron, ...now }, body.select));
  },
});

export const countCrons = defineAgentOperation({
  operationId: 'countCrons',
  method: 'POST',
  path: '/runs/crons/count',
  tag: 'crons',
  summary: 'Count matching crons',
  access: reads,
  schema: { body: Filter, response: { 200: Type.Integer() } },
  handler: ({ body, services: { agents } }) => count(agents.database, agents.deploymentId, buildFilter(body)),
});
