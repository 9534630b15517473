import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { type Answer, call, readFrom } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { CodeBlock } from '../../components/copy-button.tsx';
import { Heading } from '../../components/heading.tsx';
import { PlainTable } from '../../components/plain-table.tsx';
import { SearchField } from '../../components/search-field.tsx';
import { EmptyState, MoreButton, PagesState, PartProblem } from '../../components/states.tsx';
import { TimeCell, Value } from '../../components/text.tsx';
import { CreateDeployment } from './create-deployment.tsx';
import { finalStatuses, RevisionStatus } from './status.tsx';
import './agents.css';

export type Deployment = Answer<'get', '/api/v2/deployments/{deployment_id}'>;
const route = getRouteApi('/shell/agents');
const pageSize = 50;

/** The deployments of the workspace. */
export function Agents() {
  const { name = '' } = route.useSearch();
  const navigate = useNavigate({ from: '/agents' });
  const canWrite = usePermission('deployments:write');
  const deployments = useInfiniteQuery({
    queryKey: ['deployments', name],
    queryFn: ({ pageParam, signal }) =>
      call('get', '/api/v2/deployments', {
        query: { limit: pageSize, offset: pageParam, name_contains: name || undefined },
        signal,
      }),
    initialPageParam: 0,
    getNextPageParam: (page) => (page.resources.length < pageSize ? undefined : page.offset),
    refetchInterval: 10_000,
  });
  const rows = deployments.data?.pages.flatMap(({ resources }) => resources) ?? [];
  const empty =
    name === '' ? (
      <FirstDeployment />
    ) : (
      <EmptyState title="No deployment has this name">Change or clear the search.</EmptyState>
    );
  return (
    <>
      <header className="page-head">
        <Heading text="Agents" />
        <span className="spacer" />
        <SearchField
          label="Find a deployment"
          value={name}
          onChange={(text) => void navigate({ search: { name: text || undefined }, replace: true })}
        />
        {canWrite && <CreateDeployment />}
      </header>
      <PagesState pages={deployments} rows={rows} label="Loading deployments" empty={empty}>
        <PlainTable
          label="Deployments"
          columns={['Name', 'Serves', 'Latest revision', 'Address', 'Source', 'Changed']}
          footer={<MoreButton pages={deployments} label="Show more deployments" />}
        >
          {rows.map((deployment) => (
            <DeploymentRow key={deployment.id} deployment={deployment} />
          ))}
        </PlainTable>
      </PagesState>
    </>
  );
}

function DeploymentRow({ deployment }: { readonly deployment: Deployment }) {
  const { id, name, source, source_config, status, active_revision_id, latest_revision_id, updated_at } = deployment;
  const serves =
    status === 'AWAITING_DELETE'
      ? 'is being deleted'
      : active_revision_id === null
        ? 'no'
        : active_revision_id === latest_revision_id
          ? 'the latest revision'
          : 'a former revision';
  return (
    <tr>
      <td className="text-cell">
        <Link to="/agents/$deploymentId" params={{ deploymentId: id }}>
          <Value text={name} />
        </Link>
      </td>
      <td>{serves}</td>
      <td>{latest_revision_id && <LatestRevision deploymentId={id} revisionId={latest_revision_id} />}</td>
      <td className="text-cell mono">
        <Value text={String(source_config.custom_url ?? '')} />
      </td>
      <td>{sourceNames[source]}</td>
      <TimeCell at={updated_at} />
    </tr>
  );
}

function LatestRevision({ deploymentId, revisionId }: { readonly deploymentId: string; readonly revisionId: string }) {
  const revision = useQuery({
    queryKey: ['revision', deploymentId, revisionId],
    ...readFrom('get', '/api/v2/deployments/{deployment_id}/revisions/{revision_id}', {
      path: { deployment_id: deploymentId, revision_id: revisionId },
    }),
    refetchInterval: ({ state }) => (state.data && !finalStatuses.has(state.data.status) ? 2_000 : false),
  });
  return (
    <>
      <PartProblem what="The status" query={revision} />
      {revision.data && <RevisionStatus status={revision.data.status} />}
    </>
  );
}

export const sourceNames = {
  internal_source: 'Upload',
  github: 'Git',
  external_docker: 'Image',
  internal_docker: 'Image',
} as const;

function FirstDeployment() {
  return (
    <div className="page-body stack agents-first">
      <h2>This workspace has no deployments</h2>
      <p className="muted">
        A folder with a <code>langgraph.json</code> becomes an agent server with one command. Set{' '}
        <code>LANGSMITH_ENDPOINT</code> and <code>LANGSMITH_API_KEY</code> before.
      </p>
      <CodeBlock label="Deploy a folder" code="runlake deploy path/to/folder --name my-agent" />
    </div>
  );
}
