import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openDatabase } from '../../infra/postgres/pool.ts';
import { builtCommand } from '../built-program.ts';
import { clusterVariable } from '../engines/stores.ts';
import { until } from '../infra/until.ts';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';
import { logger } from '../silent-logger.ts';

/**
 * Credentials of a destination must not appear in any response, log, error, job or file. The object store in this test
 * passes the check of the destination, then echoes every request in its response, as some stores do for debugging.
 */
const credentials = {
  access_key_id: `AKIA${randomUUID().replaceAll('-', '').toUpperCase()}`,
  secret_access_key: `secret-${randomUUID()}`,
  session_token: `session-${randomUUID()}`,
};
const secretKey = `key-of-the-installation-${randomUUID()}`;
const secrets = [...Object.values(credentials), secretKey];

const checked = new Map<string, Buffer>();
const refused: string[] = [];

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { method, url = '', headers } = request;
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const path = url.split('?')[0] ?? '';
  if (path.includes('/tmp/') || method === 'HEAD') {
    if (method === 'PUT') checked.set(path, Buffer.concat(chunks));
    response.writeHead(200, { etag: '"etag"' }).end(method === 'GET' ? checked.get(path) : undefined);
    return;
  }
  // The cleanup worker also lists and deletes leftover objects at its own interval.
  if (method === 'PUT') refused.push(`${method} ${path}`);
  const echo = Object.entries(headers)
    .map(([name, value]) => `${name}:${value}`)
    .join('\n');
  response.writeHead(403, { 'content-type': 'application/xml', 'x-amz-request-id': String(headers.authorization) });
  response.end(
    `<Error><Code>SignatureDoesNotMatch</Code><Message>${echo}</Message><AWSAccessKeyId>${credentials.access_key_id}` +
      `</AWSAccessKeyId><CanonicalRequest>${echo}</CanonicalRequest><StringToSign>${echo}</StringToSign></Error>`,
  );
}

const store = createServer((request, response) => void answer(request, response));
let runlake: RunlakeProcess;
const outputs: string[] = [];

beforeAll(async () => {
  store.listen(0, '127.0.0.1');
  await once(store, 'listening');
  runlake = await startRunlake({
    environment: {
      RUNLAKE_SECRET_KEY: secretKey,
      RUNLAKE_LOG_LEVEL: 'debug',
      RUNLAKE_ALLOW_PRIVATE_ENDPOINTS: 'true',
    },
  });
});
afterAll(async () => {
  await runlake?.remove();
  store.close();
});

async function ask(path: string, body?: object) {
  const { url, apiKey } = runlake;
  const response = await fetch(`${url}/api/v1${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'x-api-key': apiKey, 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  outputs.push(text, JSON.stringify([...response.headers]));
  return JSON.parse(text);
}

/** Returns every row of every table, including those of the queues. */
async function everyRow(url: string): Promise<string[]> {
  const database = openDatabase({ url, logger, timeoutMs: 30_000, authorities: undefined });
  try {
    const tables = await database.query<{ name: string }>(
      `SELECT format('%I.%I', table_schema, table_name) AS name FROM information_schema.tables
       WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')`,
    );
    const rows: string[] = [];
    for (const { name } of tables) {
      for (const { row } of await database.query<{ row: string }>(`SELECT t::text AS row FROM ${name} AS t`))
        rows.push(row);
    }
    return rows;
  } finally {
    await database.close();
  }
}

/** Returns the files below the folder that contain at least one of the texts. */
const filesWith = (folder: string, texts: readonly string[]) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((file) => {
      const bytes = readFileSync(file);
      return texts.some((text) => bytes.includes(text));
    });

test('does not expose credentials of a destination', { timeout: 180_000 }, async () => {
  const start_time = '2026-03-01T08:00:00Z';
  await ask('/runs', { id: randomUUID(), name: 'r', run_type: 'chain', session_name: 'p', inputs: {}, start_time });
  const [{ id: session_id }] = await ask('/sessions?name=p');
  const config = { bucket_name: 'bucket', endpoint_url: `http://127.0.0.1:${(store.address() as AddressInfo).port}` };
  const destination = await ask('/bulk-exports/destinations', { display_name: 'echo', config, credentials });
  expect(destination.credentials_keys).toEqual(Object.keys(credentials));
  const wrong = { display_name: 'none', config: { ...config, bucket_name: '-' }, credentials };
  expect((await ask('/bulk-exports/destinations', wrong)).detail).toBeDefined();

  const { id } = await ask('/bulk-exports', {
    bulk_export_destination_id: destination.id,
    session_id,
    start_time: '2026-03-01T00:00:00Z',
    end_time: '2026-03-02T00:00:00Z',
  });
  await until('the export has failed', async () => (await ask(`/bulk-exports/${id}`)).status === 'FAILED', 60_000);
  expect(refused).toEqual([expect.stringMatching(/^PUT .*parquet$/)]);
  const [run] = await ask(`/bulk-exports/${id}/runs`);
  expect(run.errors.retry_0).toMatch(/^Access denied: the secret access key does not match/);
  await ask('/bulk-exports/destinations');
  const { databaseUrl, clickhouseUrl, clickhouseCluster } = runlake.stores();
  const environment = {
    RUNLAKE_DATA_DIR: runlake.dataDir,
    RUNLAKE_SECRET_KEY: secretKey,
    RUNLAKE_DATABASE_URL: databaseUrl,
    RUNLAKE_CLICKHOUSE_URL: clickhouseUrl,
    ...clusterVariable(clickhouseCluster),
  };
  for (const line of ['config', 'doctor', 'export destinations list --json', `export watch ${id}`]) {
    const { output, errors } = await builtCommand(line.split(' '), environment);
    expect(output).not.toBe('');
    outputs.push(output, errors);
  }
  const rows = await everyRow(databaseUrl);
  expect(rows.some((row) => row.includes(config.endpoint_url))).toBe(true);
  await runlake.stop();
  outputs.push(...rows);
  outputs.push(runlake.output());
  for (const secret of secrets) for (const text of outputs) expect(text).not.toContain(secret);

  // Engine logs and data files; if the engines are external servers, their files are not readable here.
  if (!existsSync(join(runlake.dataDir, 'postgres'))) return;
  expect(filesWith(runlake.dataDir, [config.endpoint_url])).not.toEqual([]);
  expect(filesWith(runlake.dataDir, secrets)).toEqual([]);
});
