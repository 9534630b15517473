import { PassThrough, Readable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { readChunks } from '../../../infra/clickhouse/connection.ts';

/** Reads a body; yields to the event loop after each chunk, and fails at the end if `failure` is set. */
async function read(stream: Readable): Promise<{ text: string; failure?: unknown }> {
  let text = '';
  try {
    for await (const chunk of readChunks(stream)) {
      text += chunk;
      await turn();
    }
    return { text };
  } catch (failure) {
    return { text, failure };
  }
}

describe('chunksOf', () => {
  it('yields a whole body', async () => {
    expect(await read(Readable.from([Buffer.from('a'), Buffer.from('b')]))).toEqual({ text: 'ab' });
    expect(await read(Readable.from([]))).toEqual({ text: '' });
  });

  it('yields more chunks than its buffer holds, in order', async () => {
    const parts = Array.from({ length: 64 }, (_, n) => Buffer.alloc(128 * 1024, n % 10 === 0 ? 'x' : 'y'));
    const { text } = await read(Readable.from(parts));
    expect(text).toBe(Buffer.concat(parts).toString());
  });

  it('yields the chunks before a failure, then throws it, for slow readers too', async () => {
    const stream = new PassThrough();
    const failure = new Error('broken off');
    const reading = read(stream);
    for (const character of 'abc') stream.write(character);
    await turn();
    stream.destroy(failure);
    expect(await reading).toEqual({ text: 'abc', failure });
  });

  it.each<[string, Error | undefined]>([
    ['failed', new Error('broken off')],
    ['was closed', undefined],
  ])('does not wait for a body that %s before it was read', async (_, reason) => {
    const stream = new PassThrough();
    stream.on('error', () => {});
    const closed = new Promise((resolve) => stream.once('close', resolve));
    stream.destroy(reason);
    await closed;
    expect((await read(stream)).failure).toEqual(reason ?? expect.objectContaining({ code: expect.any(String) }));
  });

  it('throws if the body is closed before its end', async () => {
    const stream = new PassThrough();
    const reading = read(stream);
    stream.write('a');
    await turn();
    stream.destroy();
    expect(await reading).toEqual({ text: 'a', failure: expect.any(Error) });
  });
});
