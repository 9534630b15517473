import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { askClickhouse } from '../infra/embedded/processes.ts';
import { until } from '../infra/until.ts';
import { deadlineMs, type Pipeline } from './pipeline.ts';

/** What was sent of a run. A 202 response sets `accepted`; an accepted run must be stored. */
export interface Entry {
  readonly id: string;
  readonly traceId: string;
  readonly project: string;
  readonly startMs: number;
  readonly inputs: string;
  accepted: boolean;
  /** Outputs of the patch, if one was sent. */
  outputs?: string;
  patchAccepted?: boolean;
}

const hourMs = 3_600_000;
const projects = ['first', 'second', 'third'];

/** The model of the crash tests: every run that was sent, its expected stored state, and the expected usage. */
export class Ledger {
  readonly #entries = new Map<string, Entry>();
  #created = 0;

  get size(): number {
    return this.#entries.size;
  }

  get acceptedCount(): number {
    return [...this.#entries.values()].filter(({ accepted }) => accepted).length;
  }

  /** Creates a trace with one run, in one of the last four hours and one of three projects. */
  newRun(): Entry {
    const id = randomUUID();
    const number = this.#created++;
    const entry: Entry = {
      id,
      traceId: id,
      project: projects[number % projects.length] as string,
      startMs: Date.now() - (number % 4) * hourMs - 60_000,
      inputs: `run ${number} ${'x'.repeat((number * 37) % 500)}`,
      accepted: false,
    };
    this.#entries.set(id, entry);
    return entry;
  }

  /** Compares runs and usage with what was sent, once the pipeline has settled. @returns the number of stored runs. */
  async check(pipeline: Pipeline): Promise<number> {
    await pipeline.settled();
    const { clickhouseUrl } = pipeline.servers;
    const rows = (sql: string) => askClickhouse(clickhouseUrl, `${sql} FORMAT TSV`);
    expect(await rows('SELECT id, count() AS times FROM runs FINAL GROUP BY id HAVING times > 1'), 'twice').toBe('');
    const stored = await this.#readRuns(pipeline);
    const missing = [...this.#entries.values()].filter(({ id, accepted }) => accepted && !stored.has(id));
    expect(missing, 'accepted but not stored').toEqual([]);
    for (const [id, run] of stored) this.#compare(this.#entries.get(id) as Entry, run);
    const present = [...stored.keys()].map((id) => this.#entries.get(id) as Entry);
    expect(Number(await rows('SELECT count() FROM runs FINAL')), 'stored runs, without unknown ones').toBe(
      present.length,
    );
    await this.#checkUsage(pipeline, present);
    return present.length;
  }

  #compare(entry: Entry, run: StoredRun): void {
    const patched = run.outputs !== null && run.outputs !== undefined;
    if (entry.patchAccepted) expect(patched, `the accepted patch of ${entry.id}`).toBe(true);
    expect({ name: run.name, inputs: run.inputs, outputs: run.outputs ?? null }, entry.id).toEqual({
      name: `of ${entry.project}`,
      inputs: { text: entry.inputs },
      outputs: patched ? { text: entry.outputs } : null,
    });
  }

  async #readRuns(pipeline: Pipeline): Promise<Map<string, StoredRun>> {
    const found = new Map<string, StoredRun>();
    const ids = [...this.#entries.keys()];
    for (let from = 0; from < ids.length; from += 100) {
      const query = { id: ids.slice(from, from + 100), limit: 100 };
      const { runs } = (await read(pipeline, '/runs/query', query)) as { runs: StoredRun[] };
      for (const run of runs) found.set(run.id, run);
    }
    return found;
  }

  /** Checks the usage of every hour and every day by each grouping. */
  async #checkUsage(pipeline: Pipeline, present: readonly Entry[]): Promise<void> {
    const workspaces = (await read(pipeline, '/workspaces')) as { id: string }[];
    const ids = workspaces.map(({ id }) => id).join(',');
    const now = Date.now();
    const from = Math.floor((now - 12 * hourMs) / hourMs) * hourMs;
    for (const [days, strideMs] of [
      [0, hourMs],
      [4, 24 * hourMs],
    ] as const) {
      const startMs = days === 0 ? from : Math.floor(from / (24 * hourMs)) * 24 * hourMs - days * 24 * hourMs;
      const iso = (ms: number) => new Date(ms).toISOString();
      for (const groupBy of ['workspace', 'project', 'user', 'api_key'] as const) {
        const query = `?start_time=${iso(startMs)}&end_time=${iso(now)}&workspace_ids=${ids}&group_by=${groupBy}`;
        const path = `/api/v1/orgs/current/billing/granular-usage${query}`;
        const { usage } = (await read(pipeline, path)) as { usage: UsageRow[] };
        const figures = usage.map(({ time_bucket: bucket, dimensions, traces }) => [
          `${Date.parse(bucket)} ${groupBy === 'project' ? dimensions.project_name : ''}`,
          traces,
        ]);
        const keys = new Set(figures.map(([key]) => key));
        expect(usage, `rows of the same bucket by ${groupBy}`).toHaveLength(keys.size);
        const expected = new Map<string, number>();
        for (const { startMs: at, project } of present) {
          const bucket = startMs + Math.floor((at - startMs) / strideMs) * strideMs;
          const figure = `${bucket} ${groupBy === 'project' ? project : ''}`;
          expected.set(figure, (expected.get(figure) ?? 0) + 1);
        }
        expect(Object.fromEntries(figures), `usage by ${groupBy}`).toEqual(Object.fromEntries(expected));
      }
    }
  }
}

interface StoredRun {
  readonly id: string;
  readonly name: string;
  readonly inputs: unknown;
  readonly outputs: unknown;
}

interface UsageRow {
  readonly time_bucket: string;
  readonly dimensions: Readonly<Record<string, string | null>>;
  readonly traces: number;
}

/** Reads with retries after 503: a busy machine may need longer than the timeouts that tests set. */
async function read(pipeline: Pipeline, path: string, body?: object): Promise<unknown> {
  let text = '';
  await until(
    `a response to ${path}`,
    async () => {
      const answer = await pipeline.ask(path, body);
      text = await answer.text();
      if (!answer.ok && answer.status !== 503) throw new Error(`${path}: ${answer.status} ${text}`);
      return answer.ok;
    },
    deadlineMs,
  );
  return JSON.parse(text);
}
