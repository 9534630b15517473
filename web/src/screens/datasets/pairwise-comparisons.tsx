import { useInfiniteQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { readByOffset } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { MoreButton, Problem } from '../../components/states.tsx';
import { TextCell, TimeCell, Value } from '../../components/text.tsx';
import { type FeedbackFigures, formatScore } from './comparison.ts';

const pageSize = 50;

/** The comparative experiments of a dataset, which pairwise evaluation creates. Renders nothing if there are none. */
export function PairwiseComparisons({ datasetId }: { readonly datasetId: string }) {
  const canRead = usePermission('feedback:read');
  const comparisons = useInfiniteQuery({
    queryKey: ['dataset', datasetId, 'comparative'],
    ...readByOffset('/api/v1/datasets/{dataset_id}/comparative', pageSize, { path: { dataset_id: datasetId } }),
    enabled: canRead,
  });
  const rows = comparisons.data?.pages.flat() ?? [];
  if (rows.length === 0) return <Problem message={comparisons.error?.message} />;
  return (
    <section aria-label="Pairwise comparisons">
      <h2 className="dataset-bar">Pairwise comparisons</h2>
      <table className="plain-table">
        <thead>
          <tr>
            <th>Comparison</th>
            <th>Experiments</th>
            <th>Average scores</th>
            <th>Created</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ id, name, experiments_info, feedback_stats, created_at }) => (
            <tr key={id}>
              <td className="text-cell">
                <Link
                  to="/datasets/$datasetId/compare"
                  params={{ datasetId }}
                  search={{
                    selectedSessions: experiments_info.map((experiment) => experiment.id).join(','),
                    comparativeExperiment: id,
                  }}
                >
                  <Value text={name || 'Comparison'} />
                </Link>
              </td>
              <TextCell text={experiments_info.map((experiment) => experiment.name).join(', ')} />
              <TextCell text={describeScores(feedback_stats)} />
              <TimeCell at={created_at} />
            </tr>
          ))}
        </tbody>
      </table>
      <MoreButton pages={comparisons} label="Show older comparisons" />
    </section>
  );
}

function describeScores(stats: Readonly<Record<string, unknown>>): string {
  return Object.entries(stats as Record<string, FeedbackFigures>)
    .flatMap(([key, { avg }]) => (typeof avg === 'number' ? [`${key} ${formatScore(avg)}`] : []))
    .join(', ');
}
