/**
 * Tools over the official client, against the same requests to the main API: `fetch_runs` of a trace of 500 runs of 4 KB
 * (limit 100, first page), `list_projects` among 50 projects, and `get_billing_usage`.
 *
 * One `runlake all` process serves both. Tool and request alternate, over kept connections, so that both see the same
 * conditions. `ratio`: the median of the tool divided by that of the request, the worst of the three. The request of
 * `fetch_runs` is the query for the same runs with the same fields; the tool also looks up the project by its name.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { findFreePorts } from '../infra/embedded/free-port.ts';
import { askRunlake } from '../test/ask-runlake.ts';
import { printFigures, quantile, round, timedMs } from './figures.ts';
import { startBenchRunlake } from './started.ts';

const rounds = Number(process.env.BENCH_ROUNDS ?? 200);
/** Until V8 has compiled the code of both: the times of quick calls still fall after 1,000 rounds. */
const warmUpMs = 20_000;
const runsOfTrace = 500;
const projects = 50;
const target = 1.5;

/** The fields that `fetch_runs` reads. */
const select =
  'app_path completion_cost completion_tokens dotted_order end_time error events extra feedback_stats first_token_time id inputs name ' +
  'outputs parent_run_id parent_run_ids prompt_cost prompt_tokens reference_example_id run_type s3_urls session_id start_time status ' +
  'tags total_cost total_tokens trace_id';

const [toolsPort] = await findFreePorts(1);
const runlake = await startBenchRunlake({ environment: { RUNLAKE_TOOLS_PORT: String(toolsPort) } });
printFigures({ bench: 'tools', ...(await measureAll()), target, higher_is_better: false });

function ask(path: string, body?: object) {
  return askRunlake(runlake, path, { body });
}

/** Stores a trace of runs with random texts, and further projects. Returns the trace. */
async function fill(): Promise<{ traceId: string; projectId: string }> {
  const start = Date.now() - 60_000;
  const traceId = randomUUID();
  const segment = (ms: number, id: string) =>
    `${new Date(ms).toISOString().replace(/[-:.]/g, '').replace('Z', '000Z')}${id}`;
  const top = segment(start, traceId);
  const runs = Array.from({ length: runsOfTrace }, (_, index) => {
    const id = index === 0 ? traceId : randomUUID();
    const text = (bytes: number) => Array.from({ length: bytes / 32 }, () => randomUUID().slice(0, 32)).join('');
    return {
      id,
      trace_id: traceId,
      dotted_order: index === 0 ? top : `${top}.${segment(start + index, id)}`,
      ...(index > 0 && { parent_run_id: traceId }),
      name: `step ${index}`,
      run_type: index % 3 === 0 ? 'llm' : 'chain',
      start_time: new Date(start + index).toISOString(),
      end_time: new Date(start + index + 20).toISOString(),
      inputs: { messages: [{ role: 'user', content: text(1_600) }] },
      outputs: { message: { role: 'assistant', content: text(1_600) } },
      extra: { metadata: { note: text(800) } },
      session_name: 'bench',
    };
  });
  await ask('/runs/batch', { post: runs });
  for (let number = 1; number < projects; number += 1) await ask('/sessions', { name: `project ${number}` });
  const [project] = (await ask('/sessions?name=bench')) as { id: string }[];
  const projectId = project?.id ?? '';
  for (;;) {
    const stats = (await ask('/runs/stats', { session: [projectId], select: ['run_count'] })) as {
      run_count: number;
    };
    if (stats.run_count === runsOfTrace) return { traceId, projectId };
    await pause(100);
  }
}

async function measureAll() {
  const { traceId, projectId } = await fill();
  const client = new Client({ name: 'bench', version: '1' });
  const transport = new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${toolsPort}/mcp`), {
    requestInit: { headers: { 'LANGSMITH-API-KEY': runlake.apiKey } },
  });
  await client.connect(transport as Parameters<Client['connect']>[0]);
  const call = async (name: string, args: Record<string, unknown>) => {
    const { structuredContent, isError } = await client.callTool({ name, arguments: args });
    assert.ok(!isError, JSON.stringify(structuredContent));
    return structuredContent as Record<string, unknown[]>;
  };
  const query = { session: [projectId], trace: traceId, limit: 100, order: 'desc', select: select.split(' ') };
  const range = { starting_on: '2020-01-01', ending_before: '2100-01-01' };
  const cases = {
    fetch_runs: [
      () => call('fetch_runs', { project_name: 'bench', trace_id: traceId, limit: 100, page_number: 1 }),
      () => ask('/runs/query', query),
    ],
    list_projects: [() => call('list_projects', { limit: 50 }), () => ask('/sessions?limit=50&reference_free=true')],
    get_billing_usage: [
      () => call('get_billing_usage', range),
      () => ask(`/orgs/current/billing/usage?${new URLSearchParams(range)}`),
    ],
  } as const;
  assert.equal((await call('list_projects', { limit: 50 })).projects?.length, 50);
  const figures: Record<string, number> = {};
  let ratio = 0;
  for (const [name, [tool, request]] of Object.entries(cases)) {
    const times: [number[], number[]] = [[], []];
    for (const warmUpEnd = Date.now() + warmUpMs; times[0].length < rounds; ) {
      const toolMs = await timedMs(tool);
      const requestMs = await timedMs(request);
      if (Date.now() < warmUpEnd) continue;
      times[0].push(toolMs);
      times[1].push(requestMs);
    }
    const [toolMs, requestMs] = times.map((each) => quantile(each, 0.5)) as [number, number];
    figures[`${name}_p50_ms`] = round(toolMs);
    figures[`${name}_request_p50_ms`] = round(requestMs);
    figures[`${name}_ratio`] = round(toolMs / requestMs);
    ratio = Math.max(ratio, toolMs / requestMs);
  }
  await client.close();
  return { ratio: round(ratio), ...figures, runs: runsOfTrace, projects };
}
