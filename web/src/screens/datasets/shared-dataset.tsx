import { useQuery } from '@tanstack/react-query';
import { getRouteApi, useNavigate } from '@tanstack/react-router';
import { useMemo } from 'react';
import { readFrom } from '../../api/client.ts';
import { formatQuantity } from '../../components/format.ts';
import { Heading } from '../../components/heading.tsx';
import { SharedPage } from '../../components/shared-page.tsx';
import { NoData } from '../../components/states.tsx';
import { ExampleDetail } from './example-detail.tsx';
import { createSharedSource, useExamples } from './example-source.ts';
import { Examples } from './examples.tsx';
import '../trace/trace.css';
import './datasets.css';

const route = getRouteApi('/public/$shareToken/d');

/** The examples of a dataset that a public link shares. Needs no session. */
export function SharedDataset() {
  const { shareToken } = route.useParams();
  const { example } = route.useSearch();
  const navigate = useNavigate({ from: '/public/$shareToken/d' });
  const source = useMemo(() => createSharedSource(shareToken), [shareToken]);
  const dataset = useQuery({
    queryKey: ['shared-dataset', shareToken],
    ...readFrom('get', '/api/v1/public/{share_token}/datasets', { path: { share_token: shareToken } }),
  });
  const pages = useExamples(source, { version: undefined }, dataset.isSuccess);
  const select = (id: string | undefined) => void navigate({ search: { example: id }, replace: true });
  return (
    <SharedPage label="Shared dataset">
      {dataset.data ? (
        <>
          <header className="page-head">
            <Heading text={dataset.data.name} />
            <span className="muted">{formatQuantity(dataset.data.example_count, 'example')}</span>
          </header>
          <Examples pages={pages} selectedId={example} isFiltered={false} onSelect={select}>
            {example !== undefined && (
              <ExampleDetail
                key={example}
                source={source}
                id={example}
                version={undefined}
                onClose={() => select(undefined)}
              />
            )}
          </Examples>
        </>
      ) : (
        <NoData query={dataset} isPage />
      )}
    </SharedPage>
  );
}
