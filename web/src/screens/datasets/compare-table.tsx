import { useMemo } from 'react';
import { Choices } from '../../components/choices.tsx';
import { formatCost, formatCount, formatQuantity, formatSeconds } from '../../components/format.ts';
import { useShortcuts } from '../../components/shortcuts.tsx';
import { EmptyState, ErrorState, LoadingState } from '../../components/states.tsx';
import { showInvisible, Value } from '../../components/text.tsx';
import { formatExact } from '../../components/values/exact-json.ts';
import { summarizePreview } from '../../components/values/messages.ts';
import { type TableColumn, VirtualTable } from '../../components/virtual-table.tsx';
import { CompareDetail } from './compare-detail.tsx';
import { average, type Cell, type ComparedExample, formatScore, judge } from './comparison.ts';
import { labelExperiment } from './experiment-summary.tsx';
import type { CompareSearch } from './search.ts';
import type { Experiment, useComparison } from './use-comparison.ts';
import { Difference, formatDifference } from './verdict.tsx';

const rowHeight = 96;
const maxPreview = 600;
const filters = [
  { value: undefined, label: 'All' },
  { value: 'differences', label: 'Differences' },
  { value: 'regressions', label: 'Regressions' },
] as const;

/** A row for each example: its reference outputs and the outputs of each experiment. */
export function CompareTable({
  experiments,
  ids,
  comparison: { pages, compared, rows },
  lowerIsBetter,
  search: { show, example },
  onChange,
}: {
  readonly experiments: readonly Experiment[];
  readonly ids: readonly string[];
  readonly comparison: ReturnType<typeof useComparison>;
  readonly lowerIsBetter: ReadonlySet<string>;
  readonly search: CompareSearch;
  readonly onChange: (changes: CompareSearch) => void;
}) {
  const columns = useMemo(() => buildColumns(experiments, ids, lowerIsBetter), [experiments, ids, lowerIsBetter]);
  const { hasNextPage } = pages;
  useShortcuts({
    'j / k': { label: 'Next or previous example' },
    Enter: { label: 'Open the example' },
    Escape: { label: 'Close the example', run: () => onChange({ example: undefined }) },
  });
  const open = compared.find((each) => each.example.id === example);
  return (
    <>
      <div className="row wrap dataset-bar">
        <Choices
          label="Examples to show"
          choices={filters.map((filter) => ({
            ...filter,
            disabled: filter.value !== undefined && ids.length < 2,
          }))}
          chosen={show}
          onChoose={(value) => onChange({ show: value })}
        />
        {show !== undefined && (
          <span className="muted" role="status">
            {formatCount(rows.length)} of {formatQuantity(compared.length, 'example')}
            {hasNextPage && ' that are loaded'}
          </span>
        )}
      </div>
      <div className={open ? 'panes stacked open' : 'panes stacked'}>
        {pages.error && compared.length === 0 ? (
          <ErrorState error={pages.error} onRetry={() => void pages.refetch()} />
        ) : pages.isPending || (rows.length === 0 && hasNextPage && !pages.isError) ? (
          <LoadingState label="Comparing the experiments" />
        ) : rows.length === 0 ? (
          <EmptyState
            title={
              show === 'regressions'
                ? 'No example got worse'
                : show === 'differences'
                  ? 'The experiments do not differ'
                  : 'The dataset has no examples'
            }
          >
            {show === undefined ? 'Add examples to the dataset first.' : 'Show all examples to see their scores.'}
          </EmptyState>
        ) : (
          <VirtualTable
            label="Examples"
            columns={columns}
            rows={rows}
            getKey={getKey}
            rowHeight={rowHeight}
            currentKey={example}
            onOpen={(row) => onChange({ example: getKey(row) })}
            pages={pages}
            rowName="example"
          />
        )}
        {open && (
          <CompareDetail
            row={open}
            experiments={experiments}
            ids={ids}
            onClose={() => onChange({ example: undefined })}
          />
        )}
      </div>
    </>
  );
}

const getKey = ({ example }: ComparedExample) => example.id;

function buildColumns(
  experiments: readonly Experiment[],
  ids: readonly string[],
  lowerIsBetter: ReadonlySet<string>,
): readonly TableColumn<ComparedExample>[] {
  return [
    { id: 'inputs', label: 'Inputs', width: 160, grow: 1, render: ({ example }) => <Preview value={example.inputs} /> },
    {
      id: 'reference',
      label: 'Reference',
      width: 160,
      grow: 1,
      render: ({ example }) => <Preview value={example.outputs} />,
    },
    ...ids.map((id, index): TableColumn<ComparedExample> => {
      const name = experiments.find((each) => each.id === id)?.name ?? id;
      return {
        id,
        label: `${labelExperiment(index)}  ${showInvisible(name)}`,
        width: 200,
        grow: 1.4,
        render: ({ cells }) => (
          <ResultCell cell={cells[index]} first={index === 0 ? undefined : cells[0]} lowerIsBetter={lowerIsBetter} />
        ),
      };
    }),
  ];
}

function Preview({ value }: { readonly value: unknown }) {
  if (value === null || value === undefined) return <span className="muted">–</span>;
  const json = formatExact(value, 0);
  return (
    <span className="value cell-text" title={showInvisible(json.slice(0, maxPreview))}>
      {showInvisible(summarizePreview(json).slice(0, maxPreview))}
    </span>
  );
}

function ResultCell({
  cell,
  first,
  lowerIsBetter,
}: {
  readonly cell: Cell | undefined;
  /** Unset for the first experiment. */
  readonly first: Cell | undefined;
  readonly lowerIsBetter: ReadonlySet<string>;
}) {
  const [run] = cell?.runs ?? [];
  if (cell === undefined || run === undefined) return <span className="muted">No run</span>;
  return (
    <div className="result-cell">
      {run.error_preview ? (
        <span className="cell-text error-text">✕ {showInvisible(run.error_preview.slice(0, maxPreview))}</span>
      ) : run.status === 'PENDING' ? (
        <span className="muted">The run has not ended.</span>
      ) : (
        <Preview value={run.outputs} />
      )}
      <span className="cell-marks">
        {[...cell.scores].map(([key, score]) => (
          <span key={key} className="chip">
            <Value text={key} /> {formatScore(score)}{' '}
            <Difference
              verdict={judge(first?.scores.get(key), score, lowerIsBetter.has(key))}
              text={formatDifference(first?.scores.get(key), score, formatScore)}
            />
          </span>
        ))}
        {[...cell.labels].map(([key, label]) => (
          <span key={key} className="chip">
            <Value text={`${key} ${label}`} />
          </span>
        ))}
      </span>
      <span className="cell-marks muted">
        {cell.runs.length > 1 && `${cell.runs.length} runs · `}
        {formatSeconds(average(cell.runs.map(({ latency_seconds }) => latency_seconds)))}
        {Boolean(run.total_tokens) && ` · ${formatCount(run.total_tokens)} tokens`}
        {Boolean(run.total_cost) && ` · ${formatCost(run.total_cost)}`}
      </span>
    </div>
  );
}
