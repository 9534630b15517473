import { Type } from 'typebox';
import { listRuns as list, shownRun } from '../../../pipelines/agents/runs/read-run.ts';
import { type Run, runStatuses } from '../../../pipelines/agents/runs/run.ts';
import { readThread } from '../../../pipelines/agents/threads/thread.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { selectFields, words } from '../agent-schema.ts';
import { runFields, SelectedRun } from './run-body.ts';
import { ThreadParams } from './run-paths.ts';

export const listRuns = defineAgentOperation({
  operationId: 'listRuns',
  method: 'GET',
  path: '/threads/:thread_id/runs',
  tag: 'thread runs',
  summary: 'List the runs of a thread, newest first',
  access: reads,
  errors: ['THREAD_NOT_FOUND', 'ANSWER_TOO_LARGE'],
  schema: {
    params: ThreadParams,
    query: Type.Object({
      limit: Type.Integer({ minimum: 1, maximum: 1_000, default: 10 }),
      offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
      status: Type.Optional(words(runStatuses)),
      select: Type.Optional(Type.Array(words(runFields))),
    }),
    response: { 200: Type.Array(SelectedRun) },
  },
  handler: async ({ params, query, services: { agents } }) => {
    const { database, deploymentId, config } = agents;
    const { limit, offset, status, select } = query;
    const { thread_id: threadId } = await readThread(database, deploymentId, params.thread_id);
    const wanted = select?.includes('langsmith_session_name') ? [...select, 'kwargs'] : select;
    const page = { limit, offset, ...(status && { status }), select: wanted as (keyof Run)[] | undefined };
    const rows = await list(database, deploymentId, threadId, { ...page, limitBytes: config.maxPageBytes });
    return rows.map((run) => selectFields(run.kwargs ? shownRun(run) : run, select));
  },
});
