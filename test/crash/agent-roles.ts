import { fileURLToPath } from 'node:url';
import { Client } from '@langchain/langgraph-sdk';
import { expect } from 'vitest';
import { listNumbers, type Part } from '../api/agent-server/stream-parts.ts';
import { askClickhouse } from '../infra/embedded/processes.ts';
import { until } from '../infra/until.ts';
import { type RoleProcess, startRole } from '../role-process.ts';
import { joinEnvironments, testSettings } from '../test-settings.ts';
import { type FollowedRun, followNew, groupByAttempt, type RunOnThread, written } from './agent-reader.ts';
import { countedTraces } from './counted-traces.ts';
import { deadlineMs } from './pipeline.ts';
import type { RoleServers } from './servers-of-roles.ts';
import { webhookSecret } from './webhook-receiver.ts';

const apiKey = 'test-key-of-the-agents-under-test';

export interface AgentServer {
  readonly role: RoleProcess;
  readonly client: Client;
}

/** The main API, a sink and two agent servers as separate processes. */
export class AgentRoles {
  readonly #servers: RoleServers;
  readonly #traces = new Set<string>();
  sink!: RoleProcess;
  api!: RoleProcess;
  agents: AgentServer[] = [];

  private constructor(servers: RoleServers) {
    this.#servers = servers;
  }

  /** @param servers the shared servers, released when the roles are closed. */
  static async open(servers: RoleServers): Promise<AgentRoles> {
    const roles = new AgentRoles(servers);
    try {
      roles.sink = await startRole('ingest', roles.#environment());
      await Promise.all([roles.startApi(), roles.startAgents(), roles.startAgents()]);
      return roles;
    } catch (error) {
      await roles.close();
      throw error;
    }
  }

  get databaseUrl(): string {
    return this.#servers.databaseUrl;
  }

  get processes(): readonly RoleProcess[] {
    return [this.sink, this.api, ...this.agents.map(({ role }) => role)].filter((role) => role !== undefined);
  }

  get clients(): readonly Client[] {
    return this.agents.map(({ client }) => client);
  }

  async startApi(): Promise<void> {
    this.api = await startRole('api', this.#environment());
  }

  async startAgents(): Promise<void> {
    const role = await startRole('agents', this.#environment());
    const address = () => /Runlake runs agents at (\S+)/.exec(role.output())?.[1];
    await until('an agent server to answer', () => address() !== undefined, deadlineMs);
    const client = new Client({ apiUrl: address() as string, apiKey, callerOptions: { maxRetries: 0 } });
    this.agents.push({ role, client });
  }

  /** Sends SIGKILL. */
  async killAgents(...killed: readonly AgentServer[]): Promise<void> {
    this.agents = this.agents.filter((server) => !killed.includes(server));
    await Promise.all(killed.map(({ role }) => role.end('SIGKILL')));
  }

  /** Creates resumable runs. */
  async begin(count: number, input: Readonly<Record<string, unknown>>): Promise<RunOnThread[]> {
    const [client] = this.clients as [Client];
    return Promise.all(
      Array.from({ length: count }, async () => {
        const { thread_id: threadId } = await client.threads.create();
        const run = { input, streamMode: 'custom' as const, streamResumable: true };
        const { run_id: runId } = await client.runs.create(threadId, 'burst', run);
        this.expectTraces(runId);
        return { threadId, runId };
      }),
    );
  }

  /** Creates a run that is not resumable, and a reader that reads it from the start. */
  async follow(client: Client, input: Readonly<Record<string, unknown>>): Promise<FollowedRun> {
    const followed = await followNew(client, 'burst', { input, streamMode: 'custom' });
    this.expectTraces(followed.run.runId);
    return followed;
  }

  expectTraces(...runIds: readonly string[]): void {
    for (const runId of runIds) this.#traces.add(runId);
  }

  /**
   * Checks that runs of `n` events succeeded, that readers received each event of each attempt once, that no thread is
   * busy, and that usage counts each of the runs so far once.
   *
   * @returns the number of attempts of each run.
   */
  async expectEnded(runs: readonly RunOnThread[], seen: readonly (readonly Part[])[], n: number): Promise<number[]> {
    const [client] = this.clients as [Client];
    const attempts = runs.map((run, index) => groupByAttempt(run, seen[index] ?? []));
    for (const [index, { threadId, runId }] of runs.entries()) {
      const { status: run } = await client.runs.get(threadId, runId);
      const { status: thread, values } = await client.threads.get(threadId);
      expect({ run, thread, values }).toMatchObject({ run: 'success', thread: 'idle', values: { done: n } });
      // An attempt that starts from the final stored state of an earlier one writes nothing.
      const writtenNumbers = [...(attempts[index]?.values() ?? [])].map((parts) => written(parts, 'i'));
      for (const numbers of writtenNumbers) expect(numbers).toEqual(listNumbers(numbers.length));
      expect(Math.max(...writtenNumbers.map(({ length }) => length))).toBe(n);
    }
    await this.expectCounted();
    for (const role of this.processes) expect(role.output()).not.toMatch(/unhandled|uncaught/i);
    return attempts.map(({ size }) => size);
  }

  /**
   * Waits until usage has counted every expected trace exactly once and ClickHouse stores exactly one root run for
   * each.
   */
  async expectCounted(): Promise<void> {
    const counted = () => countedTraces({ url: this.api.url, apiKey }).catch(() => 'away');
    await expect.poll(counted, { timeout: deadlineMs, interval: 100 }).toBe(this.#traces.size);
    // A trace counts as soon as one of its runs is stored. A root run follows later if its process had to retry.
    const roots = async () =>
      (
        await askClickhouse(this.#servers.clickhouseUrl, 'SELECT id FROM runs FINAL WHERE id = trace_id FORMAT TSV')
      ).split('\n');
    await expect
      .poll(async () => (await roots()).sort(), { timeout: deadlineMs, interval: 100 })
      .toEqual([...this.#traces].sort());
  }

  async close(): Promise<void> {
    await Promise.all(this.processes.map((role) => role.end('SIGKILL')));
    await this.#servers.release();
  }

  #environment(): Record<string, string> {
    return {
      ...joinEnvironments(
        this.#servers.environment,
        testSettings({ insertBatchMs: 100, publishTimeoutMs: 3_000, agentsTypesSeconds: 0, agentsLeaseMs: 3_000 }),
      ),
      RUNLAKE_CLICKHOUSE_URL: this.#servers.clickhouseUrl,
      RUNLAKE_DATABASE_URL: this.databaseUrl,
      RUNLAKE_SECRET_KEY: 'a secret key of the tests',
      RUNLAKE_BOOTSTRAP_API_KEY: apiKey,
      RUNLAKE_DATA_DIR: '/dev/null/none',
      // Webhooks go to a server of the test.
      RUNLAKE_ALLOW_PRIVATE_ENDPOINTS: 'true',
      RUNLAKE_AGENTS_WEBHOOK_SECRET: webhookSecret,
      RUNLAKE_AGENTS_FILE: fileURLToPath(new URL('../agents/projects/basic/langgraph.json', import.meta.url)),
      RUNLAKE_AGENTS_PORT: '0',
      RUNLAKE_AGENTS_WORKERS: '1',
      // With two slots per process, each of the two processes gets two of the four runs, in any order of claims.
      RUNLAKE_AGENTS_RUNS_PER_WORKER: '2',
    };
  }
}
