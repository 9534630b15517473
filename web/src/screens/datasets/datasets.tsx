import { keepPreviousData, useInfiniteQuery } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useDeferredValue } from 'react';
import { call } from '../../api/client.ts';
import { formatCount } from '../../components/format.ts';
import { Heading } from '../../components/heading.tsx';
import { PlainTable } from '../../components/plain-table.tsx';
import { SearchField } from '../../components/search-field.tsx';
import { EmptyState, MoreButton, PagesState } from '../../components/states.tsx';
import { TimeCell, Value } from '../../components/text.tsx';
import './datasets.css';

const route = getRouteApi('/shell/datasets');
const pageSize = 100;

export function Datasets() {
  const { name = '' } = route.useSearch();
  const navigate = useNavigate({ from: '/datasets' });
  const wanted = useDeferredValue(name);
  const datasets = useInfiniteQuery({
    queryKey: ['datasets', wanted],
    queryFn: ({ pageParam, signal }) =>
      call('get', '/api/v2/datasets', {
        query: { page_size: pageSize, cursor: pageParam, name_contains: wanted || undefined },
        signal,
      }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ next_cursor }) => next_cursor ?? undefined,
    placeholderData: keepPreviousData,
  });
  const rows = datasets.data?.pages.flatMap(({ items }) => items) ?? [];
  const empty =
    name === '' ? (
      <EmptyState title="There are no datasets yet">
        Create one with <code>client.createDataset(name)</code> of the SDK.
      </EmptyState>
    ) : (
      <EmptyState title="No dataset has this name">Change or clear the search.</EmptyState>
    );
  return (
    <>
      <header className="page-head">
        <Heading text="Datasets" />
        <span className="spacer" />
        <SearchField
          label="Find a dataset"
          value={name}
          onChange={(text) => void navigate({ search: { name: text || undefined }, replace: true })}
        />
      </header>
      <PagesState pages={datasets} rows={rows} label="Loading datasets" empty={empty}>
        <PlainTable
          label="Datasets"
          columns={[
            'Name',
            'Description',
            { number: 'Examples' },
            { number: 'Experiments' },
            'Last experiment',
            'Changed',
          ]}
          footer={<MoreButton pages={datasets} label="Show more datasets" />}
        >
          {rows.map(({ id, name, description, example_count, session_count, last_session_start_time, modified_at }) => (
            <tr key={id}>
              <td className="text-cell">
                <Link to="/datasets/$datasetId" params={{ datasetId: id }}>
                  <Value text={name} />
                </Link>
              </td>
              <td className="text-cell muted">
                <Value text={description ?? ''} />
              </td>
              <td className="number">{formatCount(example_count)}</td>
              <td className="number">{formatCount(session_count)}</td>
              <TimeCell at={last_session_start_time} />
              <TimeCell at={modified_at} />
            </tr>
          ))}
        </PlainTable>
      </PagesState>
    </>
  );
}
