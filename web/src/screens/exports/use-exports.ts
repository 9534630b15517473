import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { readByOffset, readFrom } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import type { BulkExport } from './paths.ts';

export const livePollMs = 2000;
const idlePollMs = 10_000;
const pageSize = 100;
/** Maximum of the API. */
const maxDestinations = 1000;

export const isFinished = ({ status }: { readonly status: BulkExport['status'] }) =>
  status !== 'CREATED' && status !== 'RUNNING';

interface ListFilter {
  readonly scheduled?: boolean;
  readonly source_bulk_export_id?: string;
}

/**
 * Reads exports or schedules, newest first, page by page; again every two seconds while an export is not finished, and
 * every ten seconds for exports that schedules create.
 */
export function useExports(filter: ListFilter) {
  return useInfiniteQuery({
    queryKey: ['exports', filter],
    ...readByOffset('/api/v1/bulk-exports', pageSize, { query: filter }),
    refetchInterval: ({ state }) =>
      state.data?.pages.flat().some((each) => each.interval_hours === null && !isFinished(each))
        ? livePollMs
        : idlePollMs,
  });
}

export function useDestinations() {
  return useQuery({
    queryKey: ['export-destinations'],
    ...readFrom('get', '/api/v1/bulk-exports/destinations', { query: { limit: maxDestinations } }),
  });
}

/** Reads the names of projects. A deleted project, or a key that cannot read projects, has no names. */
export function useProjectNames(ids: readonly string[]) {
  const canRead = usePermission('projects:read');
  const wanted = [...new Set(ids)].sort().slice(0, pageSize);
  const projects = useQuery({
    queryKey: ['project-names', wanted],
    ...readFrom('get', '/api/v1/sessions', { query: { id: wanted, limit: pageSize } }),
    enabled: canRead && wanted.length > 0,
    staleTime: 60_000,
  });
  return { query: projects, nameOf: (id: string) => projects.data?.find((each) => each.id === id)?.name ?? id };
}
