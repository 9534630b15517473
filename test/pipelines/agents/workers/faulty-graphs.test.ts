import { expect, onTestFinished, test } from 'vitest';
import { openPoolUnderTest } from '../../../agents/pool-under-test.ts';

test('reports each graph that cannot be loaded, and serves the others', async () => {
  const under = await openPoolUnderTest('faulty');
  onTestFinished(() => under.close());
  expect(Object.fromEntries(under.pool.loadErrors)).toEqual({
    throwing: expect.stringContaining('Error: fails while it is imported, on purpose'),
    ending: expect.stringContaining('its module ended the process while it was imported: it ended with code 5'),
    missing: expect.stringContaining('none.js cannot be loaded'),
    unnamed: expect.stringContaining("the export 'nothing'"),
    number: expect.stringContaining("the export 'number'"),
    python: expect.stringContaining('graph.py is Python'),
  });
  expect(await under.values('good')).toEqual({ seen: 'from the file' });
  expect((await under.run('throwing')).outcome).toMatchObject({ kind: 'failed', error: 'GraphUnusable' });
  // A restarted process does not import the module that ended the previous process, and still reports the cause.
  const { outcome } = await under.run('ending');
  expect(outcome).toMatchObject({ kind: 'failed', message: expect.stringContaining('ended with code 5') });
  const ask = (graphId: string) => under.pool.query({ kind: 'schemas', graphId, config: {} });
  await expect(ask('number')).rejects.toMatchObject({ code: 'GRAPH_UNUSABLE', status: 422 });
  await expect(ask('nowhere')).rejects.toMatchObject({ code: 'GRAPH_NOT_FOUND' });
});
