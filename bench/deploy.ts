/**
 * Cost of the control plane, on embedded engines.
 *
 *   - Deploying the graph of the guide: from POST /v2/deployments, with its upload, to DEPLOYED. In turns with it, what a
 *     deployment cannot avoid: `npm ci` of the same lock file, and a plain start of the agent server on the same stores.
 *     Both have their packages in an npm cache. At most 1.5 times.
 *   - Updating a deployment while 32 clients stream runs of two seconds: every stream must be complete.
 *   - The proxy against its replica, in turns: time to the first event of a run alone, at most 3 ms longer; events a second
 *     of 32 clients, at least 0.8.
 *
 * `ratio` is that of the target with the worst result. `--quick` only checks that the bench works.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Agent } from 'undici';
import { loadServer } from './agents/load.ts';
import { untilQuiet } from './agents/quiet.ts';
import { createThread, streamRun } from './agents/stream-run.ts';
import { againstTargets, atLeast, atMost } from './agents/targets.ts';
import { ControlPlane } from './deploy/control-plane.ts';
import { median, printFigures, round, timedMs } from './figures.ts';
import { atEnd, startBenchRunlake } from './started.ts';

const isQuick = process.argv.includes('--quick');
const plan = isQuick
  ? { deployRounds: 1, proxyRounds: 1, aloneRuns: 5, largeRuns: 4, updates: 1 }
  : { deployRounds: 7, proxyRounds: 5, aloneRuns: 60, largeRuns: 64, updates: 3 };
const settle = isQuick ? async () => undefined : untilQuiet;
const clients = 32;
const largeEvents = 5_000;
const streamEvents = 100;
const streamPauseMs = 20;

const pathOf = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const guide = pathOf('../docs/guide/agents');
const guideFiles = ['langgraph.json', 'package.json', 'package-lock.json', 'trip.js'];
const burst = pathOf('deploy/graphs');
const burstFiles = ['langgraph.json', 'package.json', 'burst.js'];
const linkPackages = `ln -s '${pathOf('../node_modules')}' node_modules`;

const folder = mkdtempSync(join(tmpdir(), 'runlake-bench-deploy-'));
atEnd(() => rmSync(folder, { recursive: true, force: true }));
const runlake = await startBenchRunlake();
const controlPlane = new ControlPlane(runlake);
const deploying = await measureDeploying();
const { id, source_config } = await controlPlane.deploy('burst', burst, burstFiles, {
  install_command: linkPackages,
  resource_spec: { cpu: 1 },
});
const proxied = { url: source_config.custom_url, headers: { 'x-api-key': runlake.apiKey } };
const proxy = await measureProxy(proxied, id);
const updating = await measureUpdating(proxied, id);
printFigures({
  bench: 'deploy',
  ...againstTargets({
    deploy_times_plain: atMost(1.5, deploying.deployMs / deploying.plainMs),
    complete_streams_share: atLeast(1, 1 - updating.failed / updating.streams),
    proxy_first_event_extra_ms: atMost(3, proxy.firstExtraMs),
    proxy_events_share: atLeast(0.8, proxy.eventsShare),
  }),
  deploy_p50_ms: round(deploying.deployMs, 0),
  npm_ci_p50_ms: round(deploying.installMs, 0),
  plain_start_p50_ms: round(deploying.startMs, 0),
  streams_during_updates: updating.streams,
  failed_streams: updating.failed,
  first_failure: updating.failure,
  direct_first_event_p50_ms: round(proxy.directFirstMs),
  proxy_first_event_p50_ms: round(proxy.proxyFirstMs),
  direct_events_per_second: round(proxy.directEventsPerSecond, 0),
  plan,
});

async function measureDeploying() {
  const times: { deployMs: number; installMs: number; startMs: number }[] = [];
  for (let turn = 0; turn <= plan.deployRounds; turn += 1) {
    const project = join(folder, `project-${turn}`);
    cpSync(guide, project, { recursive: true });
    await settle();
    const installMs = await timedMs(() => installPackages(project));
    const startMs = await timedMs(() => startPlainly(project));
    rmSync(project, { recursive: true });
    await settle();
    let id = '';
    const deployMs = await timedMs(async () => {
      ({ id } = await controlPlane.deploy(`trip ${turn}`, guide, guideFiles));
    });
    await controlPlane.remove(id);
    // The first turn fills the caches of npm.
    if (turn > 0) times.push({ deployMs, installMs, startMs });
  }
  return {
    deployMs: median(times.map((each) => each.deployMs)),
    installMs: median(times.map((each) => each.installMs)),
    startMs: median(times.map((each) => each.startMs)),
    plainMs: median(times.map((each) => each.installMs + each.startMs)),
  };
}

async function installPackages(project: string): Promise<void> {
  const args = ['ci', '--no-audit', '--no-fund', '--no-update-notifier', '--prefer-offline'];
  const env = { ...process.env, CI: 'true', npm_config_cache: join(folder, 'npm') };
  await promisify(execFile)('npm', args, { cwd: project, env });
}

/** Starts the agent server on the stores of the product; resolves when it is ready, and has ended. */
async function startPlainly(project: string): Promise<void> {
  const { clickhouseUrl, databaseUrl } = runlake.stores();
  const child = spawn(process.execPath, [pathOf('deploy/plain-start.mjs')], {
    env: {
      ...{ PATH: process.env.PATH, RUNLAKE_CLICKHOUSE_URL: clickhouseUrl, RUNLAKE_DATABASE_URL: databaseUrl },
      ...{ RUNLAKE_SECRET_KEY: 'x'.repeat(43), RUNLAKE_DATA_DIR: join(folder, 'plain'), RUNLAKE_AGENTS_WORKERS: '1' },
      ...{ RUNLAKE_AGENTS_FILE: join(project, 'langgraph.json'), RUNLAKE_AGENTS_PORT: '0', RUNLAKE_LOG_LEVEL: 'error' },
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  atEnd(() => child.kill('SIGKILL'));
  const ended = once(child, 'exit');
  const [chunk] = (await Promise.race([once(child.stdout, 'data'), ended])) as [unknown];
  child.kill('SIGKILL');
  if (!String(chunk).startsWith('ready')) throw new Error(`The agent server did not start: ${chunk}`);
  await ended;
}

interface Target {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

async function measureProxy(proxied: Target, deploymentId: string) {
  const [replicaUrl = ''] = await controlPlane.findReplicas(deploymentId);
  const direct = { ...proxied, url: replicaUrl };
  const load = async (target: Target, runs: number, atOnce: number, events: number) => {
    await settle();
    return loadServer({ ...target, memoryMib: () => 0 }, { runs, atOnce, events });
  };
  for (const target of [direct, proxied]) await load(target, clients, clients, 1_000);
  const rounds = [];
  for (let turn = 0; turn < plan.proxyRounds; turn += 1) {
    const [directAlone, proxyAlone] = [
      await load(direct, plan.aloneRuns, 1, 100),
      await load(proxied, plan.aloneRuns, 1, 100),
    ];
    const [directLarge, proxyLarge] = [
      await load(direct, plan.largeRuns, clients, largeEvents),
      await load(proxied, plan.largeRuns, clients, largeEvents),
    ];
    rounds.push({
      directFirstMs: median(directAlone.runs.map(({ firstMs }) => firstMs)),
      proxyFirstMs: median(proxyAlone.runs.map(({ firstMs }) => firstMs)),
      directEventsPerSecond: directLarge.runsPerSecond * largeEvents,
      eventsShare: proxyLarge.runsPerSecond / directLarge.runsPerSecond,
    });
  }
  return {
    directFirstMs: median(rounds.map((each) => each.directFirstMs)),
    proxyFirstMs: median(rounds.map((each) => each.proxyFirstMs)),
    firstExtraMs: median(rounds.map((each) => each.proxyFirstMs - each.directFirstMs)),
    directEventsPerSecond: median(rounds.map((each) => each.directEventsPerSecond)),
    eventsShare: median(rounds.map((each) => each.eventsShare)),
  };
}

/** Updates a deployment while clients stream. A stream fails if a request fails or an event is missing. */
async function measureUpdating(target: Target, deploymentId: string) {
  const dispatcher = new Agent({ connections: clients, bodyTimeout: 0, headersTimeout: 0 });
  let isOver = false;
  let streams = 0;
  let failed = 0;
  let failure: string | undefined;
  const client = async () => {
    while (!isOver) {
      streams += 1;
      try {
        const threadId = await createThread(target, dispatcher);
        await streamRun(target, dispatcher, threadId, streamEvents, streamPauseMs);
      } catch (error) {
        failed += 1;
        failure ??= String(error).slice(0, 300);
      }
    }
  };
  const running = Array.from({ length: clients }, client);
  for (let update = 1; update <= plan.updates; update += 1) {
    await controlPlane.change(deploymentId, { secrets: [{ name: 'UPDATE', value: `number ${update}` }] });
    // The former replica drains.
    while ((await controlPlane.findReplicas(deploymentId)).length > 1) await pause(100);
  }
  isOver = true;
  await Promise.all(running);
  await dispatcher.destroy();
  return { streams, failed, failure };
}
