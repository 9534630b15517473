/**
 * A page of runs: the 100 newest of a project of 2,000,000 runs of 1 KB, with and without a condition on status, over
 * HTTP, with the fields that the stock Python SDK selects.
 *
 * The runs are in the last thirty days, with those of four other projects, in batches as the sink would insert them:
 * each batch once as posts with inputs and once as patches with outputs, so that the newest are not merged. Two percent
 * failed.
 *
 * Measured in turns, so that both sides see the same conditions: the request as a client sends it (keep-alive, key,
 * projects from Postgres), and the plain query for the ids alone, `… FINAL … ORDER BY start_time DESC LIMIT 100`,
 * through the same ClickHouse client (`ratio`: how many times longer it takes than the whole page, the worse of both
 * conditions). Both must return the same runs. The query condition cache is off for both.
 */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { Agent, type IncomingMessage, request } from 'node:http';
import { queryRuns } from '../api/main/runs.ts';
import { buildServer } from '../api/server/build-server.ts';
import type { Services } from '../api/server/services.ts';
import { loadConfig } from '../infra/config/load.ts';
import { createTokenSigner } from '../infra/signing/token-signer.ts';
import type { SelectName } from '../pipelines/runs/run-select.ts';
import { createAuthenticator } from '../pipelines/tenants/authenticate.ts';
import { bootstrap } from '../pipelines/tenants/bootstrap.ts';
import { type BenchEngines, withEngines } from './engines.ts';
import { quantile, round, timedMs } from './figures.ts';
import { insertRuns } from './run-load/insert-runs.ts';

const runs = Number(process.env.BENCH_RUNS ?? 2_000_000);
const runsOfOthers = runs / 20;
const otherProjects = 4;
const pieceRows = 50_000;
const days = 30;
const rounds = Number(process.env.BENCH_ROUNDS ?? 15);
const requestsPerRound = 4;
const target = 1.5;
const p50TargetMs = 100;

const select: readonly SelectName[] = [
  'app_path',
  'completion_cost',
  'completion_tokens',
  'dotted_order',
  'end_time',
  'error',
  'events',
  'extra',
  'feedback_stats',
  'first_token_time',
  'id',
  'inputs',
  'name',
  'outputs',
  'parent_run_id',
  'parent_run_ids',
  'prompt_cost',
  'prompt_tokens',
  'reference_example_id',
  'run_type',
  's3_urls',
  'session_id',
  'start_time',
  'status',
  'tags',
  'total_cost',
  'total_tokens',
  'trace_id',
];

await withEngines(async (engines) => {
  const { key, workspaceId, projectIds } = await addNames(engines);
  const insertMs = await timedMs(() => insertAll(engines, workspaceId, projectIds));
  const { all, errors } = await measure(engines, key, workspaceId, projectIds[0] as string);
  console.log(
    JSON.stringify({
      bench: 'page',
      ratio: round(Math.min(all.plainMs / all.httpMs, errors.plainMs / errors.httpMs)),
      target,
      higher_is_better: true,
      p50_ms: round(all.httpMs),
      p99_ms: round(all.httpP99Ms),
      errors_p50_ms: round(errors.httpMs),
      errors_p99_ms: round(errors.httpP99Ms),
      p50_target_ms: p50TargetMs,
      plain_ids_ms: round(all.plainMs),
      errors_plain_ids_ms: round(errors.plainMs),
      page_bytes: all.bytes,
      runs,
      runs_of_others: runsOfOthers * otherProjects,
      insert_seconds: round(insertMs / 1_000),
    }),
  );
});

/** Creates workspace and key of a first start, and the projects; the measured one is the first. */
async function addNames({ database }: BenchEngines) {
  const key = `bench-${randomBytes(16).toString('hex')}`;
  await bootstrap(database, { ...loadConfig({}).config, bootstrapApiKey: key });
  const [workspace] = await database.query<{ id: string }>('SELECT id FROM workspaces');
  const workspaceId = workspace!.id;
  const projectIds = Array.from({ length: 1 + otherProjects }, () => randomUUID());
  await database.execute(
    'INSERT INTO projects (id, workspace_id, name) SELECT id, $2, id::text FROM unnest($1::uuid[]) AS id',
    [projectIds, workspaceId],
  );
  return { key, workspaceId, projectIds };
}

async function insertAll(
  { clickhouse }: BenchEngines,
  workspaceId: string,
  projectIds: readonly string[],
): Promise<void> {
  const beginSeconds = Math.floor(Date.now() / 1_000) - days * 86_400;
  const pieces = Math.ceil(runs / pieceRows);
  for (let piece = 0; piece < pieces; piece++) {
    for (const [index, project] of projectIds.entries()) {
      const total = index === 0 ? runs : runsOfOthers;
      const count = total / pieces;
      const load = {
        tenant: workspaceId,
        project,
        total,
        beginSeconds,
        spanSeconds: days * 86_400,
        bytes: 1_000,
      };
      await insertRuns(clickhouse, load, piece * count, count);
    }
  }
}

async function measure(
  { clickhouse, database, logger }: BenchEngines,
  key: string,
  workspaceId: string,
  projectId: string,
) {
  const config = { ...loadConfig({}).config, port: 0 };
  const authenticator = createAuthenticator({ database, logger });
  const attachmentSigner = createTokenSigner('secret of the bench', 'attachments');
  const services = { config, database, clickhouse, authenticator, attachmentSigner } as Partial<Services> as Services;
  const server = await buildServer({ config, services, logger, operations: [queryRuns] });
  const address = await server.listen({ host: '127.0.0.1', port: 0 });
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const side = async (error: boolean | undefined) => {
    const plain: number[] = [];
    const http: number[] = [];
    let bytes = 0;
    const body = JSON.stringify({ session: [projectId], limit: 100, select, ...(error && { error }) });
    const sql = `SELECT id FROM runs FINAL WHERE tenant_id = {tenant:UUID} AND session_id = {project:UUID}
      ${error ? 'AND isNotNull(coalesce(patch_error, post_error))' : ''} ORDER BY start_time DESC LIMIT 100`;
    const params = { tenant: workspaceId, project: projectId };
    for (let done = -1; done < rounds; done++) {
      let expected: string[] = [];
      const plainMs = await timedMs(async () => {
        expected = (await clickhouse.query<{ id: string }>({ name: 'bench-plain', sql, params })).map((row) => row.id);
      });
      const httpMs: number[] = [];
      for (let sent = 0; sent < requestsPerRound; sent++) {
        let text = '';
        httpMs.push(
          await timedMs(async () => {
            text = await post(`${address}/runs/query`, key, agent, body);
          }),
        );
        bytes = Buffer.byteLength(text);
        const found = (JSON.parse(text) as { runs: { id: string }[] }).runs.map((run) => run.id);
        assert.deepEqual(found, expected);
      }
      if (done < 0) continue; // Warm-up.
      plain.push(plainMs);
      http.push(...httpMs);
    }
    return { httpMs: quantile(http, 0.5), httpP99Ms: quantile(http, 0.99), plainMs: quantile(plain, 0.5), bytes };
  };
  const all = await side(undefined);
  const errors = await side(true);
  agent.destroy();
  await server.drain();
  await authenticator.close();
  return { all, errors };
}

async function post(url: string, key: string, agent: Agent, body: string): Promise<string> {
  const headers = { 'x-api-key': key, 'content-type': 'application/json' };
  const sent = request(url, { agent, method: 'POST', headers }).end(body);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString('utf8');
  assert.equal(response.statusCode, 200, text);
  return text;
}
