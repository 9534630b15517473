import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { beforeEach, onTestFinished } from 'vitest';
import { forSuite } from '../for-suite.ts';
import { askClickhouse, askPostgres } from '../infra/embedded/processes.ts';
import { suspendProcess } from '../infra/suspended-process.ts';
import { until } from '../infra/until.ts';
import { type RunlakeProcess, startRunlake } from '../runlake-process.ts';
import { countedAgentRuns, countedTraces } from './counted-traces.ts';

/** Long, because an engine restarts slowly on a busy machine. */
export const deadlineMs = 60_000;

/**
 * Shares one instance among all tests of a file; each test checks only what was stored since it began. Restarts a
 * killed instance.
 */
export function shareInstance(environment?: () => Promise<Readonly<Record<string, string>>>): Instance {
  const instance = forSuite(async () => Instance.open(await environment?.()));
  beforeEach(() => instance.ensureUp());
  return instance;
}

/** A separate Runlake process with its engines. */
export class Instance {
  runlake: RunlakeProcess;

  private constructor(runlake: RunlakeProcess) {
    this.runlake = runlake;
  }

  /** Starts an instance that is removed at the end of the test. */
  static async start(): Promise<Instance> {
    const instance = await Instance.open();
    onTestFinished(() => instance.remove());
    return instance;
  }

  /** Starts an instance that the caller removes. */
  static async open(environment: Readonly<Record<string, string>> = {}): Promise<Instance> {
    return new Instance(await startRunlake({ environment }));
  }

  remove(): Promise<void> {
    return this.runlake.remove();
  }

  async restart(): Promise<void> {
    this.runlake = await this.runlake.restart();
  }

  /** Restarts the instance if it does not respond. */
  async ensureUp(): Promise<void> {
    const isUp = await fetch(`${this.runlake.url}/ok`).then(
      ({ ok }) => ok,
      () => false,
    );
    if (!isUp) await this.restart();
  }

  /** Returns what is stored and counted after this call. */
  async since() {
    await this.settled();
    const [stored, counted] = [await this.storedRuns(), await this.countedTraces()];
    const before = await countedAgentRuns(this.runlake);
    return {
      countedAgentRuns: async () => {
        const { runs, nodes } = await countedAgentRuns(this.runlake);
        return { runs: runs - before.runs, nodes: nodes - before.nodes };
      },
      storedRuns: async () => {
        await this.settled();
        return new Set([...(await this.storedRuns())].filter((id) => !stored.has(id)));
      },
      countedTraces: async () => {
        await this.settled();
        return (await this.countedTraces()) - counted;
      },
    };
  }

  /** Process id of an engine, for signals. */
  enginePid(engine: 'clickhouse' | 'postgres'): number {
    const lines = execFileSync('ps', ['-eo', 'pid=,args='], { encoding: 'utf8' }).split('\n');
    const port = new URL(this.runlake.stores().databaseUrl).port;
    const isEngine = (args: string) =>
      engine === 'clickhouse'
        ? args.includes('clickhouse/server-child') && args.includes(this.runlake.dataDir)
        : /^\S*\/postgres -D /.test(args) && args.includes(` -p ${port} `);
    const found = lines.map((line) => /^\s*(\d+) (.*)$/.exec(line)).find((match) => match && isEngine(match[2] ?? ''));
    if (!found) throw new Error(`no process of ${engine} in:\n${lines.join('\n')}`);
    return Number(found[1]);
  }

  /** Suspends the process of ClickHouse, at most until the test ends. @returns a function that resumes it. */
  async stallClickhouse(): Promise<() => void> {
    const pid = this.enginePid('clickhouse');
    const release = () => {
      try {
        process.kill(pid, 'SIGCONT');
      } catch {
        // The process has already exited.
      }
    };
    onTestFinished(release);
    await suspendProcess(pid);
    return release;
  }

  send(method: string, path: string, body: unknown): Promise<Response> {
    return fetch(`${this.runlake.url}${path}`, {
      method,
      headers: { 'x-api-key': this.runlake.apiKey, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  }

  /** Returns the number of rows in a Postgres table. */
  async rowsOf(table: string): Promise<number> {
    const [count] = await askPostgres(this.runlake.stores().databaseUrl, `SELECT count(*)::int FROM ${table}`);
    return Number(count);
  }

  async clickhouse(sql: string): Promise<string> {
    return askClickhouse(this.runlake.stores().clickhouseUrl, sql);
  }

  /** Returns true while events are in the memory of the process that the log has not stored. */
  async hasPendingEvents(): Promise<boolean> {
    const metrics = await (await fetch(`${this.runlake.url}/metrics`)).text();
    return Number(/^runlake_event_log_pending_bytes (\S+)$/m.exec(metrics)?.[1]) > 0;
  }

  /** Waits until the event log has no event that is not stored, and until a killed ClickHouse server answers again. */
  async settled(): Promise<void> {
    const count = () => this.clickhouse('SELECT count() FROM event_log').catch(() => undefined);
    const isEmpty = async () => (await count()) === '0';
    await until('the events of the log to be stored', isEmpty, deadlineMs);
  }

  /** Returns the ids of the stored runs. Throws if a run has more than one row. */
  async storedRuns(): Promise<Set<string>> {
    const text = await this.clickhouse('SELECT id FROM runs FINAL FORMAT TSV');
    const ids = text === '' ? [] : text.split('\n');
    const once = new Set(ids);
    if (once.size !== ids.length) throw new Error(`${ids.length - once.size} runs are stored twice`);
    return once;
  }

  /** Returns the number of traces in the usage over all time; waits until no hour is dirty. */
  async countedTraces(): Promise<number> {
    await until('usage to be counted', async () => (await this.rowsOf('usage_dirty_hours')) === 0, deadlineMs);
    return countedTraces(this.runlake);
  }
}

const started = new Date(Date.now() - 60_000).toISOString();

/** Returns the `dotted_order` of a run that started a minute ago. */
export function dottedOrder(id: string): string {
  return `${started.replace(/[-:.Z]/g, '')}000Z${id}`;
}

type Run = { readonly id: string } & Record<string, unknown>;

/** Creates a root run with its own trace. */
export function rootRun(): Run {
  const id = randomUUID();
  const ids = { id, trace_id: id, dotted_order: dottedOrder(id) };
  return { ...ids, name: 'root', run_type: 'chain', start_time: started, inputs: { id } };
}

export function makeChildRun(root: Run): Run {
  const id = randomUUID();
  return {
    ...rootRun(),
    id,
    trace_id: root.id,
    parent_run_id: root.id,
    dotted_order: `${root.dotted_order}.${dottedOrder(id)}`,
  };
}
