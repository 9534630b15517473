import { keepPreviousData, useInfiniteQuery } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { readByOffset } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { Button } from '../../components/button.tsx';
import { formatCost, formatCount, formatPercent, formatSeconds } from '../../components/format.ts';
import { EmptyState, MoreButton, NoData } from '../../components/states.tsx';
import { showInvisible, TimeCell, Value } from '../../components/text.tsx';
import { formatScore } from './comparison.ts';
import { listFeedbackKeys, readScore } from './experiment-summary.tsx';
import { PairwiseComparisons } from './pairwise-comparisons.tsx';
import type { DatasetTab } from './search.ts';
import { type Experiment, experimentStats, maxExperiments } from './use-comparison.ts';

const pageSize = 50;

/** The experiments on a dataset. The viewer can select some of them to compare. */
export function Experiments({ datasetId, search, onChange }: DatasetTab) {
  const navigate = useNavigate();
  const canReadRuns = usePermission('runs:read');
  const experiments = useInfiniteQuery({
    queryKey: ['dataset', datasetId, 'experiments'],
    ...readByOffset('/api/v1/sessions', pageSize, {
      query: {
        reference_dataset: [datasetId],
        ...(canReadRuns ? { include_stats: true, stats_select: [...experimentStats] } : {}),
      },
    }),
    placeholderData: keepPreviousData,
  });
  if (!experiments.data) return <NoData query={experiments} label="Loading experiments" />;
  const rows = experiments.data.pages.flat();
  if (rows.length === 0)
    return (
      <EmptyState title="There are no experiments on this dataset yet">
        <code>evaluate(…)</code> of the SDK runs one.
      </EmptyState>
    );
  const chosen = search.chosen?.split(',') ?? [];
  const keys = listFeedbackKeys(rows);
  const choose = (id: string, isChosen: boolean) => {
    const next = isChosen ? [...chosen, id] : chosen.filter((each) => each !== id);
    onChange({ chosen: next.join(',') || undefined });
  };
  return (
    <>
      <div className="row wrap dataset-bar">
        <span className="muted">Choose up to {maxExperiments} experiments. The others are compared to the first.</span>
        <span className="spacer" />
        <Button
          kind="primary"
          disabled={chosen.length === 0}
          onClick={() =>
            void navigate({
              to: '/datasets/$datasetId/compare',
              params: { datasetId },
              search: { selectedSessions: chosen.join(',') },
            })
          }
        >
          Compare {chosen.length > 0 && chosen.length}
        </Button>
      </div>
      <section className="table-scroll" tabIndex={0} aria-label="Experiments">
        <table className="plain-table">
          <thead>
            <tr>
              <th>Experiment</th>
              <th>Start</th>
              {keys.map((key) => (
                <th key={key} className="number">
                  <Value text={key} />
                </th>
              ))}
              <th className="number">Runs</th>
              <th className="number">Errors</th>
              <th className="number">Latency p50</th>
              <th className="number">Tokens</th>
              <th className="number">Cost</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((experiment) => (
              <ExperimentRow
                key={experiment.id}
                experiment={experiment}
                keys={keys}
                datasetId={datasetId}
                isChosen={chosen.includes(experiment.id)}
                isFull={chosen.length >= maxExperiments}
                onChoose={choose}
              />
            ))}
          </tbody>
        </table>
        <MoreButton pages={experiments} label="Show older experiments" />
        <PairwiseComparisons datasetId={datasetId} />
      </section>
    </>
  );
}

function ExperimentRow({
  experiment,
  keys,
  datasetId,
  isChosen,
  isFull,
  onChoose,
}: {
  readonly experiment: Experiment;
  readonly keys: readonly string[];
  readonly datasetId: string;
  readonly isChosen: boolean;
  readonly isFull: boolean;
  readonly onChoose: (id: string, isChosen: boolean) => void;
}) {
  const { id, name, start_time, run_count, error_rate, latency_p50, total_tokens, total_cost } = experiment;
  return (
    <tr>
      <td className="text-cell">
        <span className="row">
          <input
            type="checkbox"
            aria-label={`Choose ${showInvisible(name)}`}
            checked={isChosen}
            disabled={isFull && !isChosen}
            onChange={({ target }) => onChoose(id, target.checked)}
          />
          <Link to="/datasets/$datasetId/compare" params={{ datasetId }} search={{ selectedSessions: id }}>
            <Value text={name} />
          </Link>
        </span>
      </td>
      <TimeCell at={start_time} />
      {keys.map((key) => (
        <td key={key} className="number">
          {formatKnown(readScore(experiment, key))}
        </td>
      ))}
      <td className="number">{formatCount(run_count)}</td>
      <td className={error_rate ? 'number error-text' : 'number'}>{formatPercent(error_rate)}</td>
      <td className="number">{formatSeconds(latency_p50)}</td>
      <td className="number">{formatCount(total_tokens)}</td>
      <td className="number">{formatCost(total_cost)}</td>
    </tr>
  );
}

function formatKnown(score: number | undefined): string {
  return score === undefined ? '–' : formatScore(score);
}
