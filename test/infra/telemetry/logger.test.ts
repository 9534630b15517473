import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const root = fileURLToPath(new URL('../../../', import.meta.url));

/**
 * Runs `code`, which can use `logger` and `runlakeError`, in a separate process, because the log writes directly to
 * standard error.
 */
function logOf(code: string): { text: string; line: Record<string, unknown> } {
  const program = `
    import { createLogger } from './infra/telemetry/logger.ts';
    import { runlakeError } from './infra/errors/runlake-error.ts';
    const logger = createLogger('debug', 'test');
    ${code}`;
  const ended = spawnSync(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', program], { cwd: root });
  const text = ended.stderr.toString();
  expect(ended.stdout.toString()).toBe('');
  return { text, line: JSON.parse(text) as Record<string, unknown> };
}

test('replaces secrets at every nesting level', () => {
  const names = [
    'authorization',
    'x-api-key',
    'password',
    'apiKey',
    'api_key',
    'key',
    'secret',
    'credentials',
    'cookie',
  ];
  const secrets = JSON.stringify(Object.fromEntries(names.map((name) => [name, 'hunter2'])));
  const { text, line } = logOf(
    `logger.info({ ...${secrets}, a: ${secrets}, b: { c: ${secrets} }, plain: 1 }, 'event')`,
  );
  expect(text).not.toContain('hunter2');
  expect(line).toMatchObject({ role: 'test', msg: 'event', plain: 1, password: '***', a: { key: '***' } });
  expect(line).toMatchObject({ b: { c: { 'x-api-key': '***' } } });
});

test('writes readable text to a terminal', () => {
  const code = `const { createLogger } = await import('./infra/telemetry/logger.ts');
    createLogger('info', 'api').warn({ topic: 'run-events', password: 'hunter2' }, 'a record was refused');`;
  // `script` runs the program in a terminal and copies its output to standard output.
  const program = `${process.execPath} --import tsx --input-type=module -e '${code.replaceAll("'", `'\\''`)}'`;
  const ended = spawnSync('script', ['-qec', program, '/dev/null'], {
    cwd: root,
    env: { ...process.env, NO_COLOR: '1' },
  });
  const text = ended.stdout.toString().trim();
  expect(text).toMatch(
    /^\[\d\d:\d\d:\d\d\.\d{3}\] WARN: api: a record was refused \{"topic":"run-events","password":"\*\*\*"\}$/,
  );
});

test.each([
  ['single quotes', `"Cannot parse 'hunter2' here"`, "Cannot parse '…' here"],
  ['double quotes', `'before: "hunter2", after'`, 'before: "…", after'],
  ['backticks', `'column \\x60hunter2\\x60 is'`, 'column `…` is'],
  ['an escaped quote', String.raw`"at 'a\\'hunter2' end"`, "at '…' end"],
  ['a quote that nothing closes', `"at 'hunter2"`, "at '…'"],
  ['more than 200 characters', `'x'.repeat(200) + 'hunter2'`, 'x'.repeat(200)],
])('a cause is logged with name, code and the beginning of its text: %s', (_name, message, kept) => {
  const { text, line } = logOf(`
    const cause = Object.assign(new TypeError(${message}), { code: '27', row: 'hunter2' });
    logger.error({ err: runlakeError('CLICKHOUSE_QUERY_FAILED', {}, { cause }) }, 'failed')`);
  expect(text).not.toContain('hunter2');
  expect(line.err).toMatchObject({
    code: 'CLICKHOUSE_QUERY_FAILED',
    message: 'ClickHouse rejected a query of Runlake.',
    causes: [`TypeError [27]: ${kept}`],
    stack: expect.stringMatching(/^ {4}at /),
  });
});

test('treats the text of a foreign error like that of a cause, also in its stack', () => {
  const { text, line } = logOf(`logger.error({ err: new RangeError("no 'hunter2'\\nnor 'hunter2'") }, 'failed')`);
  expect(text).not.toContain('hunter2');
  expect(line.err).toMatchObject({ name: 'RangeError', message: "no '…'\nnor '…'" });
});
