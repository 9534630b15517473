import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useMemo } from 'react';
import { readFrom } from '../../api/client.ts';
import { Crumb, CrumbSeparator } from '../../components/crumb.tsx';
import { Heading } from '../../components/heading.tsx';
import { EmptyState, ErrorState, LoadingState } from '../../components/states.tsx';
import { Value } from '../../components/text.tsx';
import { CompareTable } from './compare-table.tsx';
import { ExperimentSummary, listFeedbackKeys } from './experiment-summary.tsx';
import type { CompareSearch } from './search.ts';
import { maxExperiments, useComparison, useExperiments, useLowerIsBetter } from './use-comparison.ts';
import '../trace/trace.css';
import './datasets.css';
import './compare.css';

const route = getRouteApi('/shell/datasets/$datasetId/compare');

/** Experiments on a dataset side by side. */
export function Compare() {
  const { datasetId } = route.useParams();
  const search = route.useSearch();
  const navigate = useNavigate({ from: '/datasets/$datasetId/compare' });
  const change = (changes: CompareSearch) =>
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  const ids = useMemo(
    () => [...new Set(search.selectedSessions?.split(',') ?? [])].slice(0, maxExperiments),
    [search.selectedSessions],
  );
  const dataset = useQuery({
    queryKey: ['dataset', datasetId],
    ...readFrom('get', '/api/v1/datasets/{dataset_id}', { path: { dataset_id: datasetId } }),
    placeholderData: keepPreviousData,
  });
  const experiments = useExperiments(datasetId, ids);
  const lowerIsBetter = useLowerIsBetter(listFeedbackKeys(experiments.data ?? []));
  const comparison = useComparison(datasetId, ids, search, lowerIsBetter.data);
  if (dataset.error && !dataset.data)
    return <ErrorState isPage error={dataset.error} onRetry={() => void dataset.refetch()} />;
  const select = (next: readonly string[]) => change({ selectedSessions: next.join(',') || undefined });
  return (
    <div className="dataset">
      <header className="page-head">
        <Crumb to="/datasets" label="Datasets" />
        <Link to="/datasets/$datasetId" params={{ datasetId }} search={{ tab: 'Experiments' }} className="crumb clip">
          <Value text={dataset.data?.name ?? '…'} />
        </Link>
        <CrumbSeparator />
        <Heading text="Experiments" />
        <span className="spacer" />
        <Link
          to="/datasets/$datasetId"
          params={{ datasetId }}
          search={{ tab: 'Experiments', chosen: ids.join(',') || undefined }}
          className="button"
        >
          Choose experiments
        </Link>
      </header>
      {ids.length === 0 ? (
        <EmptyState title="No experiments are chosen">
          <Link to="/datasets/$datasetId" params={{ datasetId }} search={{ tab: 'Experiments' }}>
            Choose those to compare.
          </Link>
        </EmptyState>
      ) : experiments.error && !experiments.data ? (
        <ErrorState error={experiments.error} onRetry={() => void experiments.refetch()} />
      ) : lowerIsBetter.error && !lowerIsBetter.data ? (
        <ErrorState error={lowerIsBetter.error} onRetry={() => void lowerIsBetter.refetch()} />
      ) : experiments.data === undefined || lowerIsBetter.data === undefined ? (
        <LoadingState />
      ) : (
        <>
          <ExperimentSummary
            experiments={experiments.data}
            lowerIsBetter={lowerIsBetter.data}
            onFirst={(id) => select([id, ...ids.filter((each) => each !== id)])}
            onRemove={(id) => select(ids.filter((each) => each !== id))}
          />
          <CompareTable
            experiments={experiments.data}
            ids={ids}
            comparison={comparison}
            lowerIsBetter={lowerIsBetter.data}
            search={search}
            onChange={change}
          />
        </>
      )}
    </div>
  );
}
