/** Datasets that are shared by means of a token; see `pipelines/shares/share-tokens.ts`. */
import type { Database } from '../../infra/postgres/database.ts';
import { createShare, deleteShares, openShareToken, readShare, type ShareDeps } from '../shares/share-tokens.ts';
import { requireDataset } from './versions.ts';

const identify = (workspaceId: string, targetId: string) => ({ kind: 'dataset', workspaceId, targetId }) as const;

interface SharedDatasetOptions {
  readonly userId: string;
  /** Whether the experiments on the dataset are shared as well. */
  readonly withExperiments: boolean;
}

/**
 * Shares a dataset and returns the token. If the dataset is already shared, returns the existing token.
 *
 * @throws NOT_FOUND; CONFLICT; SEAL_KEY_UNKNOWN, SEAL_BROKEN.
 */
export async function shareDataset(
  deps: ShareDeps,
  workspaceId: string,
  datasetId: string,
  options: SharedDatasetOptions,
): Promise<string> {
  await requireDataset(deps.database, workspaceId, datasetId);
  return createShare(deps, identify(workspaceId, datasetId), options);
}

/**
 * Returns the token of a dataset; undefined if the dataset is not shared.
 *
 * @throws NOT_FOUND; SEAL_KEY_UNKNOWN, SEAL_BROKEN.
 */
export async function readDatasetShare(
  deps: ShareDeps,
  workspaceId: string,
  datasetId: string,
): Promise<string | undefined> {
  await requireDataset(deps.database, workspaceId, datasetId);
  return readShare(deps, identify(workspaceId, datasetId));
}

/** Ends the sharing of a dataset; does nothing if it is not shared. */
export function unshareDataset(database: Database, workspaceId: string, datasetId: string): Promise<void> {
  return deleteShares(database, identify(workspaceId, datasetId), [datasetId]);
}

export interface SharedDataset {
  readonly organizationId: string;
  readonly workspaceId: string;
  readonly datasetId: string;
  readonly withExperiments: boolean;
}

/** Finds the dataset to which a token gives access. @throws NOT_FOUND */
export async function openSharedDataset(database: Database, token: string): Promise<SharedDataset> {
  const { tenantId, targetId, ...share } = await openShareToken(database, 'dataset', token);
  return { ...share, workspaceId: tenantId, datasetId: targetId };
}
