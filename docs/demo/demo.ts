/**
 * `make demo`: the whole path, from the stock SDKs to exact usage, in a temporary folder.
 *
 *   1. start Runlake; create workspaces, users and keys;
 *   2. send nested traces of three weeks with the stock `langsmith` SDK;
 *   3. wait until they are counted; print usage by project and day; write the CSV;
 *   4. read one trace back;
 *   5. export everything as Parquet to a folder and query the files with DuckDB;
 *   6. compare every figure and every exported row with what was sent: exit code 0 only if all are equal;
 *   7. deploy a graph, run it with the stock LangGraph SDK, kill everything while it waits for an answer, resume it,
 *      check its usage;
 *   8. stop everything, remove the folder, print the next steps. With DEMO_KEEP=1, print a link to the trace in the
 *      dashboard and keep Runlake running until Ctrl-C.
 */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Client } from 'langsmith';
import type { Run } from 'langsmith/schemas';
import { awaitGraph, deployGraph, resumeTrip, streamUntilAsked } from './agent.ts';
import { compareRuns, exportProjects, fileQuery, queryFiles } from './export.ts';
import { nextSteps } from './next-steps.ts';
import { demoDays, firstDay, type PlannedTrace, planTraces } from './plan.ts';
import { type Sent, sendTraces } from './send.ts';
import { type DemoServer, startServer } from './server.ts';
import { exportTable, ProgressBar, traceTree, usageTable } from './show.ts';
import { type DemoTenants, makeTenants } from './tenants.ts';
import { type Comparison, DemoUsage, timeOf, totalOf } from './usage.ts';

const csvFile = 'demo-usage.csv';
const countedWithinMs = 30_000;

const keepsRunning = process.env.DEMO_KEEP === '1';
const { values } = parseArgs({ options: { traces: { type: 'string', default: '1000' } } });
const traceCount = Number(values.traces);
if (!Number.isInteger(traceCount) || traceCount < 50 || traceCount > 100_000) {
  console.error('--traces takes a whole number from 50 to 100000.');
  process.exit(2);
}
// These variables configure the SDK: sampling, hidden inputs, another workspace. The demo must not depend on them.
for (const name of Object.keys(process.env))
  if (/^(LANGSMITH|LANGCHAIN|LANGGRAPH)_/.test(name)) delete process.env[name];

// The SDK deprecates `listRuns` in favour of a method that uses another API.
process.noDeprecation = true;

console.log('Runlake demo: traces in, exact usage and Parquet out; and a graph that outlives a crash.\n');
const starting = startServer();
for (const [signal, code] of [
  ['SIGINT', 130],
  ['SIGTERM', 143],
  ['SIGHUP', 129],
] as const) {
  process.once(signal, () => {
    console.log('\nStopping, cleaning up ...');
    // Requests of the SDK that are in flight fail now.
    console.warn = console.error = () => {};
    void starting.stop().finally(() => process.exit(code));
  });
}
let equal = false;
try {
  const server = await step('Starting ClickHouse, Postgres and Runlake in a temporary folder', starting.ready);
  equal = await Promise.race([runDemo(server), server.ended]);
} catch (error) {
  console.error(`\nThe demo failed: ${error instanceof Error ? error.message : String(error)}`);
} finally {
  await starting.stop();
}
console.log(equal ? nextSteps() : '\nThe counts differ from what was sent, or could not be checked.');
process.exit(equal ? 0 : 1);

async function runDemo(server: DemoServer): Promise<boolean> {
  const nowMs = Date.now();
  const tenants = await step('Creating 2 workspaces, 3 users and 4 API keys through the API', makeTenants(server));
  const traces = planTraces(traceCount, nowMs);

  console.log(
    `Sending ${traceCount.toLocaleString('en')} nested traces of ${demoDays} days with the stock langsmith SDK`,
  );
  const bar = new ProgressBar(traceCount);
  const sent = await sendTraces(traces, server, tenants, (done, runs) =>
    bar.update(done, `${runs.toLocaleString('en')} runs`),
  );
  const failed = traces.filter(({ fails }) => fails).length;
  console.log(`  ${failed} of them failed; ${sent.lateEnds} ended late, long after the rest.`);

  const usage = new DemoUsage(server, tenants, nowMs);
  const counted = await step('Waiting until they are counted', usage.settle(traceCount, countedWithinMs));
  console.log(`\nTraces by project and day (${counted.toLocaleString('en')} in all):\n`);
  console.log(usageTable(await usage.daily('project'), firstDay(nowMs), demoDays));

  const csv = await usage.csv();
  writeFileSync(csvFile, csv);
  console.log(`\nThe same as CSV: ${csvFile} (${csv.trim().split('\r\n').length - 1} rows)`);
  const runId = await showTrace(server, tenants, traces, sent);
  const files = await showExport(server, tenants, nowMs);
  const figuresEqual = compare([...(await usage.compare(traces)), compareRuns(sent.runs, files.runs)]);
  const { restarted, isComplete } = await showAgent(server, tenants, counted);
  if (isComplete && figuresEqual && keepsRunning) {
    console.log(`\nRunlake keeps running until Ctrl-C. The trace in the dashboard (the link signs in once):\n`);
    console.log(`  ${restarted.linkTo(`/runs/${runId}`)}`);
    await restarted.ended;
  }
  return isComplete && figuresEqual;
}

/** Reads the newest failed support ticket back, with the SDK. @returns its id. */
async function showTrace(
  server: DemoServer,
  { keyOf }: DemoTenants,
  traces: readonly PlannedTrace[],
  sent: Sent,
): Promise<string> {
  const index = traces.findLastIndex(({ project, fails }) => project === 'support-bot' && fails);
  const shown = index >= 0 ? index : traces.length - 1;
  const trace = traces[shown] as PlannedTrace;
  const client = new Client({ apiUrl: server.url, apiKey: keyOf.get(trace.sender)?.key ?? '' });
  const runs: Run[] = [];
  const runId = sent.roots[shown]?.id ?? '';
  for await (const run of client.listRuns({ traceId: runId })) runs.push(run);
  console.log(`\nOne trace read back, of ${timeOf(trace.startMs)} in ${trace.project} ("${trace.question}"):\n`);
  console.log(traceTree(runs));
  if (!keepsRunning)
    console.log(`\n  In the dashboard, until the demo ends (DEMO_KEEP=1 keeps it): ${server.url}/runs/${runId}`);
  return runId;
}

/** Exports everything, and queries the files with DuckDB. */
async function showExport(server: DemoServer, tenants: DemoTenants, nowMs: number) {
  console.log('');
  const made = await step('Exporting every project as Parquet to a folder', exportProjects(server, tenants, nowMs));
  const size = `${made.files} files, ${Math.round(made.bytes / 1_000).toLocaleString('en')} kB`;
  console.log(`  ${made.rows.toLocaleString('en')} rows in ${size}. DuckDB reads them:\n`);
  console.log(`  ${fileQuery}\n`);
  const found = await queryFiles(server.exportFolder, made);
  console.log(exportTable(found.summary));
  return found;
}

/**
 * @returns the restarted server, and whether the graph resumed after the crash, and both of its runs were counted in addition to earlier traces.
 */
async function showAgent(
  server: DemoServer,
  tenants: DemoTenants,
  countedBefore: number,
): Promise<{ readonly restarted: DemoServer; readonly isComplete: boolean }> {
  console.log('');
  await step('Deploying the graph docs/guide/agents/trip.js with `runlake deploy`', deployGraph(server));
  console.log('\nIt streams through the stock LangGraph SDK and interrupts with a question:\n');
  const threadId = await streamUntilAsked(server, 'Lyon');
  console.log('');
  const restarted = await step('Killing Runlake with kill -9 and restarting it', server.crash());
  await step('Waiting until it has restored the deployment', awaitGraph(restarted));
  const resume = async () => {
    console.log('');
    const booking = await resumeTrip(restarted, threadId, 'yes');
    const usage = new DemoUsage(restarted, tenants, Date.now());
    const counted = await usage.settle(countedBefore + 2, countedWithinMs);
    const trips = totalOf(new Map([...(await usage.daily('project'))].filter(([cell]) => cell.endsWith(', trip'))));
    const isComplete = booking === 'booked: Lyon' && trips === 2 && counted === countedBefore + 2;
    console.log(
      `\n  ${isComplete ? '✓' : '✗'} resumed where it stood; ${trips} runs of the graph in the usage, project trip`,
    );
    return { restarted, isComplete };
  };
  return Promise.race([resume(), restarted.ended]);
}

function compare(comparisons: readonly Comparison[]): boolean {
  console.log('\nComparing with what was sent:\n');
  for (const { what, figures, itemName = 'figures', differences } of comparisons) {
    const verdict =
      differences.length === 0
        ? `all ${figures.toLocaleString('en')} ${itemName} equal`
        : `${differences.length} of ${figures} differ`;
    console.log(`  ${differences.length === 0 ? '✓' : '✗'} ${what}: ${verdict}`);
    for (const difference of differences.slice(0, 10)) console.log(`      ${difference}`);
  }
  return comparisons.every(({ differences }) => differences.length === 0);
}

async function step<T>(what: string, work: Promise<T>): Promise<T> {
  const startedMs = Date.now();
  process.stdout.write(`${what} ... `);
  const result = await work;
  console.log(`${((Date.now() - startedMs) / 1_000).toFixed(1)} s`);
  return result;
}
