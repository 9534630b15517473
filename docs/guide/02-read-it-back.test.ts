// # 2. Read it back
//
// What was sent comes back as it was: `inputs`, `outputs`, `extra`, `events` and `error` byte for byte, and posts and patches
// merged by a rule that no order of arrival can upset.

import { randomUUID } from 'node:crypto';
import { Client, RunTree } from 'langsmith';
import type { Run } from 'langsmith/schemas';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RunlakeProcess, startRunlake } from '../../test/runlake-process.ts';

let runlake: RunlakeProcess;
let client: Client;
let root: RunTree;

beforeAll(async () => {
  runlake = await startRunlake();
  client = new Client({ apiUrl: runlake.url, apiKey: runlake.apiKey });

  // A trace of two runs: a chain, and in it a model call that says how many tokens it used.
  root = new RunTree({ name: 'answer', inputs: { question: 'Why?' }, project_name: 'guide', client });
  await root.postRun();
  const model = root.createChild({ name: 'ask model', run_type: 'llm', inputs: { question: 'Why?' } });
  await model.postRun();
  await model.end({ text: 'Because.', usage_metadata: { input_tokens: 7, output_tokens: 3, total_tokens: 10 } });
  await model.patchRun();
  await root.end({ text: 'Because.' });
  await root.patchRun();
  await client.awaitPendingTraceBatches();
});
afterAll(() => runlake?.remove());

const ask = (method: string, path: string, body?: string) =>
  fetch(`${runlake.url}/api/v1${path}`, {
    method,
    headers: { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' },
    ...(body !== undefined && { body }),
  });

describe('with the langsmith SDK', () => {
  it('lists the runs of a project, newest first', async () => {
    const runs: Run[] = [];
    for await (const run of client.listRuns({ projectName: 'guide' })) runs.push(run);
    expect(runs.map(({ name }) => name)).toEqual(['ask model', 'answer']);
    expect(runs[0]).toMatchObject({ total_tokens: 10, prompt_tokens: 7, completion_tokens: 3, parent_run_id: root.id });
  });

  it('reads one run by its id', async () => {
    expect(await client.readRun(root.id)).toMatchObject({
      name: 'answer',
      status: 'success',
      outputs: { text: 'Because.' },
    });
  });
});

describe('over plain HTTP', () => {
  it('narrows by trace, parent, type, root, error and time, and goes on with a cursor', async () => {
    const first = await ask('POST', '/runs/query', JSON.stringify({ trace: root.id, limit: 1, select: ['name'] }));
    const { runs, cursors } = (await first.json()) as { runs: Run[]; cursors: { next: string | null } };
    expect(runs.map(({ name }) => name)).toEqual(['ask model']);

    // There is more as long as `cursors.next` is not null. Runs that arrive meanwhile move no page.
    const next = await ask('POST', '/runs/query', JSON.stringify({ trace: root.id, limit: 1, cursor: cursors.next }));
    expect(await next.json()).toMatchObject({ runs: [{ name: 'answer' }] });
  });

  it('refuses what it does not have yet, instead of ignoring it', async () => {
    const answer = await ask('POST', '/runs/query', JSON.stringify({ filter: 'eq(name, "answer")' }));
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ code: 'PARAMETER_NOT_SUPPORTED' });
  });

  it('gives JSON back as it came', async () => {
    // Numbers that JavaScript would round, repeated white space, keys that programs stumble over.
    const inputs = '{"n": 12345678901234567890,  "__proto__": {"x": "\\ud800"}}';
    const id = randomUUID();
    await ask('POST', '/runs', `{"id": "${id}", "name": "exact", "run_type": "tool", "inputs": ${inputs}}`);
    const answer = await ask('GET', `/runs/${id}`);
    expect(await answer.text()).toContain(`"inputs":${inputs}`);
  });
});

describe('posts and patches', () => {
  it('merge in any order: what a patch says of a field wins', async () => {
    const id = randomUUID();
    const startTime = new Date();
    const place = {
      trace_id: id,
      // Start time and id of each run from the root down to this one. SDKs send it always; it is the key of the run.
      dotted_order: `${startTime.toISOString().replace(/[-:.]/g, '').replace('Z', '000Z')}${id}`,
    };
    // The patch comes first ...
    const patch = { ...place, outputs: { late: false }, session_name: 'guide' };
    expect((await ask('PATCH', `/runs/${id}`, JSON.stringify(patch))).status).toBe(202);
    // ... and a post that comes later takes nothing back.
    const post = { ...place, id, name: 'merged', run_type: 'chain', inputs: {}, outputs: { late: true } };
    expect((await ask('POST', '/runs', JSON.stringify({ ...post, session_name: 'guide' }))).status).toBe(202);

    expect(await (await ask('GET', `/runs/${id}`)).json()).toMatchObject({ name: 'merged', outputs: { late: false } });
  });

  it('stay in one project: that of the first event of the trace', async () => {
    const id = randomUUID();
    await ask('POST', '/runs', JSON.stringify({ id, name: 'first', run_type: 'chain', session_name: 'guide' }));
    await ask('PATCH', `/runs/${id}`, JSON.stringify({ outputs: {}, session_name: 'another' }));
    const { session_id: found } = (await (await ask('GET', `/runs/${id}`)).json()) as Run;
    expect(found).toBe((await client.readProject({ projectName: 'guide' })).id);
  });
});
