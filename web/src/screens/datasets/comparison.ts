import { formatExact } from '../../components/values/exact-json.ts';
import type { Example } from './example-source.ts';

/** Results of experiments by example, compared with those of the first experiment. */

export interface FeedbackFigures {
  readonly n?: number;
  readonly avg?: number | null;
  /** Labels with their counts. */
  readonly values?: Readonly<Record<string, number>>;
}

export interface ExperimentRun {
  readonly id: string;
  readonly project_id: string;
  readonly status?: string;
  readonly error_preview?: string | null;
  readonly outputs?: unknown;
  readonly latency_seconds?: number | null;
  readonly total_tokens?: number | null;
  readonly total_cost?: number | null;
  readonly feedback_stats?: Readonly<Record<string, FeedbackFigures>> | null;
}

export interface ExampleWithRuns extends Example {
  readonly runs: readonly ExperimentRun[];
}

/** The runs of one experiment on one example. An experiment with repetitions has several. */
export interface Cell {
  readonly runs: readonly ExperimentRun[];
  /** Average score of the runs by feedback key. */
  readonly scores: ReadonlyMap<string, number>;
  /** Labels of feedback without scores. */
  readonly labels: ReadonlyMap<string, string>;
  readonly errors: number;
}

export interface ComparedExample {
  readonly example: Example;
  /** In the order of the experiments. */
  readonly cells: readonly Cell[];
  readonly isDifferent: boolean;
  readonly isRegression: boolean;
}

export type Verdict = 'better' | 'worse' | 'equal';

/** Differences of averages below this are rounding errors. */
const minDifference = 1e-9;

/** Compares a figure with that of the first experiment; undefined if one of them has none. */
export function judge(
  first: number | undefined,
  other: number | undefined,
  isLowerBetter: boolean,
): Verdict | undefined {
  if (first === undefined || other === undefined) return undefined;
  if (Math.abs(other - first) < minDifference) return 'equal';
  return other < first === isLowerBetter ? 'better' : 'worse';
}

/** Arranges the runs of an example by experiment. `lowerIsBetter` has the feedback keys whose low scores are good. */
export function compareExample(
  { runs, ...example }: ExampleWithRuns,
  experimentIds: readonly string[],
  lowerIsBetter: ReadonlySet<string>,
): ComparedExample {
  const cells = experimentIds.map((id) => createCell(runs.filter(({ project_id }) => project_id === id)));
  const [first, ...others] = cells;
  const comparisons = first === undefined ? [] : others.map((other) => compareCells(first, other, lowerIsBetter));
  return {
    example,
    cells,
    isDifferent: comparisons.some(({ isDifferent }) => isDifferent),
    isRegression: comparisons.some(({ isRegression }) => isRegression),
  };
}

function createCell(runs: readonly ExperimentRun[]): Cell {
  const scores = new Map<string, number[]>();
  const labels = new Map<string, string>();
  for (const { feedback_stats } of runs)
    for (const [key, { avg, values }] of Object.entries(feedback_stats ?? {})) {
      if (typeof avg === 'number') scores.set(key, [...(scores.get(key) ?? []), avg]);
      else if (values && Object.keys(values).length > 0) labels.set(key, Object.keys(values).join(', '));
    }
  return {
    runs,
    scores: new Map([...scores].map(([key, all]) => [key, all.reduce((sum, each) => sum + each, 0) / all.length])),
    labels,
    errors: runs.filter(({ status }) => status === 'ERROR').length,
  };
}

function compareCells(first: Cell, other: Cell, lowerIsBetter: ReadonlySet<string>) {
  // An experiment without a run of the example has no differences.
  if (first.runs.length === 0 || other.runs.length === 0) return { isDifferent: false, isRegression: false };
  const keys = new Set([...first.scores.keys(), ...other.scores.keys()]);
  const verdicts = [...keys].map((key) => judge(first.scores.get(key), other.scores.get(key), lowerIsBetter.has(key)));
  const shares = [first, other].map(({ errors, runs }) => errors / runs.length);
  const errors = judge(shares[0], shares[1], true);
  return {
    isDifferent:
      describeOutputs(first) !== describeOutputs(other) ||
      describeLabels(first) !== describeLabels(other) ||
      [...verdicts, errors].some((verdict) => verdict !== 'equal'),
    isRegression: [...verdicts, errors].includes('worse'),
  };
}

/** Returns the outputs of all runs as a text that is equal for equal outputs. The order of repetitions is ignored. */
function describeOutputs({ runs }: Cell): string {
  const texts = runs.map(({ status, outputs }) => `${status} ${formatExact(sortKeys(outputs ?? null), 0)}`);
  return texts.sort().join('\n');
}

function describeLabels({ labels }: Cell): string {
  return [...labels]
    .map((entry) => entry.join(' '))
    .sort()
    .join('\n');
}

/** Returns a JSON value with the members of its objects in order. */
function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (typeof value !== 'object' || value === null || Object.getPrototypeOf(value) !== Object.prototype) return value;
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, each]) => [key, sortKeys(each)]));
}

/** Average of the figures that are known. */
export function average(values: readonly (number | null | undefined)[]): number | undefined {
  const known = values.filter((value): value is number => typeof value === 'number');
  return known.length === 0 ? undefined : known.reduce((sum, each) => sum + each, 0) / known.length;
}

export function formatScore(score: number): string {
  return String(Number(score.toFixed(3)));
}
