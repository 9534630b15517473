import { v7 as uuidv7 } from 'uuid';
import { describe, expect, it } from 'vitest';
import { createTraceRun } from '../../../../pipelines/agents/execute/trace-run.ts';
import type { RunKwargs } from '../../../../pipelines/agents/runs/run.ts';
import type { EndedRun } from '../../../../pipelines/agents/runs/run-row.ts';
import { addOrganization, startApi } from '../../../api/start-api.ts';
import { forSuite } from '../../../for-suite.ts';
import { logger } from '../../../silent-logger.ts';
import { kwargs as defaultKwargs } from '../runs/run-rows.ts';

const api = forSuite(() => startApi({ config: { maxRunBytes: 20_000 } }));
const owner = forSuite(() => addOrganization(api.database, 'owner'));

function ended(kwargs: Partial<RunKwargs> = {}, rest: Partial<EndedRun> = {}): EndedRun {
  return {
    deploymentId: owner.id,
    threadId: uuidv7(),
    runId: uuidv7(),
    assistantId: uuidv7(),
    graphId: 'burst',
    attempt: 1,
    threadStart: 1,
    status: 'success',
    values: '{"done":1}',
    kwargs: defaultKwargs({ input: { n: 1 }, config: { tags: ['night'] }, ...kwargs }),
    metadata: { team: 'blue' },
    startedAt: new Date(Date.now() - 1_000).toISOString(),
    endedAt: new Date().toISOString(),
    removed: false,
    eventsMissing: false,
    ...rest,
  };
}

const trace = (run: EndedRun) =>
  createTraceRun({
    accept: api.services.accept,
    defaultSender: { workspaceId: owner.workspaceIds[0], userId: owner.userId, keyId: uuidv7() },
    logger,
  })(run);

async function read({ runId }: EndedRun) {
  const headers = { 'x-api-key': owner.adminKey };
  const run = (await api.server.inject({ url: `/runs/${runId}`, headers })).json();
  const project = (await api.server.inject({ url: `/sessions/${run.session_id}`, headers })).json();
  return { ...run, project: project.name };
}

describe('the trace of an ended run', () => {
  it('has the id of the run, in the project of its graph; a repeat writes the same trace', async () => {
    const run = ended();
    await trace(run);
    await trace(run);
    expect(await read(run)).toMatchObject({
      name: 'burst',
      run_type: 'chain',
      project: 'burst',
      trace_id: run.runId,
      inputs: { n: 1 },
      outputs: { done: 1 },
      tags: ['night'],
      status: 'success',
      extra: { metadata: { team: 'blue', thread_id: run.threadId, graph_id: 'burst', run_attempt: 1 } },
    });
  });

  it.each<[what: string, run: () => EndedRun, expected: object]>([
    [
      'names a project of its own',
      () => ended({ langsmith_tracer: { project_name: 'chosen' } }),
      { project: 'chosen', inputs: { n: 1 } },
    ],
    [
      'failed',
      () => ended({}, { status: 'error', error: { error: 'TypeError', message: 'no' } }),
      { status: 'error', error: 'TypeError: no' },
    ],
    [
      'has an input that is not an object',
      () => ended({ input: ['a'] }, { values: '"b"' }),
      { inputs: { input: ['a'] }, outputs: { output: 'b' } },
    ],
    [
      'is too large with its values',
      () => ended({ input: { text: 'x'.repeat(30_000) } }),
      { inputs: {}, project: 'burst' },
    ],
    [
      'names an invalid project and example',
      () => ended({ langsmith_tracer: { project_name: 'p'.repeat(600), example_id: 'none' } }),
      { inputs: {}, project: 'default' },
    ],
    [
      'was created by an authenticated user',
      () => ended({ config: { configurable: { langgraph_auth_user_id: 'ada', api_key: 'secret' } } }),
      { extra: { metadata: { langgraph_auth_user_id: 'ada' } } },
    ],
    ['has no thread', () => ended({ temporary: true }), { inputs: {}, project: 'burst' }],
  ])('is stored if the run %s', async (_what, make, expected) => {
    const run = make();
    await trace(run);
    expect(await read(run)).toMatchObject(expected);
  });
});
