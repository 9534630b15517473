import { setTimeout as pause } from 'node:timers/promises';
import { ask, askText } from './ask.ts';
import { dayMs, demoDays, firstDay, hourMs, type PlannedTrace } from './plan.ts';
import type { DemoServer } from './server.ts';
import type { DemoTenants } from './tenants.ts';

export type Grouping = 'workspace' | 'project' | 'user' | 'api_key';

/** Traces by `time bucket, name`. */
export type Counts = ReadonlyMap<string, number>;

export interface Comparison {
  readonly what: string;
  readonly figures: number;
  /** Name of the compared items. Default: figures. */
  readonly itemName?: string;
  /** A description of each figure that differs. */
  readonly differences: readonly string[];
}

interface UsageAnswer {
  readonly usage: {
    readonly time_bucket: string;
    readonly dimensions: Readonly<Record<string, string | null>>;
    readonly traces: number;
  }[];
}

const nameField: Record<Grouping, string> = {
  workspace: 'workspace_name',
  project: 'project_name',
  user: 'user_email',
  api_key: 'api_key_short_key',
};

/** Reads the usage from Runlake and compares it with the plan. */
export class DemoUsage {
  readonly #server: DemoServer;
  readonly #tenants: DemoTenants;
  readonly #startMs: number;
  readonly #endMs: number;

  constructor(server: DemoServer, tenants: DemoTenants, nowMs: number) {
    this.#server = server;
    this.#tenants = tenants;
    this.#startMs = firstDay(nowMs);
    this.#endMs = this.#startMs + demoDays * dayMs;
  }

  /** Waits until `traces` are counted, or for the time limit. Resolves with the counted number. */
  async settle(traces: number, withinMs: number): Promise<number> {
    const until = Date.now() + withinMs;
    for (;;) {
      const counted = totalOf(await this.daily('workspace'));
      if (counted >= traces || Date.now() > until) return counted;
      await pause(100);
    }
  }

  daily(groupBy: Grouping): Promise<Counts> {
    return this.#read(groupBy, this.#startMs, this.#endMs);
  }

  csv(): Promise<string> {
    return askText(this.#url('/export', 'project', this.#startMs, this.#endMs), this.#server.adminKey);
  }

  /** Compares every figure of the demo with the plan. */
  async compare(traces: readonly PlannedTrace[]): Promise<Comparison[]> {
    const keyOf = (trace: PlannedTrace) => this.#tenants.keyOf.get(trace.sender)?.shortKey ?? '';
    const names: Record<Grouping, (trace: PlannedTrace) => string> = {
      workspace: (trace) => trace.sender.workspace,
      project: (trace) => trace.project,
      user: (trace) => trace.sender.email,
      api_key: keyOf,
    };
    const byDay: Comparison[] = [];
    for (const groupBy of Object.keys(names) as Grouping[]) {
      const planned = countTraces(traces, dayMs, names[groupBy]);
      byDay.push(compareCounts(`by ${groupBy.replace('_', ' ')} and day`, planned, await this.daily(groupBy)));
    }
    const hourly = new Map<string, number>();
    for (let dayStartMs = this.#startMs; dayStartMs < this.#endMs; dayStartMs += dayMs) {
      // A range below one day has hourly buckets.
      const day = await this.#read('project', dayStartMs, dayStartMs + dayMs - 1_000);
      for (const [cell, count] of day) hourly.set(cell, count);
    }
    const byHour = compareCounts('by project and hour', countTraces(traces, hourMs, names.project), hourly);
    const csv = compareCounts(
      'in the CSV file',
      countTraces(traces, dayMs, names.project),
      countsOfCsv(await this.csv()),
    );
    return [...byDay, byHour, csv];
  }

  async #read(groupBy: Grouping, startMs: number, endMs: number): Promise<Counts> {
    const { usage } = await ask<UsageAnswer>(this.#url('', groupBy, startMs, endMs), this.#server.adminKey);
    return new Map(
      usage.map(({ time_bucket: bucket, dimensions, traces }) => [
        cellOf(bucket, dimensions[nameField[groupBy]] ?? ''),
        traces,
      ]),
    );
  }

  #url(path: string, groupBy: Grouping, startMs: number, endMs: number): string {
    const query = new URLSearchParams({ group_by: groupBy, start_time: timeOf(startMs), end_time: timeOf(endMs) });
    for (const id of this.#tenants.workspaceIds) query.append('workspace_ids', id);
    return `${this.#server.url}/api/v1/orgs/current/billing/granular-usage${path}?${query}`;
  }
}

export function totalOf(counts: Counts): number {
  return [...counts.values()].reduce((sum, count) => sum + count, 0);
}

export function cellOf(bucket: string, name: string): string {
  return `${bucket}, ${name}`;
}

function countTraces(
  traces: readonly PlannedTrace[],
  bucketMs: number,
  nameOf: (trace: PlannedTrace) => string,
): Counts {
  const counts = new Map<string, number>();
  for (const trace of traces) {
    const cell = cellOf(timeOf(Math.floor(trace.startMs / bucketMs) * bucketMs), nameOf(trace));
    counts.set(cell, (counts.get(cell) ?? 0) + 1);
  }
  return counts;
}

function compareCounts(what: string, planned: Counts, counted: Counts): Comparison {
  const cells = [...new Set([...planned.keys(), ...counted.keys()])];
  const differences = cells
    .filter((cell) => planned.get(cell) !== counted.get(cell))
    .map((cell) => `${cell}: sent ${planned.get(cell) ?? 0}, counted ${counted.get(cell) ?? 0}`);
  return { what, figures: cells.length, differences };
}

/** The names of the demo contain no commas or quotes. */
function countsOfCsv(csv: string): Counts {
  const [header = '', ...lines] = csv.trim().split('\r\n');
  const columns = header.split(',');
  const column = (line: string, name: string) => line.split(',')[columns.indexOf(name)] ?? '';
  return new Map(
    lines.map((line) => [
      cellOf(column(line, 'Time Bucket Start'), column(line, 'Project Name')),
      Number(column(line, 'Traces')),
    ]),
  );
}

/** Formats a time as usage responses do, without fractions. */
export function timeOf(ms: number): string {
  return new Date(ms).toISOString().replace('.000Z', 'Z');
}
