import {
  type ColumnDef,
  type ColumnVisibilityState,
  columnVisibilityFeature,
  FlexRender,
  type Row,
  tableFeatures,
  useTable,
} from '@tanstack/react-table';
import { useVirtualizer } from '@tanstack/react-virtual';
import { type KeyboardEvent, type MouseEvent, memo, type ReactNode, useEffect, useMemo, useRef } from 'react';
import { formatQuantity } from './format.ts';
import { PagesFooter, type TablePages } from './states.tsx';
import './virtual-table.css';

const features = tableFeatures({ columnVisibilityFeature });
const defaultRowHeight = 32;
const columnGap = 12;
const allColumns: ColumnVisibilityState = {};
/** The next page is requested when fewer rows than this remain below the last visible row. */
const prefetchRows = 40;

export interface TableColumn<T> {
  readonly id: string;
  readonly label: string;
  /** Minimum width in pixels. */
  readonly width: number;
  /** Share of the remaining width. Default: the column has its minimum width. */
  readonly grow?: number;
  readonly isNumber?: boolean;
  readonly render: (row: T) => ReactNode;
}

interface VirtualTableProps<T> {
  readonly label: string;
  readonly columns: readonly TableColumn<T>[];
  /** Columns that are not shown. Default: all are shown. */
  readonly visibility?: ColumnVisibilityState | undefined;
  readonly rows: readonly T[];
  readonly getKey: (row: T) => string;
  /** Height of each row in pixels. */
  readonly rowHeight?: number;
  /** Key of the row whose details are open next to the table. */
  readonly currentKey?: string | undefined;
  readonly onOpen: (row: T) => void;
  /** The next one is loaded near the end of the rows. */
  readonly pages: TablePages;
  /** What a row is, such as `run`. */
  readonly rowName: string;
}

/**
 * A table that renders only the rows in view. Arrow keys, `j` and `k` move the selection; Enter opens the selected row.
 */
export function VirtualTable<T>(props: VirtualTableProps<T>) {
  const { label, columns, visibility = allColumns, rows, getKey, rowHeight = defaultRowHeight, currentKey } = props;
  const { onOpen, pages, rowName } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const definitions = useMemo(
    () =>
      columns.map(
        (column): ColumnDef<typeof features, T & object> => ({
          id: column.id,
          header: column.label,
          cell: ({ row }) => column.render(row.original),
        }),
      ),
    [columns],
  );
  const table = useTable({
    features,
    columns: definitions,
    data: rows as readonly (T & object)[],
    getRowId: getKey,
    state: { columnVisibility: visibility },
  });
  const model = table.getRowModel().rows;
  const { shown, template, minWidth } = useMemo(() => arrange(columns, visibility), [columns, visibility]);
  const virtual = useVirtualizer({
    count: model.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 12,
  });
  const items = virtual.getVirtualItems();
  usePrefetch(pages, rows.length - (items.at(-1)?.index ?? 0));
  const pending = useRef<number>(undefined);
  const onKeyDown = (event: KeyboardEvent) => {
    const row = findRow(event);
    // The focus moves in the next frame; a repeated key can arrive earlier.
    const at = row ? (pending.current ?? Number(row.dataset.index)) : -1;
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (step !== undefined && !event.metaKey && !event.ctrlKey) {
      event.preventDefault();
      const next = Math.max(0, Math.min(rows.length - 1, at + step));
      virtual.scrollToIndex(next);
      pending.current = next;
      requestAnimationFrame(() => {
        pending.current = undefined;
        scroller.current?.querySelector<HTMLElement>(`[data-index="${next}"]`)?.focus();
      });
    } else if (event.key === 'Enter' && event.target === row && rows[at]) onOpen(rows[at]);
  };
  const onClick = (event: MouseEvent) => {
    const clicked = rows[Number(findRow(event)?.dataset.index)];
    if (clicked) onOpen(clicked);
  };
  return (
    <div className="virtual-scroll" ref={scroller} tabIndex={-1}>
      <div role="table" aria-label={label} aria-rowcount={rows.length + 1} onKeyDown={onKeyDown}>
        <div className="virtual-head" role="row" aria-rowindex={1} style={{ gridTemplateColumns: template, minWidth }}>
          {shown.map(({ id, label: name, isNumber }) => (
            <div key={id} role="columnheader" className={isNumber ? 'number clip' : 'clip'}>
              {name}
            </div>
          ))}
        </div>
        <div
          role="presentation"
          className="virtual-body"
          style={{ height: virtual.getTotalSize(), minWidth }}
          onClick={onClick}
        >
          {items.map(({ index, start }) => {
            const row = model[index];
            if (!row) return null;
            return (
              <VirtualRow
                key={row.id}
                row={row}
                columns={shown}
                template={template}
                index={index}
                top={start}
                height={rowHeight}
                isCurrent={row.id === currentKey}
                isTabStop={index === (items[0]?.index ?? 0)}
              />
            );
          })}
        </div>
      </div>
      <div className="virtual-foot muted">
        <PagesFooter pages={pages} shown={formatQuantity(rows.length, rowName)} />
      </div>
    </div>
  );
}

/** Fetches the next page when few rows remain below the last visible row. */
function usePrefetch(pages: TablePages, remaining: number): void {
  const { hasNextPage, isFetchingNextPage, isFetchNextPageError, fetchNextPage } = pages;
  // After a failure, the footer offers to try again.
  const mayFetch = hasNextPage && !isFetchingNextPage && !isFetchNextPageError;
  useEffect(() => {
    if (remaining <= prefetchRows && mayFetch) void fetchNextPage();
  }, [remaining, mayFetch, fetchNextPage]);
}

function findRow({ target }: KeyboardEvent | MouseEvent): HTMLElement | null {
  return (target as HTMLElement).closest<HTMLElement>('[data-index]');
}

/** Returns the visible columns, and the widths of the columns of the grid. */
function arrange<T>(columns: readonly TableColumn<T>[], visibility: ColumnVisibilityState) {
  const shown = columns.filter(({ id }) => visibility[id] !== false);
  return {
    shown,
    template: shown.map(({ width, grow }) => (grow ? `minmax(${width}px, ${grow}fr)` : `${width}px`)).join(' '),
    minWidth: shown.reduce((sum, { width }) => sum + width + columnGap, 2 * 16),
  };
}

interface VirtualRowProps<T> {
  readonly row: Row<typeof features, T & object>;
  readonly columns: readonly TableColumn<T>[];
  readonly template: string;
  readonly index: number;
  /** Position and height in pixels. */
  readonly top: number;
  readonly height: number;
  readonly isCurrent: boolean;
  readonly isTabStop: boolean;
}

/** A row. It is rendered again only if its data, its position or the columns change, not while the table is scrolled. */
const VirtualRow = memo(
  function VirtualRow<T>({ row, columns, template, index, top, height, isCurrent, isTabStop }: VirtualRowProps<T>) {
    return (
      <div
        role="row"
        className="virtual-row"
        tabIndex={isTabStop ? 0 : -1}
        data-index={index}
        aria-rowindex={index + 2}
        aria-current={isCurrent ? 'true' : undefined}
        style={{ gridTemplateColumns: template, height, top }}
      >
        {row.getVisibleCells().map((cell, position) => (
          <div key={cell.id} role="cell" className={columns[position]?.isNumber ? 'number clip' : 'clip'}>
            <FlexRender cell={cell} />
          </div>
        ))}
      </div>
    );
  },
  (before, after) =>
    before.row.original === after.row.original &&
    before.columns === after.columns &&
    before.index === after.index &&
    before.top === after.top &&
    before.height === after.height &&
    before.isCurrent === after.isCurrent &&
    before.isTabStop === after.isTabStop,
) as <T>(props: VirtualRowProps<T>) => ReactNode;
