import { Link } from '@tanstack/react-router';
import { Button } from '../../components/button.tsx';
import { formatCompact, formatCost, formatCount, formatPercent, formatSeconds } from '../../components/format.ts';
import { Icon } from '../../components/icon.tsx';
import { ActionsHead, showInvisible, Value } from '../../components/text.tsx';
import { type FeedbackFigures, formatScore, judge } from './comparison.ts';
import type { Experiment } from './use-comparison.ts';
import { Difference, formatDifference } from './verdict.tsx';

interface Figure {
  readonly label: string;
  readonly read: (experiment: Experiment) => number | undefined;
  readonly format: (value: number) => string;
  /** Unset: the figure is neither good nor bad. */
  readonly isLowerBetter?: boolean;
}

const known = (value: string | number | null | undefined) =>
  value === null || value === undefined ? undefined : Number(value);

const figures: readonly Figure[] = [
  { label: 'Runs', read: ({ run_count }) => known(run_count), format: formatCount },
  { label: 'Errors', read: ({ error_rate }) => known(error_rate), format: formatPercent, isLowerBetter: true },
  { label: 'Latency p50', read: ({ latency_p50 }) => known(latency_p50), format: formatSeconds, isLowerBetter: true },
  { label: 'p99', read: ({ latency_p99 }) => known(latency_p99), format: formatSeconds, isLowerBetter: true },
  { label: 'Tokens', read: ({ total_tokens }) => known(total_tokens), format: formatCompact, isLowerBetter: true },
  { label: 'Cost', read: ({ total_cost }) => known(total_cost), format: formatCost, isLowerBetter: true },
];

/** Returns the average score of a feedback key: of the runs, or else of the experiment itself. */
export function readScore({ feedback_stats, session_feedback_stats }: Experiment, key: string): number | undefined {
  const [ofRuns, own] = [feedback_stats, session_feedback_stats] as Record<string, FeedbackFigures>[];
  return known(ofRuns?.[key]?.avg ?? own?.[key]?.avg);
}

export function listFeedbackKeys(experiments: readonly Experiment[]): readonly string[] {
  const keys = experiments.flatMap((each) => [
    ...Object.keys(each.feedback_stats ?? {}),
    ...Object.keys(each.session_feedback_stats ?? {}),
  ]);
  return [...new Set(keys)].filter((key) => experiments.some((each) => readScore(each, key) !== undefined)).sort();
}

/** Letter of an experiment in the comparison: A, B, … */
export const labelExperiment = (index: number) => String.fromCharCode(65 + index);

/** The figures of each experiment, with the differences to the first one. */
export function ExperimentSummary({
  experiments,
  lowerIsBetter,
  onFirst,
  onRemove,
}: {
  readonly experiments: readonly Experiment[];
  readonly lowerIsBetter: ReadonlySet<string>;
  readonly onFirst: (id: string) => void;
  readonly onRemove: (id: string) => void;
}) {
  const scores = listFeedbackKeys(experiments).map(
    (key): Figure => ({
      label: key,
      read: (experiment) => readScore(experiment, key),
      format: formatScore,
      isLowerBetter: lowerIsBetter.has(key),
    }),
  );
  const columns = [...scores, ...figures];
  const [first] = experiments;
  return (
    <section className="experiment-summary" aria-label="Figures of the experiments" tabIndex={0}>
      <table className="plain-table">
        <thead>
          <tr>
            <th>Experiment</th>
            {columns.map(({ label }, index) => (
              <th key={index} className="number">
                <Value text={label} />
              </th>
            ))}
            <ActionsHead />
          </tr>
        </thead>
        <tbody>
          {experiments.map((experiment, index) => (
            <tr key={experiment.id}>
              <td className="text-cell">
                <span className="row">
                  <span className="badge">{labelExperiment(index)}</span>
                  <Link to="/projects/$projectId" params={{ projectId: experiment.id }} search={{ range: 'all' }}>
                    <Value text={experiment.name} />
                  </Link>
                </span>
              </td>
              {columns.map((figure, at) => (
                <FigureCell key={at} figure={figure} experiment={experiment} first={first} />
              ))}
              <td>
                <span className="row">
                  {index > 0 && (
                    <Button kind="quiet" onClick={() => onFirst(experiment.id)}>
                      Make first
                    </Button>
                  )}
                  {experiments.length > 1 && (
                    <Button
                      kind="quiet icon"
                      aria-label={`Remove ${showInvisible(experiment.name)}`}
                      title="Remove from the comparison"
                      onClick={() => onRemove(experiment.id)}
                    >
                      <Icon name="close" />
                    </Button>
                  )}
                </span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function FigureCell({
  figure: { read, format, isLowerBetter },
  experiment,
  first,
}: {
  readonly figure: Figure;
  readonly experiment: Experiment;
  readonly first: Experiment | undefined;
}) {
  const value = read(experiment);
  const base = first === undefined || first.id === experiment.id ? undefined : read(first);
  const verdict = isLowerBetter === undefined ? undefined : judge(base, value, isLowerBetter);
  return (
    <td className="number">
      {value === undefined ? '–' : format(value)}
      {verdict !== undefined && verdict !== 'equal' && <br />}
      <Difference verdict={verdict} text={formatDifference(base, value, format)} />
    </td>
  );
}
