import type { ReactNode } from 'react';
import { ApiError } from '../api/client.ts';
import { usePermission } from '../api/session.ts';
import { Button } from './button.tsx';
import { Heading } from './heading.tsx';

export function LoadingState({
  label = 'Loading',
  isPage = false,
}: {
  readonly label?: string | undefined;
  /** Whether the state replaces the whole screen. */
  readonly isPage?: boolean;
}) {
  return (
    <div className="state muted" role="status">
      {isPage ? <Heading text={`${label} …`} /> : <span>{label} …</span>}
    </div>
  );
}

export function EmptyState({
  title,
  isPage = false,
  children,
}: {
  readonly title: string;
  /** Whether the state replaces the whole screen. */
  readonly isPage?: boolean;
  readonly children?: ReactNode;
}) {
  return (
    <div className="state">
      {isPage ? <Heading text={title} /> : <h2>{title}</h2>}
      <div className="muted">{children}</div>
    </div>
  );
}

/** Shows the error message of the API and a button that retries. */
export function ErrorState({
  error,
  isPage = false,
  onRetry,
}: {
  readonly error: unknown;
  readonly isPage?: boolean;
  readonly onRetry?: () => void;
}) {
  const isKnown = error instanceof ApiError;
  const title =
    isKnown && error.status === 404
      ? 'Not found'
      : isKnown && error.status === 403
        ? 'No permission'
        : 'This did not load';
  return (
    <div className="state" role="alert">
      {isPage ? <Heading text={title} /> : <h2>{title}</h2>}
      <p className="muted">{error instanceof Error ? error.message : String(error)}</p>
      {isKnown && error.requestId && <code className="muted">request {error.requestId}</code>}
      {onRetry && <Button onClick={onRetry}>Try again</Button>}
    </div>
  );
}

/** Shows an error message below a form or a button. Renders nothing without `message`. */
export function Problem({ message }: { readonly message: string | undefined }) {
  if (message === undefined) return null;
  return (
    <p className="error-text" role="alert">
      {message}
    </p>
  );
}

export interface Pages {
  readonly hasNextPage: boolean;
  readonly isFetchingNextPage: boolean;
  readonly fetchNextPage: () => unknown;
}

/** The pages of a table that loads them while the viewer scrolls. */
export interface TablePages extends Pages {
  readonly isFetchNextPageError: boolean;
  readonly isPending: boolean;
  readonly isPlaceholderData: boolean;
}

/** A button that loads the next page of a list. Renders nothing after the last page. */
export function MoreButton({ pages, label }: { readonly pages: Pages; readonly label: string }) {
  if (!pages.hasNextPage) return null;
  return (
    <div className="row more">
      <Button disabled={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>
        {pages.isFetchingNextPage ? 'Loading …' : label}
      </Button>
    </div>
  );
}

/** Footer of a paged table. `shown` describes the loaded rows, such as `12 runs`. */
export function PagesFooter({ pages, shown }: { readonly pages: TablePages; readonly shown: string }) {
  if (pages.isFetchNextPageError) {
    return (
      <>
        The next page did not load. <Button onClick={() => void pages.fetchNextPage()}>Try again</Button>
      </>
    );
  }
  // While the first page is read anew, it is not known whether more follow.
  const isUnknown = pages.isPending || pages.isPlaceholderData;
  return pages.hasNextPage || isUnknown ? 'Loading more …' : `${shown}; these are all.`;
}

/** Renders `children` if the session has the permission, otherwise a text that names the missing permission. */
export function Permitted({ permission, children }: { readonly permission: string; readonly children: ReactNode }) {
  return usePermission(permission) ? children : <NoPermission permission={permission} />;
}

export function NoPermission({
  permission,
  isPage = false,
}: {
  readonly permission: string;
  readonly isPage?: boolean;
}) {
  return (
    <EmptyState title="No permission" isPage={isPage}>
      Your key does not have the permission <code>{permission}</code>. Sign in with a key that has it.
    </EmptyState>
  );
}

interface RepeatableRead {
  readonly error: Error | null;
  readonly refetch: () => unknown;
}

interface QueryView<T> extends RepeatableRead {
  readonly data: T | undefined;
}

/** What is shown while a query has no data: its error with a button that retries, or that it loads. */
export function NoData({
  query: { error, refetch },
  label,
  isPage = false,
}: {
  readonly query: RepeatableRead;
  /** What is said while the data loads. */
  readonly label?: string | undefined;
  readonly isPage?: boolean;
}) {
  if (error) return <ErrorState isPage={isPage} error={error} onRetry={() => void refetch()} />;
  return <LoadingState isPage={isPage} label={label} />;
}

/** Renders the rows of a paged list, or its state. If a later read fails, the loaded rows stay visible. */
export function PagesState({
  pages,
  rows,
  label,
  empty,
  children,
}: {
  readonly pages: RepeatableRead & { readonly isPending: boolean };
  readonly rows: readonly unknown[];
  /** What is said while the first page loads. */
  readonly label?: string;
  /** What is shown if the list has no rows. */
  readonly empty: ReactNode;
  readonly children: ReactNode;
}) {
  if (rows.length > 0) return children;
  return pages.error || pages.isPending ? <NoData query={pages} label={label} /> : empty;
}

/**
 * Says that a part of a screen did not load, or above loaded data that a later read failed, and offers to try again.
 * Renders nothing without an error.
 */
export function PartProblem({
  what = 'This',
  query: { data, error, refetch },
}: {
  /** What is missing, such as `The figures`. */
  readonly what?: string;
  readonly query: QueryView<unknown>;
}) {
  if (error === null) return null;
  return (
    <p className="row wrap notice error-text" role="alert">
      {data === undefined ? `${what} did not load` : 'Not up to date'}: {error.message}
      <Button onClick={() => void refetch()}>Try again</Button>
    </p>
  );
}

/** Renders the data of a query, or its state. If a later read fails, the loaded data stays visible. */
export function QueryState<T>({
  query,
  isPage = false,
  children,
}: {
  readonly query: QueryView<T>;
  readonly isPage?: boolean;
  readonly children: (data: T) => ReactNode;
}) {
  if (query.data !== undefined)
    return (
      <>
        <PartProblem query={query} />
        {children(query.data)}
      </>
    );
  return <NoData query={query} isPage={isPage} />;
}

/** Says that a live list has fallen behind while older rows are shown. Renders nothing without `onShow`. */
export function NewerRuns({ onShow }: { readonly onShow: (() => void) | undefined }) {
  if (onShow === undefined) return null;
  return (
    <p className="row wrap notice" role="status">
      There are newer runs than those shown.
      <Button onClick={onShow}>Show the newest</Button>
    </p>
  );
}
