import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { folderForSuite } from '../../folders.ts';
import { runCommand } from './run-command.ts';

const taken = createServer();
const dataDir = folderForSuite();

beforeAll(async () => {
  taken.listen(0, '127.0.0.1');
  await once(taken, 'listening');
});
afterAll(() => {
  taken.close();
});

const stores = {
  RUNLAKE_CLICKHOUSE_URL: 'http://127.0.0.1:9/runlake',
  RUNLAKE_DATABASE_URL: 'postgres://127.0.0.1:9/runlake',
};
const kafka = { RUNLAKE_KAFKA_BROKERS: '127.0.0.1:9', RUNLAKE_SCHEMA_REGISTRY_URL: 'http://127.0.0.1:9' };
const needed = /RUNLAKE_KAFKA_BROKERS, RUNLAKE_SCHEMA_REGISTRY_URL, RUNLAKE_CLICKHOUSE_URL, RUNLAKE_DATABASE_URL/;

test.each<[string, string, Record<string, string>, RegExp]>([
  ['ADDRESS_REQUIRED', 'api', {}, needed],
  ['ADDRESS_REQUIRED', 'ingest', {}, needed],
  [
    'ADDRESS_REQUIRED for the missing addresses',
    'api',
    stores,
    /requires RUNLAKE_KAFKA_BROKERS, RUNLAKE_SCHEMA_REGISTRY_URL;/,
  ],
  [
    'ADDRESS_REQUIRED for the missing addresses',
    'ingest',
    { ...stores, RUNLAKE_REDIS_URL: 'redis://127.0.0.1:9' },
    /requires RUNLAKE_KAFKA_BROKERS, RUNLAKE_SCHEMA_REGISTRY_URL; only/,
  ],
  ['INVALID_CONFIG', 'api', { ...stores, ...kafka }, /RUNLAKE_SECRET_KEY is required/],
  ['INVALID_CONFIG', 'ingest', { ...stores, ...kafka }, /RUNLAKE_SECRET_KEY is required/],
  [
    'INVALID_CONFIG',
    'all',
    { RUNLAKE_KAFKA_BROKERS: '127.0.0.1:9' },
    /RUNLAKE_KAFKA_BROKERS requires RUNLAKE_SCHEMA_REGISTRY_URL/,
  ],
  ['INVALID_CONFIG', 'all', stores, /RUNLAKE_SECRET_KEY is required if both stores have addresses/],
  [
    'PORT_IN_USE',
    'all',
    { RUNLAKE_PORT: 'taken' },
    /Port \d+ on 127\.0\.0\.1 is in use\.\nStop the program .* RUNLAKE_PORT\./,
  ],
  [
    'PORT_IN_USE for the agent server',
    'all',
    { RUNLAKE_PORT: '0', RUNLAKE_AGENTS_PORT: 'taken', RUNLAKE_AGENTS_FILE: 'langgraph.json' },
    /Port \d+ on 127\.0\.0\.1 is in use\.\nStop the program that listens there, or set RUNLAKE_AGENTS_PORT\./,
  ],
  [
    'GRAPHS_FILE_INVALID',
    'all',
    { RUNLAKE_PORT: '0', RUNLAKE_AGENTS_PORT: '0', RUNLAKE_TOOLS_PORT: '0', RUNLAKE_AGENTS_FILE: 'missing.json' },
    /missing\.json.*ENOENT/,
  ],
  [
    'PORT_IN_USE for the tool server',
    'all',
    { RUNLAKE_PORT: '0', RUNLAKE_TOOLS_PORT: 'taken' },
    /Port \d+ on 127\.0\.0\.1 is in use\.\nStop the program that listens there, or set RUNLAKE_TOOLS_PORT\./,
  ],
  [
    'INVALID_CONFIG for a port of two servers',
    'all',
    { RUNLAKE_PORT: 'taken', RUNLAKE_TOOLS_PORT: 'taken' },
    /RUNLAKE_PORT and RUNLAKE_TOOLS_PORT must not both be \d+/,
  ],
  [
    'INVALID_CONFIG for the port of the agent server',
    'all',
    { RUNLAKE_AGENTS_FILE: 'langgraph.json', RUNLAKE_AGENTS_PORT: '1984', RUNLAKE_TOOLS_HOST: '0.0.0.0' },
    /RUNLAKE_PORT and RUNLAKE_AGENTS_PORT must not both be 1984/,
  ],
  [
    'INVALID_CONFIG for the port of metrics',
    'tools',
    {
      ...stores,
      ...kafka,
      RUNLAKE_SECRET_KEY: 'x'.repeat(32),
      RUNLAKE_METRICS_PORT: '8000',
      RUNLAKE_TOOLS_PORT: '8000',
    },
    /RUNLAKE_METRICS_PORT and RUNLAKE_TOOLS_PORT must not both be 8000/,
  ],
  [
    'PORT_IN_USE, not INVALID_CONFIG, for a port of two hosts',
    'all',
    { RUNLAKE_PORT: 'taken', RUNLAKE_TOOLS_PORT: 'taken', RUNLAKE_TOOLS_HOST: '127.0.0.2' },
    /Port \d+ on 127\.0\.0\.1 is in use/,
  ],
  ['HOST_UNUSABLE', 'all', { RUNLAKE_HOST: '203.0.113.1' }, /of RUNLAKE_HOST=203\.0\.113\.1 \(this host has no such/],
])('%s: runlake %s', async (_code, role, environment, words) => {
  const port = String((taken.address() as AddressInfo).port);
  const given = Object.entries(environment).map(([name, value]) => [name, value === 'taken' ? port : value]);
  const { code, text } = await runCommand([role], {
    RUNLAKE_DATA_DIR: join(dataDir, 'data'),
    ...Object.fromEntries(given),
  });
  expect(text).toMatch(words);
  expect(code).toBe(1);
});
