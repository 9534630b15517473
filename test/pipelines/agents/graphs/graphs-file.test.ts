import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parseReference, readGraphsFile } from '../../../../pipelines/agents/graphs/graphs-file.ts';
import { projectFile } from '../../../agents/pool-under-test.ts';
import { folderForSuite } from '../../../folders.ts';

const folder = folderForSuite();

const written = async (content: unknown) => {
  const file = join(folder, 'langgraph.json');
  await writeFile(file, typeof content === 'string' ? content : JSON.stringify(content));
  return file;
};

test('reads a file with all sections', async () => {
  const graphs = { one: './a.ts:graph', two: { path: './b.js', description: 'B' }, three: '/abs/c.mjs:default' };
  const file = await readGraphsFile(
    await written({
      graphs,
      env: { A: 'text', B: 7, C: true },
      auth: { path: './auth.ts:auth', disable_studio_auth: true },
      http: { app: './app.js:app', cors: { allow_origins: ['*'] }, disable_mcp: true },
      store: { index: { embed: './embed.js:embed', dims: 3 }, ttl: { default_ttl: 1.5, refresh_on_read: true } },
      checkpointer: { ttl: { strategy: 'keep_latest', default_ttl: 60 } },
      webhooks: { headers: { 'x-a': 'b' }, url: { require_https: true } },
      ui: { one: './one.tsx' },
      ui_config: { shared: ['nanostores'] },
      node_version: '20',
      dependencies: ['.'],
    }),
  );
  expect(file.graphs).toEqual([
    { graphId: 'one', description: null, path: join(folder, 'a.ts'), name: 'graph' },
    { graphId: 'two', description: 'B', path: join(folder, 'b.js'), name: 'default' },
    { graphId: 'three', description: null, path: '/abs/c.mjs', name: 'default' },
  ]);
  expect(file.env).toEqual({ A: 'text', B: '7', C: 'true' });
  expect(file.auth).toEqual({ path: join(folder, 'auth.ts'), name: 'auth', disableStudioAuth: true });
  expect(file.app).toEqual({ path: join(folder, 'app.js'), name: 'app' });
  expect(file.http.disable_mcp).toBe(true);
  expect(file.ui).toEqual({ one: './one.tsx' });
  expect(file.uiConfig).toEqual({ shared: ['nanostores'] });
  expect(file.checkpointer.ttl).toEqual({ strategy: 'keep_latest', default_ttl: 60 });
});

test('reads null as not set in the sections in which the langgraph command line does', async () => {
  const graphs = { a: './a.js:a' };
  const sections = {
    auth: null,
    http: null,
    store: null,
    checkpointer: null,
    webhooks: null,
    ui: null,
    ui_config: null,
  };
  expect(await readGraphsFile(await written({ graphs, ...sections }))).toMatchObject({ http: {}, store: {}, ui: {} });
  const file = await readGraphsFile(
    await written({
      graphs,
      auth: { path: null, disable_studio_auth: false },
      http: { app: null, disable_mcp: null, cors: { allow_origins: null, max_age: 5 } },
      store: { index: { embed: './e.js:e', dims: 3, fields: null }, ttl: null },
      checkpointer: { ttl: { strategy: 'delete', default_ttl: null, sweep_interval_minutes: null } },
      webhooks: { url: null, env_prefix: null },
    }),
  );
  expect(file).toMatchObject({
    http: { cors: { max_age: 5 } },
    store: { index: { embed: './e.js:e', dims: 3 } },
    checkpointer: { ttl: { strategy: 'delete' } },
    webhooks: {},
  });
});

test('reads settings of authentication without a path', async () => {
  const content = { graphs: { a: './a.js:a' }, auth: { disable_studio_auth: true } };
  expect((await readGraphsFile(await written(content))).auth).toBeUndefined();
});

test('lists fields that are not supported as ignored', async () => {
  const fields = { encryption: { path: './e.py:e' }, node_loader: 'tsx' };
  const file = await readGraphsFile(await written({ graphs: { a: './a.js:a' }, ...fields }));
  expect(file.ignoredFields).toEqual(['encryption', 'node_loader']);
  expect((await readGraphsFile(await written({ graphs: { a: './a.js:a' } }))).ignoredFields).toEqual([]);
});

test('reads variables from a file that env names', async () => {
  expect((await readGraphsFile(projectFile('faulty'))).env).toMatchObject({
    FROM_ENV_FILE: 'from the file',
    OTHER: 'second',
  });
});

test('reads the default config and context of graphs', async () => {
  const file = await readGraphsFile(projectFile('faulty'));
  const config = { configurable: { style: 'dry' }, recursion_limit: 7 };
  expect([...file.defaultConfigs]).toEqual([['good', { config, context: { tone: 'warm' } }]]);
});

const graphs = { a: './a.js:a' };
const http = (settings: object) => ({ graphs, http: settings });
const cors = (settings: object) => http({ cors: settings });
describe('refuses an unusable file with location and reason', () => {
  test.each([
    ['invalid JSON', '{"graphs": ', 'the file', 'it is not JSON'],
    ['no graphs', {}, 'the file', 'graphs'],
    ['an empty list of graphs', { graphs: {} }, 'graphs', ''],
    ['a graph without a path', { graphs: { a: { description: 'x' } } }, 'graphs.a', 'path'],
    ['a path that is not a string', { graphs: { a: { path: 7 } } }, 'graphs.a.path', 'string'],
    ['a missing file of variables', { graphs, env: './none.env' }, 'env', "'./none.env' cannot be read"],
    ['a variable that is an object', { graphs, env: { A: {} } }, 'env.A', ''],
    ['a variable that is null', { graphs, env: { A: null } }, 'env.A', ''],
    [
      'dimensions that are not a number',
      { graphs, store: { index: { embed: 'x', dims: 'y' } } },
      'store.index.dims',
      'int',
    ],
    ['an unknown strategy', { graphs, checkpointer: { ttl: { strategy: 'x' } } }, 'checkpointer.ttl.strategy', ''],
    [
      'a sweep interval of zero',
      { graphs, store: { ttl: { sweep_interval_minutes: 0 } } },
      'store.ttl.sweep_interval_minutes',
      '',
    ],
    [
      'origins that are not a list',
      { graphs, http: { cors: { allow_origins: '*' } } },
      'http.cors.allow_origins',
      'array',
    ],
    ['an invalid header name', { graphs, http: { cors: { allow_headers: ['a b'] } } }, 'http.cors.allow_headers.0', ''],
    [
      'a misspelt path of authentication',
      { graphs, auth: { file: './a.ts:a', disable_studio_auth: true } },
      'auth',
      'path',
    ],
    ['authentication with another field than path', { graphs, auth: { file: './auth.ts:auth' } }, 'auth', 'path'],
    ['an unknown setting', { graphs, http: { disable_all: true } }, 'http.disable_all', 'unknown setting'],
    [
      'an origin with a path',
      cors({ allow_origins: ['https://a.example/x'] }),
      'http.cors.allow_origins',
      'not an origin',
    ],
    [
      'credentials for all origins',
      cors({ allow_origins: ['*'], allow_credentials: true }),
      'http.cors.allow_credentials',
      '*',
    ],
    [
      'all headers with credentials',
      cors({ expose_headers: ['*'], allow_credentials: true }),
      'http.cors.expose_headers',
      '*',
    ],
    ['an invalid pattern', cors({ allow_origin_regex: '(' }), 'http.cors.allow_origin_regex', 'missing closing )'],
    ['a pattern with look-around', cors({ allow_origin_regex: '(?=a)' }), 'http.cors.allow_origin_regex', 'RE2'],
    [
      'a large pattern',
      cors({ allow_origin_regex: '((ab?){500})'.repeat(11) }),
      'http.cors.allow_origin_regex',
      'too large',
    ],
    [
      'API keys passed to graphs',
      http({ configurable_headers: { includes: ['X-Api-Key'] } }),
      'http.configurable_headers',
      'keys',
    ],
    ['logged headers', http({ logging_headers: { includes: ['a'] } }), 'http.logging_headers', 'never logged'],
    [
      'middleware before authentication',
      http({ middleware_order: 'middleware_first' }),
      'http.middleware_order',
      'after authentication',
    ],
    ['a mount prefix', http({ mount_prefix: '/agents' }), 'http.mount_prefix', 'not supported yet'],
  ])('%s', async (_what, content, location, reason) => {
    const file = await written(content);
    const error = await readGraphsFile(file).catch((thrown) => thrown);
    expect(error).toMatchObject({ code: 'GRAPHS_FILE_INVALID' });
    expect(error.message).toContain(`${file} cannot be used: ${location}: `);
    expect(error.message).toContain(reason);
  });

  test('a missing file', async () => {
    await expect(readGraphsFile(join(folder, 'none.json'))).rejects.toThrow('cannot be read (ENOENT)');
  });

  test('a folder', async () => {
    await expect(readGraphsFile(folder)).rejects.toThrow('it is a folder: name the langgraph.json in it');
  });
});

test('accepts a pattern for hundreds of domains', async () => {
  const domains = Array.from({ length: 200 }, (_, index) => `app${index}\\.customer${index}\\.example\\.com`);
  const allow_origin_regex = `https://(?:${domains.join('|')})`;
  const { http: settings } = await readGraphsFile(await written(cors({ allow_origin_regex })));
  expect(settings.cors).toEqual({ allow_origin_regex });
});

test.each([
  ['./a.ts:graph', '/p/a.ts', 'graph'],
  ['./a.ts', '/p/a.ts', 'default'],
  ['./a.ts:', '/p/a.ts', 'default'],
  ['../x/a.ts:g', '/x/a.ts', 'g'],
])('parses the reference %s', (text, path, name) => expect(parseReference('/p', text)).toEqual({ path, name }));
