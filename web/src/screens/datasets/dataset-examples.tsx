import { useQuery } from '@tanstack/react-query';
import { type FormEvent, type ReactNode, useMemo } from 'react';
import { readFrom } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { Button } from '../../components/button.tsx';
import { readForm } from '../../components/read-form.ts';
import { SearchField } from '../../components/search-field.tsx';
import { Select } from '../../components/select.tsx';
import { EmptyState, PartProblem, QueryState } from '../../components/states.tsx';
import { ExampleDetail } from './example-detail.tsx';
import { ExampleForm } from './example-form.tsx';
import { createDatasetSource, useExamples } from './example-source.ts';
import { Examples } from './examples.tsx';
import type { DatasetSearch, DatasetTab } from './search.ts';
import { useVersions, type Version } from './use-versions.ts';
import { VersionSelect } from './version-select.tsx';

/** The examples of a version of a dataset. Those of the newest version can be changed. */
export function DatasetExamples({ datasetId, search, onChange }: DatasetTab) {
  const canUpdate = usePermission('datasets:update');
  const versions = useVersions(datasetId);
  return (
    <QueryState query={versions}>
      {({ pages }) => (
        <ExamplesOfVersion
          datasetId={datasetId}
          versions={pages.flat()}
          canEdit={canUpdate && search.version === undefined}
          search={search}
          onChange={onChange}
        />
      )}
    </QueryState>
  );
}

function ExamplesOfVersion({
  datasetId,
  versions,
  canEdit,
  search,
  onChange,
}: DatasetTab & { readonly versions: readonly Version[]; readonly canEdit: boolean }) {
  const { split, text, example } = search;
  const source = useMemo(() => createDatasetSource(datasetId), [datasetId]);
  // All pages are read from the same version, so that concurrent changes do not move examples between pages.
  const version = search.version ?? versions[0]?.as_of;
  const pages = useExamples(source, { version, split, text }, version !== undefined);
  const close = () => onChange({ example: undefined });
  return (
    <>
      <ExampleFilters datasetId={datasetId} versions={versions} search={search} onChange={onChange}>
        {canEdit && (
          <Button kind="primary" onClick={() => onChange({ example: 'new' })}>
            Add an example
          </Button>
        )}
      </ExampleFilters>
      {version === undefined && example !== 'new' ? (
        <EmptyState title="The dataset has no examples yet">
          {canEdit ? 'Add one here, or with ' : 'Add one with '}
          <code>client.createExamples(…)</code> of the SDK.
        </EmptyState>
      ) : version === undefined ? (
        <div className="pane-detail">
          <ExampleForm datasetId={datasetId} onSaved={(id) => onChange({ example: id })} onCancel={close} />
        </div>
      ) : (
        <Examples
          pages={pages}
          selectedId={example}
          isFiltered={split !== undefined || text !== undefined}
          onSelect={(id) => onChange({ example: id })}
        >
          {example === 'new' && canEdit ? (
            <ExampleForm datasetId={datasetId} onSaved={(id) => onChange({ example: id })} onCancel={close} />
          ) : example !== undefined && example !== 'new' ? (
            <ExampleDetail
              key={example}
              source={source}
              id={example}
              version={version}
              editsDatasetId={canEdit ? datasetId : undefined}
              onClose={close}
            />
          ) : null}
        </Examples>
      )}
    </>
  );
}

function ExampleFilters({
  datasetId,
  versions,
  search: { version, split, text },
  onChange,
  children,
}: {
  readonly datasetId: string;
  readonly versions: readonly Version[];
  readonly search: DatasetSearch;
  readonly onChange: (changes: DatasetSearch) => void;
  readonly children: ReactNode;
}) {
  const splits = useQuery({
    queryKey: ['dataset', datasetId, 'splits', version],
    ...readFrom('get', '/api/v1/datasets/{dataset_id}/splits', {
      path: { dataset_id: datasetId },
      query: { as_of: version },
    }),
  });
  const find = (event: FormEvent<HTMLFormElement>) => {
    onChange({ text: readForm(event)('text') || undefined });
  };
  const listed = [...new Set([...(splits.data ?? []), ...(split === undefined ? [] : [split])])];
  return (
    <div className="row wrap dataset-bar">
      <form onSubmit={find} role="search">
        <SearchField
          key={text}
          name="text"
          label="Find in inputs and outputs"
          size={26}
          value={text}
          maxLength={1000}
        />
      </form>
      <Select
        aria-label="Split"
        value={split ?? ''}
        onChange={(chosen) => onChange({ split: chosen || undefined })}
        options={[['', 'All splits'], ...listed.map((each) => [each, each.slice(0, 100)] as const)]}
      />
      <VersionSelect
        label="Version"
        fallback="Newest version"
        versions={versions}
        version={version}
        onSelect={(next) => onChange({ version: next, example: undefined })}
      />
      {version !== undefined && <span className="muted">Only the newest version can be changed.</span>}
      <PartProblem what="The splits" query={splits} />
      <span className="spacer" />
      {children}
    </div>
  );
}
