import { useQuery } from '@tanstack/react-query';
import { getRouteApi, useNavigate } from '@tanstack/react-router';
import { call, readFrom } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { Crumb } from '../../components/crumb.tsx';
import { formatQuantity } from '../../components/format.ts';
import { Heading } from '../../components/heading.tsx';
import { ShareMenu } from '../../components/share-menu.tsx';
import { ErrorState, Permitted } from '../../components/states.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { Value } from '../../components/text.tsx';
import { DatasetExamples } from './dataset-examples.tsx';
import { Experiments } from './experiments.tsx';
import type { DatasetSearch } from './search.ts';
import { Versions } from './versions.tsx';
import '../trace/trace.css';
import './datasets.css';

const route = getRouteApi('/shell/datasets/$datasetId');
const tabs = ['Examples', 'Experiments', 'Versions'] as const;

/** A dataset: its examples, versions and experiments. */
export function Dataset() {
  const { datasetId } = route.useParams();
  const search = route.useSearch();
  const navigate = useNavigate({ from: '/datasets/$datasetId' });
  const change = (changes: DatasetSearch) =>
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  const dataset = useQuery({
    queryKey: ['dataset', datasetId],
    ...readFrom('get', '/api/v1/datasets/{dataset_id}', { path: { dataset_id: datasetId } }),
  });
  if (dataset.error && !dataset.data)
    return <ErrorState isPage error={dataset.error} onRetry={() => void dataset.refetch()} />;
  const selected = tabs.find((each) => each === search.tab) ?? 'Examples';
  return (
    <div className="dataset">
      <header className="page-head">
        <Crumb to="/datasets" label="Datasets" />
        <Heading text={dataset.data?.name ?? '…'} />
        {dataset.data && <span className="muted">{formatQuantity(dataset.data.example_count, 'example')}</span>}
        <span className="spacer" />
        <ShareButton datasetId={datasetId} />
      </header>
      {dataset.data?.description && (
        <p className="dataset-description muted">
          <Value text={dataset.data.description} />
        </p>
      )}
      <Tabs label="Parts of the dataset" tabs={tabs} selected={selected} onSelect={(tab) => change({ tab })}>
        {selected === 'Examples' && <DatasetExamples datasetId={datasetId} search={search} onChange={change} />}
        {selected === 'Experiments' && (
          <Permitted permission="projects:read">
            <Experiments datasetId={datasetId} search={search} onChange={change} />
          </Permitted>
        )}
        {selected === 'Versions' && <Versions datasetId={datasetId} search={search} onChange={change} />}
      </Tabs>
    </div>
  );
}

function ShareButton({ datasetId }: { readonly datasetId: string }) {
  const path = { dataset_id: datasetId };
  if (!usePermission('datasets:share')) return null;
  return (
    <ShareMenu
      what="dataset"
      queryKey={['dataset', datasetId, 'share']}
      readToken={async (signal) =>
        (await call('get', '/api/v1/datasets/{dataset_id}/share', { path, signal }))?.share_token
      }
      share={() => call('put', '/api/v1/datasets/{dataset_id}/share', { path })}
      unshare={() => call('delete', '/api/v1/datasets/{dataset_id}/share', { path })}
      page="d"
    />
  );
}
