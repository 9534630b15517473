import type { Run } from 'langsmith/schemas';
import { type Counts, cellOf, timeOf } from './usage.ts';

/** A progress bar on a terminal, else a line at every quarter. */
export class ProgressBar {
  readonly #total: number;
  readonly #moves = process.stdout.isTTY === true;
  readonly #startedMs = Date.now();
  #quarter = 0;

  constructor(total: number) {
    this.#total = total;
  }

  update(done: number, note: string): void {
    const seconds = ((Date.now() - this.#startedMs) / 1_000).toFixed(1);
    const text = `${done.toLocaleString('en')} of ${this.#total.toLocaleString('en')} traces, ${note}, ${seconds} s`;
    if (this.#moves) {
      const width = 24;
      const full = Math.round((width * done) / this.#total);
      process.stdout.write(`\r  ${'█'.repeat(full)}${'░'.repeat(width - full)}  ${text}\x1b[K`);
      if (done === this.#total) process.stdout.write('\n');
      return;
    }
    const quarter = Math.floor((4 * done) / this.#total);
    if (quarter === this.#quarter) return;
    this.#quarter = quarter;
    console.log(`  ${text}`);
  }
}

/** Usage by day (rows) and project (columns) with totals. */
export function usageTable(counts: Counts, firstDayMs: number, days: number): string {
  const projects = [...new Set([...counts.keys()].map((cell) => cell.split(', ')[1] ?? ''))].sort();
  const rows = Array.from({ length: days }, (_, day) => {
    const bucket = timeOf(firstDayMs + day * 24 * 3_600_000);
    const cells = projects.map((project) => counts.get(cellOf(bucket, project)) ?? 0);
    return { label: bucket.slice(0, 10), cells: [...cells, sum(cells)] };
  });
  const totals = [...projects, 'total'].map((_, column) => sum(rows.map(({ cells }) => cells[column] ?? 0)));
  const heads = ['day', ...projects, 'total'];
  const widths = heads.map((head, column) => Math.max(head.length, column === 0 ? 10 : 6));
  const line = (cells: readonly (string | number)[]) =>
    `  ${cells
      .map((cell, column) => {
        const text = typeof cell === 'number' ? (cell === 0 ? '·' : cell.toLocaleString('en')) : cell;
        return column === 0 ? text.padEnd(widths[column] ?? 0) : text.padStart(widths[column] ?? 0);
      })
      .join('  ')}`;
  const rule = `  ${widths.map((width) => '─'.repeat(width)).join('  ')}`;
  return [
    line(heads),
    rule,
    ...rows.map(({ label, cells }) => line([label, ...cells])),
    rule,
    line(['total', ...totals]),
  ].join('\n');
}

/** The totals of the exported files from DuckDB, one line for each project. */
export function exportTable(rows: readonly Readonly<Record<string, unknown>>[]): string {
  const columns = ['project', 'runs', 'traces', 'failed', 'tokens', 'cost', 'seconds'];
  const cells = rows.map((row) =>
    columns.map((column) => {
      const value = row[column];
      if (column === 'cost') return `$${value}`;
      if (column === 'seconds') return Number(value).toFixed(2);
      return /^\d+$/.test(String(value)) ? Number(value).toLocaleString('en') : String(value);
    }),
  );
  const widths = columns.map((head, column) =>
    Math.max(head.length, ...cells.map((line) => line[column]?.length ?? 0)),
  );
  const lineOf = (line: readonly string[]) =>
    `  ${line.map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0))).join('  ')}`;
  const rule = `  ${widths.map((width) => '─'.repeat(width)).join('  ')}`;
  return [lineOf(columns), rule, ...cells.map(lineOf)].join('\n');
}

/** A trace as a tree of runs with durations and tokens. */
export function traceTree(runs: readonly Run[]): string {
  const lines: { tree: string; run: Run }[] = [];
  const add = (run: Run, branch: string, indent: string) => {
    lines.push({ tree: `${branch}${run.name} (${run.run_type})`, run });
    const inside = runs
      .filter(({ parent_run_id: parent }) => parent === run.id)
      .sort((a, b) => String(a.dotted_order).localeCompare(String(b.dotted_order)));
    for (const [index, child] of inside.entries()) {
      const last = index === inside.length - 1;
      add(child, `${indent}${last ? '└─ ' : '├─ '}`, `${indent}${last ? '   ' : '│  '}`);
    }
  };
  for (const root of runs.filter(({ parent_run_id: parent }) => !parent)) add(root, '', '');
  const width = Math.max(...lines.map(({ tree }) => tree.length));
  return lines.map(({ tree, run }) => `  ${tree.padEnd(width)}  ${figuresOf(run)}`).join('\n');
}

function figuresOf(run: Run): string {
  const seconds = (Date.parse(String(run.end_time)) - Date.parse(String(run.start_time))) / 1_000;
  const duration = `${seconds.toFixed(2)} s`.padStart(8);
  const { prompt_tokens: input, completion_tokens: output, total_tokens: total } = run;
  const tokens = total ? `${total.toLocaleString('en')} tokens (${input} in, ${output} out)` : '';
  return [duration, tokens, run.error ? `✗ ${run.error}` : ''].filter((text) => text !== '').join('  ');
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
