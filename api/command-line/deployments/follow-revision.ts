import { pause } from '../../../infra/timeouts/backoff.ts';
import { maxUnclaimedSeconds } from '../../../pipelines/deployments/claim-revision.ts';
import { isFinal, type RevisionStatus } from '../../../pipelines/deployments/states.ts';
import type { MainApiClient } from '../main-api-client.ts';

/** Fields of the responses of the control plane that commands use. */
export interface Deployment {
  readonly id: string;
  readonly name: string;
  readonly source: string;
  readonly source_config: { readonly custom_url: string };
  readonly status: string;
  readonly latest_revision_id: string | null;
  readonly active_revision_id: string | null;
  readonly created_at: string;
}

export interface Revision {
  readonly id: string;
  readonly status: RevisionStatus;
  readonly transitions: readonly { readonly to_status: RevisionStatus; readonly reason: string }[];
}

interface LogPage {
  readonly logs: readonly { readonly sequence: number; readonly stage: string; readonly text: string }[];
  readonly next_after: number;
  readonly status: RevisionStatus;
}

const pollMs = 300;

export function readRevision(client: MainApiClient, deploymentId: string, revisionId: string): Promise<Revision> {
  return client.ask('GET', `/v2/deployments/${deploymentId}/revisions/${revisionId}`);
}

export interface RevisionWatcher {
  onStatus(status: RevisionStatus): void;
  /** Called once if no host has accepted the revision for {@link maxUnclaimedSeconds}. */
  onUnclaimed?(): void;
  onLine(line: string, stage: string): void;
}

/**
 * Reports the statuses and the log of a revision. Resolves when `isDone` returns true for a status after which no more
 * log is stored. @throws errors of the client, also after Ctrl-C.
 */
export async function followRevision(
  client: MainApiClient,
  { deploymentId, revisionId }: { readonly deploymentId: string; readonly revisionId: string },
  { onStatus, onUnclaimed, onLine }: RevisionWatcher,
  isDone: (status: RevisionStatus) => boolean = isFinal,
): Promise<void> {
  const path = `/v2/deployments/${deploymentId}/revisions/${revisionId}/logs`;
  let after = 0;
  let reported: RevisionStatus | undefined;
  let deadlineMs = performance.now() + maxUnclaimedSeconds * 1_000;
  for (;;) {
    const { logs, next_after, status } = await client.ask<LogPage>('GET', `${path}?after=${after}`);
    const isNew = status !== reported;
    // The log that belongs to a final status is read after the status was seen.
    if (logs.length === 0 && isDone(status) && !isNew) return;
    if (isNew && !isFinal(status)) onStatus(status);
    for (const { stage, text } of logs) for (const line of text.trimEnd().split('\n')) onLine(line, stage);
    if (isNew && isFinal(status)) onStatus(status);
    if (status === 'CREATING' && performance.now() >= deadlineMs) {
      deadlineMs = Number.POSITIVE_INFINITY;
      onUnclaimed?.();
    }
    after = next_after;
    reported = status;
    if (logs.length === 0) await pause(pollMs, client.interrupted);
  }
}
