import { PassThrough } from 'node:stream';
import { expect, it } from 'vitest';
import { readCredentials } from '../../../../api/command-line/export/read-credentials.ts';

const keys = { access_key_id: 'some-id', secret_access_key: 'some-secret' };

it.each([
  [true, [expect.stringContaining('"secret_access_key"')]],
  [false, []],
])('tells a person at a terminal (%j) what to type, and a pipe nothing', async (isTTY, told) => {
  const said: string[] = [];
  const input = Object.assign(new PassThrough(), { isTTY });
  input.end(JSON.stringify(keys));
  expect(await readCredentials(input, (line) => said.push(line))).toEqual(keys);
  expect(said).toEqual(told);
});

it.each(['', 'some-secret', '{"secret_access_key": "some-secret"'])(
  'repeats nothing of what is no JSON: %j',
  async (text) => {
    const input = new PassThrough();
    input.end(text);
    const error: Error = await readCredentials(input, () => undefined).catch((thrown) => thrown);
    expect(error).toMatchObject({ code: 'BAD_REQUEST' });
    expect(JSON.stringify([error.message, error.stack, error.cause])).not.toContain('some-secret');
  },
);
