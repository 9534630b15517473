import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useMemo } from 'react';
import { type Answer, call, callText, throwNotFound } from '../../api/client.ts';
import { parseToShow } from '../../components/values/exact-json.ts';
import { buildTree, type TreeRun, treeSelects } from './tree.ts';

const livePollMs = 2000;
/** Runs and traces can have megabytes: they are kept for a shorter time than other data after they were shown. */
const keptMs = 60_000;
export type Run = Answer<'get', '/api/v1/runs/{run_id}'>;
/** A run with all fields: parsed without losing digits, and the bytes of the response. */
export interface FullRun {
  readonly run: Run;
  readonly text: string;
}

/** Source of a trace: the workspace, or a public link. */
export interface TraceSource {
  readonly key: string;
  /** Shared traces have no feedback form and no links to the project. */
  readonly isShared: boolean;
  locate(runId: string, signal: AbortSignal): Promise<TraceLocation>;
  listRuns(location: TraceLocation, signal: AbortSignal): Promise<readonly TreeRun[]>;
  readRun(runId: string, signal: AbortSignal): Promise<string>;
}
export interface TraceLocation {
  readonly traceId: string;
  readonly projectId: string;
}

export const workspaceSource: TraceSource = {
  key: 'workspace',
  isShared: false,
  async locate(runId, signal) {
    const { runs } = await call('post', '/api/v1/runs/query', {
      body: { id: [runId], select: ['trace_id', 'session_id'], limit: 1 },
      signal,
    });
    const [found] = runs;
    if (!found)
      throwNotFound(`There is no run ${runId} in this workspace. It may have been deleted, or not have arrived yet.`);
    return { traceId: found.trace_id, projectId: found.session_id };
  },
  async listRuns({ traceId, projectId }, signal) {
    const { items } = await call('get', '/api/v2/traces/{trace_id}/runs', {
      path: { trace_id: traceId },
      query: { project_id: projectId, selects: [...treeSelects] },
      signal,
    });
    return items;
  },
  readRun: (runId, signal) => callText('get', '/api/v1/runs/{run_id}', { path: { run_id: runId }, signal }),
};

/** Reads the trace of a shared link. */
export function createSharedSource(shareToken: string): TraceSource {
  return {
    key: shareToken,
    isShared: true,
    async locate(_runId, signal) {
      const { trace_id } = await call('get', '/api/v1/public/{share_token}/run', {
        path: { share_token: shareToken },
        signal,
      });
      return { traceId: trace_id, projectId: '' };
    },
    async listRuns(_location, signal) {
      const { items } = await call('post', '/api/v2/public/{share_token}/runs/query', {
        path: { share_token: shareToken },
        body: { selects: [...treeSelects] },
        signal,
      });
      return items as readonly TreeRun[];
    },
    readRun: (runId, signal) =>
      callText('get', '/api/v1/public/{share_token}/run/{run_id}', {
        path: { share_token: shareToken, run_id: runId },
        signal,
      }),
  };
}

/** Reads the trace of a run. While a run of the trace has not ended, the trace is read again every two seconds. */
export function useTrace(source: TraceSource, runId: string) {
  const client = useQueryClient();
  const location = useQuery({
    queryKey: ['trace-location', source.key, runId],
    queryFn: ({ signal }) => source.locate(runId, signal),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const traceId = location.data?.traceId;
  const runs = useQuery({
    queryKey: ['trace', source.key, traceId],
    queryFn: ({ signal }) => source.listRuns(location.data as TraceLocation, signal),
    enabled: location.data !== undefined,
    gcTime: keptMs,
    // An empty list is a trace that has just been accepted.
    refetchInterval: ({ state }) =>
      state.data && (state.data.length === 0 || state.data.some(({ status }) => status === 'PENDING'))
        ? livePollMs
        : false,
  });
  const tree = useMemo(() => (runs.data ? buildTree(runs.data) : undefined), [runs.data]);
  /** Remembers that a run is in the trace that is shown, so that selecting it needs no request. */
  const keepLocation = (id: string) =>
    client.setQueryData(
      ['trace-location', source.key, id],
      (known: TraceLocation | undefined) => known ?? location.data,
    );
  return { location, runs, tree, keepLocation };
}

/** Reads all fields of a run; again every two seconds while it has not ended. */
export function useFullRun(source: TraceSource, runId: string) {
  return useQuery({
    queryKey: ['run', source.key, runId],
    queryFn: async ({ signal }): Promise<FullRun> => {
      const text = await source.readRun(runId, signal);
      return { text, run: parseToShow(text) as Run };
    },
    gcTime: keptMs,
    refetchInterval: ({ state }) => (state.data?.run.status === 'pending' ? livePollMs : false),
  });
}
