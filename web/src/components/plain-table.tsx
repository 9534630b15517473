import type { ReactNode } from 'react';
import { ActionsHead } from './text.tsx';

/** A table that scrolls in its own region. */
export function PlainTable({
  label,
  columns,
  hasActions = false,
  notices,
  footer,
  children,
}: {
  readonly label: string;
  /** Labels of the columns. Numbers are aligned to the right. */
  readonly columns: readonly (string | { readonly number: string })[];
  /** Whether a last column has buttons. */
  readonly hasActions?: boolean;
  /** Content above the table. */
  readonly notices?: ReactNode;
  /** Content below the table, such as the button of the next page. */
  readonly footer?: ReactNode;
  /** The rows. */
  readonly children: ReactNode;
}) {
  return (
    <section className="table-scroll" tabIndex={0} aria-label={label}>
      {notices}
      <table className="plain-table">
        <thead>
          <tr>
            {columns.map((column) =>
              typeof column === 'string' ? (
                <th key={column}>{column}</th>
              ) : (
                <th key={column.number} className="number">
                  {column.number}
                </th>
              ),
            )}
            {hasActions && <ActionsHead />}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
      {footer}
    </section>
  );
}
