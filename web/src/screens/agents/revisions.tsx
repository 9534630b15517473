import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { call, readFrom } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { ConfirmButton } from '../../components/confirm-button.tsx';
import { EmptyState, Problem, QueryState } from '../../components/states.tsx';
import { Time, Value } from '../../components/text.tsx';
import { type Deployment, sourceNames } from './agents.tsx';
import { RevisionLog } from './revision-log.tsx';
import { finalStatuses, RevisionStatus } from './status.tsx';
import { useDeploymentSearch } from './use-deployment-search.ts';

/** The revisions of a deployment, newest first, with the history and the log of one of them. */
export function Revisions({ deployment }: { readonly deployment: Deployment }) {
  const { id, active_revision_id, latest_revision_id } = deployment;
  const { search, change } = useDeploymentSearch();
  const canWrite = usePermission('deployments:write');
  const client = useQueryClient();
  const revisions = useQuery({
    queryKey: ['revisions', id, latest_revision_id],
    ...readFrom('get', '/api/v2/deployments/{deployment_id}/revisions', {
      path: { deployment_id: id },
      query: { limit: 100 },
    }),
    refetchInterval: ({ state }) =>
      state.data?.resources.some(({ status }) => !finalStatuses.has(status)) ? 2_000 : false,
  });
  const redeploy = useMutation({
    mutationFn: (revisionId: string) =>
      call('post', '/api/v2/deployments/{deployment_id}/revisions/{revision_id}/redeploy', {
        path: { deployment_id: id, revision_id: revisionId },
      }),
    onSuccess: async (changed) => {
      client.setQueryData(['deployment', id], changed);
      change({ revision: changed.latest_revision_id ?? undefined }, true);
    },
  });
  return (
    <QueryState query={revisions}>
      {({ resources }) => {
        const [latest] = resources;
        if (latest === undefined)
          return <EmptyState title="There is no revision yet">The source has not been uploaded.</EmptyState>;
        const shown = resources.find((each) => each.id === search.revision) ?? latest;
        return (
          <div className="agents-columns">
            <section className="agents-side" aria-label="Revisions">
              <Problem message={redeploy.error?.message} />
              <ul className="agents-list">
                {resources.map(({ id: revisionId, status, source, source_revision_config, created_at }) => (
                  <li key={revisionId} className={revisionId === shown.id ? 'selected' : ''}>
                    <button
                      type="button"
                      className="agents-item"
                      aria-pressed={revisionId === shown.id}
                      onClick={() => change({ revision: revisionId }, true)}
                    >
                      <span className="row">
                        <RevisionStatus status={status} />
                        {revisionId === active_revision_id && <span className="badge">serves</span>}
                        <span className="spacer" />
                        <Time at={created_at} />
                      </span>
                      <span className="muted agents-text">
                        {sourceNames[source]} <Value text={describeSource(source_revision_config)} />
                      </span>
                    </button>
                    {canWrite && (
                      <ConfirmButton
                        label={revisionId === latest_revision_id ? 'Redeploy' : 'Roll back'}
                        name={`${revisionId === latest_revision_id ? 'Redeploy' : 'Roll back to'} the revision ${revisionId}`}
                        question="Deploy this revision again, with its source, settings and secrets? The revision that serves now is replaced when the new one answers."
                        onConfirm={() => redeploy.mutate(revisionId)}
                      />
                    )}
                  </li>
                ))}
              </ul>
            </section>
            <div className="agents-detail stack">
              <Transitions deploymentId={id} revisionId={shown.id} status={shown.status} />
              <RevisionLog key={shown.id} deploymentId={id} revisionId={shown.id} />
            </div>
          </div>
        );
      }}
    </QueryState>
  );
}

function describeSource(config: object): string {
  const { repo_ref, repo_commit_sha, image_uri } = config as Readonly<Record<string, unknown>>;
  const commit = typeof repo_commit_sha === 'string' ? repo_commit_sha.slice(0, 10) : undefined;
  return [repo_ref, commit, image_uri].filter((part) => typeof part === 'string').join(' ');
}

/** How a revision came to its status, with the reasons. */
function Transitions({
  deploymentId,
  revisionId,
  status,
}: {
  readonly deploymentId: string;
  readonly revisionId: string;
  readonly status: string;
}) {
  const revision = useQuery({
    queryKey: ['revision', deploymentId, revisionId, status],
    ...readFrom('get', '/api/v2/deployments/{deployment_id}/revisions/{revision_id}', {
      path: { deployment_id: deploymentId, revision_id: revisionId },
    }),
  });
  return (
    <section aria-label="History of the revision" className="stack">
      <h2>History</h2>
      <QueryState query={revision}>
        {({ transitions }) => (
          <ol className="agents-history">
            {transitions.map(({ at, to_status, reason }) => (
              <li key={`${at} ${to_status}`}>
                <Time at={at} /> <RevisionStatus status={to_status} />
                {reason !== '' && (
                  <span className="muted agents-reason">
                    <Value text={reason} />
                  </span>
                )}
              </li>
            ))}
          </ol>
        )}
      </QueryState>
    </section>
  );
}
