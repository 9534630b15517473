import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { builtProgram } from './built-program.ts';
import { joinEnvironments, testSettings } from './test-settings.ts';

const startTimeoutMs = 120_000;
/** Derivation of types takes seconds of CPU time at each start; tests of this feature enable it explicitly. */
const noTypesEnvironment = testSettings({ agentsTypesSeconds: 0 });

/** A separate `runlake all` process: from the build, with a temporary data folder and a free port. */
export interface RunlakeProcess {
  readonly url: string;
  readonly apiKey: string;
  readonly dataDir: string;
  readonly pid: number;
  /** Returns the output of the process so far. */
  output(): string;
  /** Returns the addresses of the engines of the process. */
  stores(): { clickhouseUrl: string; clickhouseCluster?: string | undefined; databaseUrl: string };
  /** Sends SIGKILL, to simulate a crash. Resolves when the process has exited. */
  kill(): Promise<void>;
  /** Sends SIGTERM. Resolves with the exit code. */
  stop(): Promise<number | null>;
  /** Restarts the process with the same folder, port and key. */
  restart(): Promise<RunlakeProcess>;
  /** Stops the process in any state and removes the folder. */
  remove(): Promise<void>;
}

/** Servers for a single Runlake process; released when the process is removed. */
export interface RunlakeServers {
  readonly environment: Readonly<Record<string, string>>;
  /** Returns the address at which tests reach the Runlake at `url`; it does not change with restarts. */
  reach(url: string): string;
  release(): Promise<void>;
}

/** Provides the servers of a Runlake process. Default: it starts embedded engines. */
let takeServers: () => Promise<RunlakeServers | undefined> = async () => undefined;
export function useServers(take: () => Promise<RunlakeServers>): void {
  takeServers = take;
}

export interface RunlakeOptions {
  readonly environment?: Readonly<Record<string, string>>;
  readonly dataDir?: string;
  readonly port?: number;
  readonly apiKey?: string;
  readonly servers?: RunlakeServers;
}

/** Starts Runlake and waits until it responds. Requires `make build`, which `make test` runs. */
export async function startRunlake(options: RunlakeOptions = {}): Promise<RunlakeProcess> {
  const dataDir = options.dataDir ?? mkdtempSync(join(tmpdir(), 'runlake-e2e-'));
  const apiKey = options.apiKey ?? `test-${randomBytes(24).toString('base64url')}`;
  const servers = options.servers ?? (await takeServers());
  const environment: Record<string, string | undefined> = {
    PATH: process.env.PATH,
    RUNLAKE_DATA_DIR: dataDir,
    RUNLAKE_PORT: String(options.port ?? 0),
    RUNLAKE_TOOLS_PORT: '0',
    RUNLAKE_BOOTSTRAP_API_KEY: apiKey,
    RUNLAKE_LOG_LEVEL: 'warn',
    RUNLAKE_SERVE_METRICS: 'true',
    ...joinEnvironments(noTypesEnvironment, servers?.environment, options.environment),
  };
  const child = spawn(process.execPath, [builtProgram, 'all'], {
    env: environment,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  let isEnding = false;
  const exited = new Promise<number | null>((resolve) =>
    child.once('exit', (code, signal) => {
      // The tests that follow see only a refused connection.
      if (!isEnding) console.error(`runlake ended by itself, ${signal ?? `with code ${code}`}:\n${output}`);
      resolve(code);
    }),
  );
  const url = await new Promise<string>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`runlake did not answer:\n${output}`)), startTimeoutMs);
    const read = (chunk: Buffer) => {
      output += chunk;
      const [, address] = /Runlake answers at (\S+)/.exec(output) ?? [];
      if (address !== undefined) resolve(address);
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
    void exited.then((code) => reject(new Error(`runlake ended with ${code}:\n${output}`)));
    void exited.then(() => clearTimeout(timer));
  }).catch(async (error: unknown) => {
    // No caller has a handle to this process, and it would continue in a folder that is about to be removed.
    child.kill('SIGKILL');
    await exited;
    if (options.servers === undefined) await servers?.release();
    if (options.dataDir === undefined)
      rmSync(dataDir, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
    throw error;
  });
  const end = async (signal: NodeJS.Signals): Promise<number | null> => {
    isEnding = true;
    if (isRunning(child)) child.kill(signal);
    return exited;
  };
  return {
    url: servers?.reach(url) ?? url,
    apiKey,
    dataDir,
    pid: child.pid as number,
    output: () => output,
    stores: () => {
      const { RUNLAKE_CLICKHOUSE_URL: clickhouseUrl, RUNLAKE_DATABASE_URL: databaseUrl } = environment;
      const clickhouseCluster = environment.RUNLAKE_CLICKHOUSE_CLUSTER;
      // Without embedded engines, the process writes no run.json.
      if (clickhouseUrl && databaseUrl) return { clickhouseUrl, clickhouseCluster, databaseUrl };
      const run = JSON.parse(readFileSync(join(dataDir, 'run.json'), 'utf8')) as Record<string, string>;
      return { clickhouseUrl: run.clickhouse_url as string, databaseUrl: run.database_url as string };
    },
    kill: async () => void (await end('SIGKILL')),
    stop: () => end('SIGTERM'),
    restart: async () => {
      await end('SIGKILL');
      const same = servers ? { ...options, servers } : options;
      return startRunlake({ ...same, dataDir, apiKey, port: Number(new URL(url).port) });
    },
    remove: async () => {
      await end('SIGTERM');
      await servers?.release();
      rmSync(dataDir, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
    },
  };
}

function isRunning(child: ChildProcess): boolean {
  return child.exitCode === null && child.signalCode === null;
}
