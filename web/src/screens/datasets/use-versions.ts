import { useInfiniteQuery } from '@tanstack/react-query';
import { type Answer, readByOffset } from '../../api/client.ts';

const pageSize = 100;

export type Version = Answer<'get', '/api/v1/datasets/{dataset_id}/versions'>[number];

/** Reads the versions of a dataset, newest first, page by page. */
export function useVersions(datasetId: string) {
  return useInfiniteQuery({
    queryKey: ['dataset', datasetId, 'versions'],
    ...readByOffset('/api/v1/datasets/{dataset_id}/versions', pageSize, { path: { dataset_id: datasetId } }),
  });
}
