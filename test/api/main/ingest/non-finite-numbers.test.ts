import { describe, expect, test } from 'vitest';
import { buildPostParts, multipart, rootRun, shareWire } from './wire.ts';

const { wire } = shareWire();

describe('numbers that only Python writes are read as null', () => {
  const text = '{"score": NaN, "text": "NaN", "bounds": [-Infinity, Infinity]}';
  const expected = { score: null, text: 'NaN', bounds: [null, null] };
  const readOutputs = async (id: string) => {
    const { text: run } = await wire.send('GET', `/runs/${id}`);
    return (JSON.parse(run) as { outputs: unknown }).outputs;
  };

  test('in a field of a multipart body', async () => {
    const run = rootRun();
    const { status, text: answer } = await wire.multipart(
      multipart([...buildPostParts(run), [`post.${run.id}.outputs`, text]]),
    );
    expect([status, answer]).toEqual([202, '{}']);
    expect(await readOutputs(run.id)).toEqual(expected);
  });

  test.each(['/runs', '/runs/batch'])('in a body of %s', async (path) => {
    const run = rootRun({ outputs: 0 });
    const body = JSON.stringify(path === '/runs' ? run : { post: [run] }).replace('"outputs":0', `"outputs":${text}`);
    const answer = await wire.send('POST', path, body, { 'content-type': 'application/json' });
    expect([answer.status, answer.text]).toEqual([202, '{}']);
    expect(await readOutputs(run.id)).toEqual(expected);
  });
});
