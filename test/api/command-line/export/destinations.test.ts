import { PassThrough } from 'node:stream';
import { expect, it } from 'vitest';
import { readCredentials } from '../../../../api/command-line/export/destinations.ts';

const keys = { access_key_id: 'some-id', secret_access_key: 'some-secret' };

it.each([
  [true, [expect.stringContaining('"secret_access_key"')]],
  [false, []],
])('prompts on a terminal (%j) but not for a pipe', async (isTTY, prompt) => {
  const prompted: string[] = [];
  const input = Object.assign(new PassThrough(), { isTTY });
  input.end(JSON.stringify(keys));
  expect(await readCredentials(input, (line) => prompted.push(line))).toEqual(keys);
  expect(prompted).toEqual(prompt);
});

it.each(['', 'some-secret', '{"secret_access_key": "some-secret"'])(
  'does not repeat input that is not JSON: %j',
  async (text) => {
    const input = new PassThrough();
    input.end(text);
    const error: Error = await readCredentials(input, () => undefined).catch((thrown) => thrown);
    expect(error).toMatchObject({ code: 'BAD_REQUEST' });
    expect(JSON.stringify([error.message, error.stack, error.cause])).not.toContain('some-secret');
  },
);
