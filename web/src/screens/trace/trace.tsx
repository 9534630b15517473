import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { CrumbSeparator } from '../../components/crumb.tsx';
import { Heading } from '../../components/heading.tsx';
import { ErrorState, LoadingState } from '../../components/states.tsx';
import { RunDetail, type RunTab, runTabs } from './run-detail.tsx';
import { RunTree } from './run-tree.tsx';
import { type TraceSource, useTrace, workspaceSource } from './trace-source.ts';
import './trace.css';

const route = getRouteApi('/shell/runs/$runId');

export function Trace() {
  const { runId } = route.useParams();
  const { tab } = route.useSearch();
  const navigate = useNavigate();
  return (
    <TraceView
      source={workspaceSource}
      runId={runId}
      tab={tab}
      onSelect={(id) => void navigate({ to: '/runs/$runId', params: { runId: id }, search: true, replace: true })}
      onTab={(next) => void navigate({ to: '/runs/$runId', params: { runId }, search: { tab: next }, replace: true })}
    />
  );
}

/** A trace from any source: the tree of its runs, and the selected run. */
export function TraceView({
  source,
  runId,
  tab,
  onSelect,
  onTab,
}: {
  readonly source: TraceSource;
  readonly runId: string;
  readonly tab: string | undefined;
  readonly onSelect: (runId: string) => void;
  readonly onTab: (tab: RunTab) => void;
}) {
  const { location, runs, tree, keepLocation } = useTrace(source, runId);
  const error = location.error ?? (tree ? undefined : runs.error);
  if (error)
    return <ErrorState isPage error={error} onRetry={() => void (location.error ? location : runs).refetch()} />;
  const root = tree?.nodes[0];
  return (
    <div className="trace">
      <header className="page-head">
        {!source.isShared && location.data && (
          <>
            <Link to="/projects/$projectId" params={{ projectId: location.data.projectId }} className="crumb">
              Traces
            </Link>
            <CrumbSeparator />
          </>
        )}
        <Heading text={root ? root.run.name || '(no name)' : 'Trace'} />
        {tree?.isRunning && (
          <span className="badge live-badge" role="status">
            running
          </span>
        )}
        {runs.error && tree && <span className="error-text">Not up to date: {runs.error.message}</span>}
        <span className="spacer" />
        <span className="muted shortcut-note">
          <kbd>j</kbd> <kbd>k</kbd> runs, <kbd>?</kbd> all keys
        </span>
      </header>
      <div className="trace-panes">
        {tree === undefined ? (
          <LoadingState label="Loading the trace" />
        ) : (
          <RunTree
            tree={tree}
            selectedId={runId}
            onSelect={(id) => {
              keepLocation(id);
              onSelect(id);
            }}
          />
        )}
        <div className="trace-detail">
          <RunDetail source={source} runId={runId} tab={runTabs.find((each) => each === tab) ?? 'Run'} onTab={onTab} />
        </div>
      </div>
    </div>
  );
}
