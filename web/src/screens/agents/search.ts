import { readTexts } from '../../read-search.ts';

export const deploymentTabs = ['Revisions', 'Assistants', 'Threads', 'Playground', 'Settings'] as const;
export type DeploymentTab = (typeof deploymentTabs)[number];
export const threadStatuses = ['idle', 'busy', 'interrupted', 'error'] as const;

/** Search parameters of a deployment: everything that its screen shows is in the address. */
export interface DeploymentSearch {
  /** Default: Revisions. */
  readonly tab?: DeploymentTab | undefined;
  readonly revision?: string | undefined;
  readonly assistant?: string | undefined;
  readonly thread?: string | undefined;
  /** Checkpoint of the thread that is shown, or from which a run starts. */
  readonly checkpoint?: string | undefined;
  /** Checkpoint with which the shown one is compared. */
  readonly compare?: string | undefined;
  /** Filter of threads: an id, or `key=value` of their metadata. */
  readonly find?: string | undefined;
  readonly status?: (typeof threadStatuses)[number] | undefined;
}

const readDeploymentTexts = readTexts('revision', 'assistant', 'thread', 'checkpoint', 'compare', 'find');

export function readDeploymentSearch(search: Record<string, unknown>): DeploymentSearch {
  return {
    ...readDeploymentTexts(search),
    tab: deploymentTabs.find((each) => each === search.tab),
    status: threadStatuses.find((each) => each === search.status),
  };
}
