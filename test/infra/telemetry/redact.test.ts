import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { beforeAll, expect, it } from 'vitest';
import { isSecretName, scrubText } from '../../../infra/telemetry/logger.ts';

const root = fileURLToPath(new URL('../../../', import.meta.url));

/**
 * Log calls with the secret `hunter2-hunter2` at different positions, each with the text that must remain in the line.
 */
const calls: readonly (readonly [name: string, code: string, remaining?: string])[] = [
  ['an API key in a field', `logger.info({ apiKey: secret }, 'm')`],
  ['an API key in headers', `logger.info({ headers: { 'X-Api-Key': secret, host: 'h' } }, 'm')`, '"host":"h"'],
  ['Authorization in headers', `logger.info({ request: { headers: { Authorization: 'Bearer ' + secret } } }, 'm')`],
  ['cookies', `logger.info({ headers: { 'set-cookie': [secret], cookie: secret } }, 'm')`],
  ['a field five levels deep', `logger.info({ a: { b: { c: { d: { password: secret } } } } }, 'm')`],
  ['a field in a list', `logger.info({ keys: [{ key: secret }, { secret_key: secret }] }, 'm')`],
  ['SASL options of kafkajs', `logger.info({ sasl: { mechanism: 'plain', username: 'u', password: secret } }, 'm')`],
  [
    'S3 credentials',
    `logger.info({ destination: { secretAccessKey: secret, sessionToken: secret, bucket: 'b' } }, 'm')`,
    '"bucket":"b"',
  ],
  ['a secret that is no text', `logger.info({ credentials: { any: [secret] }, password: Buffer.from(secret) }, 'm')`],
  [
    'a password in an address',
    `logger.info({ url: 'postgres://me:' + secret + '@db:5432/x?a=b' }, 'm')`,
    'postgres://***@db:5432/x?a=b',
  ],
  [
    'a password with @ in an address',
    `logger.info({ url: 'redis://:p@' + secret + '@cache:6379/0' }, 'm')`,
    'redis://***@cache:6379/0',
  ],
  [
    'an address in the message',
    `logger.info('cannot reach http://me:' + secret + '@ch:8123/x')`,
    'http://***@ch:8123/x',
  ],
  ['an argument of the message', `logger.info('cannot reach %s', 'http://me:' + secret + '@ch/')`, 'http://***@ch/'],
  ['a bearer token in the message', `logger.info('sent Authorization: Bearer ' + secret + ' to it')`, 'to it'],
  ['an API key in the message', `logger.info('the key rlk_' + secret + ' is unknown')`, 'the key rlk_*** is unknown'],
  [
    'an error',
    `logger.error({ err: new Error('connect to postgres://me:' + secret + '@db/ failed') }, 'm')`,
    'postgres://***@db/',
  ],
  ['an error alone', `logger.error(new Error('password=' + secret + ', user=me'))`],
  ['a cause', `logger.error({ err: new Error('x', { cause: new Error('sasl.password: ' + secret) }) }, 'm')`],
  [
    'a cause of a cause',
    `logger.error({ err: new Error('x', { cause: new Error('y', { cause: new Error('api_key=' + secret) }) }) }, 'm')`,
  ],
  [
    'the text of an error of the catalogue',
    `logger.error({ err: runlakeError('BAD_REQUEST', { reason: 'secret=' + secret }) }, 'm')`,
    '"code":"BAD_REQUEST"',
  ],
  ['an error under another name', `logger.warn({ reason: new Error('password: ' + secret), n: 1 }, 'm')`, '"n":1'],
  ['an error in a list', `logger.warn({ failures: [new Error('password: ' + secret)] }, 'm')`],
  [
    'properties of an error',
    `logger.error({ err: Object.assign(new Error('x'), { config: { password: secret } }) }, 'm')`,
    '"message":"x"',
  ],
  ['what is thrown and no error', `logger.error({ err: 'password=' + secret }, 'm')`],
  ['a JSON text', `logger.info({ body: JSON.stringify({ user: 'me', password: secret }) }, 'm')`],
  ['a query string', `logger.info({ path: '/x?access_token=' + secret + '&page=2' }, 'm')`, '&page=2'],
  [
    'a child',
    `logger.child({ authorization: secret, part: 'p' }).child({ token: secret }).info({ secret }, 'm')`,
    '"part":"p"',
  ],
  ['line breaks', `logger.info({ text: 'a\\nb' }, 'one\\ntwo\\r\\nthree ' + 'password=' + secret)`, 'one\\ntwo'],
  ['a circular structure', `const circle = { password: secret }; circle.self = circle; logger.info(circle, 'm')`],
];

let lines: readonly string[];
beforeAll(() => {
  const program = `
    import { createLogger } from './infra/telemetry/logger.ts';
    import { runlakeError } from './infra/errors/runlake-error.ts';
    const logger = createLogger('debug', 'test');
    const secret = 'hunter2-hunter2';
    ${calls.map(([, code]) => `{ ${code} }`).join('\n')}`;
  const ended = spawnSync(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', program], { cwd: root });
  lines = ended.stderr.toString().trimEnd().split('\n');
});

it('writes every event as one line of JSON', () => {
  expect(lines.map((line) => Object.keys(JSON.parse(line)).includes('msg'))).toEqual(calls.map(() => true));
});

it.each(calls.map(([name, code, remaining], index) => ({ name, code, remaining, index })))(
  '$name',
  ({ index, remaining }) => {
    expect(lines[index]).not.toContain('hunter2');
    expect(lines[index]).toContain(remaining ?? '***');
  },
);

it.each([
  ['password', true],
  ['RUNLAKE_SECRET_KEY', true],
  ['x-api-key', true],
  ['saslPassword', true],
  ['key', true],
  ['prompt_tokens', false],
  ['keyId', false],
  ['partition', false],
  ['monkey', false],
])('%s is a secret: %s', (name, secret) => {
  expect(isSecretName(name)).toBe(secret);
});

it.each([
  'https://example.com/a@b',
  'see http://localhost:1984/docs?x=user@example.com',
  'the insert of run-events 3:100-200 took 20 ms',
  'RUNLAKE_SECRET_KEY is required where both stores have addresses',
  'admin@runlake.local signed in',
])('does not change %s', (text) => {
  expect(scrubText(text)).toBe(text);
});

it.each(['a', 'a-', 'secret', 'password="', 'http://a:', '://', '\\"', 'bearer ', ' ='])(
  'takes linear time for long texts of %j, which untrusted code can write',
  (part) => {
    const text = part.repeat(200_000 / part.length);
    const startMs = performance.now();
    scrubText(text);
    expect(performance.now() - startMs).toBeLessThan(3_000);
  },
);
