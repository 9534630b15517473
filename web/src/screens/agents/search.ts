export const deploymentTabs = ['Revisions', 'Assistants', 'Threads', 'Playground', 'Settings'] as const;
export type DeploymentTab = (typeof deploymentTabs)[number];
const threadStatuses = ['idle', 'busy', 'interrupted', 'error'] as const;

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

export function readDeploymentSearch(search: Record<string, unknown>): DeploymentSearch {
  const text = (name: string) => {
    const value = search[name];
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  return {
    tab: deploymentTabs.find((each) => each === search.tab),
    revision: text('revision'),
    assistant: text('assistant'),
    thread: text('thread'),
    checkpoint: text('checkpoint'),
    compare: text('compare'),
    find: text('find'),
    status: threadStatuses.find((each) => each === search.status),
  };
}

export { threadStatuses };
