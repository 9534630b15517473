import type { ReactNode } from 'react';
import { useShortcuts } from '../../components/shortcuts.tsx';
import { EmptyState, PagesState } from '../../components/states.tsx';
import { Time, Value } from '../../components/text.tsx';
import { formatExact } from '../../components/values/exact-json.ts';
import { summarizePreview } from '../../components/values/messages.ts';
import { type TableColumn, VirtualTable } from '../../components/virtual-table.tsx';
import { type Example, listSplits, omitSplits, type useExamples } from './example-source.ts';

/** The examples of a version as a table, next to the open example. */
export function Examples({
  pages,
  selectedId,
  isFiltered,
  onSelect,
  children,
}: {
  readonly pages: ReturnType<typeof useExamples>;
  readonly selectedId: string | undefined;
  readonly isFiltered: boolean;
  readonly onSelect: (id: string | undefined) => void;
  /** The example that is open, or a form. */
  readonly children?: ReactNode;
}) {
  useShortcuts({
    'j / k': { label: 'Next or previous example' },
    Enter: { label: 'Open the example' },
    Escape: { label: 'Close the example', run: () => onSelect(undefined) },
  });
  const rows = pages.data?.pages.flat() ?? [];
  const empty = (
    <EmptyState title={isFiltered ? 'No examples match' : 'This version has no examples'}>
      {isFiltered ? 'Change or remove the filter.' : 'Choose another version.'}
    </EmptyState>
  );
  return (
    <div className={children ? 'panes open' : 'panes'}>
      <PagesState pages={pages} rows={rows} label="Loading examples" empty={empty}>
        <VirtualTable
          label="Examples"
          columns={exampleColumns}
          rows={rows}
          getKey={getKey}
          currentKey={selectedId}
          onOpen={({ id }) => onSelect(id)}
          pages={pages}
          rowName="example"
        />
      </PagesState>
      {children && <div className="pane-detail">{children}</div>}
    </div>
  );
}

const getKey = ({ id }: Example) => id;

const exampleColumns: readonly TableColumn<Example>[] = [
  { id: 'inputs', label: 'Inputs', width: 140, grow: 2, render: ({ inputs }) => <JsonPreview value={inputs} /> },
  { id: 'outputs', label: 'Outputs', width: 140, grow: 2, render: ({ outputs }) => <JsonPreview value={outputs} /> },
  {
    id: 'metadata',
    label: 'Metadata',
    width: 90,
    grow: 1,
    render: (example) => <JsonPreview value={omitSplits(example)} />,
  },
  {
    id: 'splits',
    label: 'Splits',
    width: 90,
    render: (example) => <Value text={listSplits(example).join(', ')} />,
  },
  { id: 'changed', label: 'Changed', width: 106, render: ({ modified_at }) => <Time at={modified_at} /> },
];

/** Inputs or outputs on one line: the last message or the only text, if there is one. */
function JsonPreview({ value }: { readonly value: object | null | undefined }) {
  if (value === null || value === undefined || Object.keys(value).length === 0) return null;
  const json = formatExact(value, 0);
  return <Value text={summarizePreview(json)} title={json} />;
}
