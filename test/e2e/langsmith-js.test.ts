import { randomUUID } from 'node:crypto';
import { Client, RunTree } from 'langsmith';
import { traceable } from 'langsmith/traceable';
import { expect, test } from 'vitest';
import { collect } from '../api/collect.ts';
import { forSuite } from '../for-suite.ts';
import { startRunlake } from '../runlake-process.ts';

const runlake = forSuite(() => startRunlake());

const client = forSuite(() => new Client({ apiUrl: runlake.url, apiKey: runlake.apiKey }));

test('stores nested functions as one trace, with errors, tags, metadata and attachments', async () => {
  const project = `js-${randomUUID()}`;
  const picture = new Uint8Array([0, 255, 137, 80, 78, 71, 13, 10]);
  const inner = traceable(async (question: string) => ({ answer: `${question}!` }), {
    name: 'inner',
    run_type: 'tool',
    client,
    tracingEnabled: true,
    project_name: project,
    tags: ['deep'],
  });
  const outer = traceable(
    async (question: string) => {
      await inner(question);
      throw new Error('on purpose');
    },
    { name: 'outer', client, tracingEnabled: true, project_name: project, metadata: { thread_id: 'thread-1' } },
  );
  await expect(outer('why')).rejects.toThrow('on purpose');
  const runWithPicture = new RunTree({
    name: 'picture',
    run_type: 'chain',
    inputs: {},
    client,
    project_name: project,
    attachments: { photo: ['image/png', picture] },
  });
  await runWithPicture.postRun();
  await runWithPicture.end({ seen: true });
  await runWithPicture.patchRun();
  await client.awaitPendingTraceBatches();

  const runs = await collect(client.listRuns({ projectName: project }));
  const byName = Object.fromEntries(runs.map((run) => [run.name, run]));
  expect(Object.keys(byName).sort()).toEqual(['inner', 'outer', 'picture']);
  expect(byName.outer).toMatchObject({
    status: 'error',
    error: expect.stringContaining('on purpose'),
    extra: { metadata: { thread_id: 'thread-1' } },
  });
  expect(byName.inner).toMatchObject({
    status: 'success',
    parent_run_id: byName.outer?.id,
    tags: ['deep'],
    outputs: { answer: 'why!' },
  });

  const tree = await client.readRun(byName.outer?.id as string, { loadChildRuns: true });
  expect(tree.child_runs?.map((child) => child.name)).toEqual(['inner']);

  const read = await client.readRun(runWithPicture.id);
  const [url] = Object.values((read as unknown as { s3_urls: Record<string, { presigned_url: string }> }).s3_urls);
  const download = await fetch(url?.presigned_url as string);
  expect(new Uint8Array(await download.arrayBuffer())).toEqual(picture);
  expect(download.headers.get('content-type')).toBe('image/png');
});

test('lists 250 runs in pages of 100, newest first, each once', async () => {
  const project = `pages-${randomUUID()}`;
  const sent: string[] = [];
  for (let index = 0; index < 250; index++) {
    const run = new RunTree({
      name: `run ${index}`,
      run_type: 'chain',
      inputs: { index },
      client,
      project_name: project,
    });
    sent.push(run.id);
    await run.postRun();
  }
  await client.awaitPendingTraceBatches();
  const runs = await collect(client.listRuns({ projectName: project }));
  // Runs of the same millisecond have the same sort time; their order is fixed but arbitrary.
  expect(runs.map((run) => run.id).sort()).toEqual(sent.sort());
  const times = runs.map((run) => String(run.start_time));
  expect(times).toEqual([...times].sort().reverse());
});

test('handles single requests without batches: create, update, feedback, projects', async () => {
  const plain = new Client({ apiUrl: runlake.url, apiKey: runlake.apiKey, autoBatchTracing: false });
  const id = randomUUID();
  const project = `single-${randomUUID()}`;
  await plain.createRun({ id, name: 'one', run_type: 'chain', inputs: { x: 1 }, project_name: project });
  await plain.updateRun(id, { outputs: { y: 2 }, end_time: Date.now() });
  expect(await plain.readRun(id)).toMatchObject({ name: 'one', outputs: { y: 2 }, status: 'success' });

  const feedback = await plain.createFeedback(id, 'score', { score: 0.25, comment: 'meh' });
  expect(await collect(plain.listFeedback({ runIds: [id] }))).toMatchObject([
    { id: feedback.id, key: 'score', score: 0.25 },
  ]);
  await plain.updateFeedback(feedback.id, { score: 1 });
  expect(await plain.readFeedback(feedback.id)).toMatchObject({ score: 1, comment: 'meh' });
  await plain.deleteFeedback(feedback.id);
  expect(await collect(plain.listFeedback({ runIds: [id] }))).toEqual([]);

  expect(await plain.hasProject({ projectName: project })).toBe(true);
  expect(await plain.readProject({ projectName: project })).toMatchObject({ name: project });
  await plain.deleteProject({ projectName: project });
  expect(await plain.hasProject({ projectName: project })).toBe(false);
});
